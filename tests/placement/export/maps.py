"""A small placement as engines are given it, and the file each engine reads."""

FILES = {
    "sglang": "map.json",
    "vllm": "map.json",
    "vllm-ascend": "map.json",
    "tensorrt-llm": "map.yaml",
    "eplb": "map.npz",
}
# 4 experts, 6 slots on 2 ranks: [0 1 2 | 3 0 1] and [2 0 3 | 1 2 0]
ROWS = [[0, 1, 2, 3, 0, 1], [2, 0, 3, 1, 2, 0]]
TRIVIAL = [0, 1, 2, 3, 0, 1]
