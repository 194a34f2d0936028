"""`python -m moeplan.benchmarks.rexpert_tables`: ReXpert's tables and figure 8, ours and published.

Nothing here is stored but what the paper prints. Unions U(B), which its traces decide, are inputs; those of
GLM-5.2 are not printed and follow from its t_FFN, which is therefore no check (marked "given").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ..hardware.nearmem import Units
from ..hardware.platform import load_platform
from ..schedule import disaggregation, reduction
from ..schedule.decode_step import decode_step, ffn_bytes
from ..workload.model import load_model
from .rexpert_row import Row, text, worst

if TYPE_CHECKING:
    from ..hardware.gpu import Gpu
    from ..hardware.nearmem import Node
    from ..hardware.platform import Platform
    from ..schedule.decode_step import DecodeStep
    from ..workload.model import MoEModel

QWEN_35B, QWEN_397B, GLM = "qwen3.5-35b-a3b", "qwen3.5-397b-a17b", "glm-5.2"
POOLS: Final = {QWEN_35B: "rexpert-pool-35b", QWEN_397B: "rexpert-pool-397b", GLM: "rexpert-pool-glm"}
UNIONS: Final = {
    (QWEN_35B, 8): 50.1,
    (QWEN_35B, 64): 168.6,
    (QWEN_397B, 8): 65.1,
    (QWEN_397B, 64): 250.7,
    (GLM, 8): 52.0,
    (GLM, 64): 174.9,
}
"""Tables VI and VII; GLM-5.2: from t_FFN of Table XI."""
JOBS: Final = 213.5
"""PE jobs per layer of Qwen3.5-35B at 64 requests (Table VII, note c)."""
GIB: Final = 2.0**30
_US, _GB = 1e-6, 1e9


def rows() -> list[Row]:
    """Return every figure, table by table."""
    makers = (table_1, table_3, table_4, table_5, table_7, table_8, table_11, ratios, figure_8, penalties)
    return [row for maker in makers for row in maker()]


def table_1() -> Iterator[Row]:
    """Yield the machine balance of GPUs."""
    for name, balance, tokens, batches in (
        ("h20", 74, 37, (1184, 1894, 1184)),
        ("h100", 591, 295, (9452, 15123, 9452)),
    ):
        ours = _gpu(name).machine_balance("fp8")
        yield Row("Table I", f"{name}: FLOP per byte", ours, balance)
        yield Row("Table I", f"{name}: tokens per read", ours / 2, tokens)
        for model, batch in zip(POOLS, batches, strict=True):
            shapes = load_model(model)
            yield Row("Table I", f"{name}: batch, {model}", ours / 2 * shapes.experts / shapes.top_k, batch)


def table_3() -> Iterator[Row]:
    """Yield the hierarchy."""
    node = _pool(QWEN_35B)[1]
    die = node.package.die
    for name, units, size, rate, peak, printed in (
        ("unit", Units(die.core.unit, 1), "MiB", "GB/s", "GFLOPS", (4, 51.2, 400)),
        ("core", die.core.units, "MiB", "GB/s", "TFLOPS", (64, 819.2, 6.4)),
        ("die", die.units, "GiB", "TB/s", "TFLOPS", (1.25, 16.4, 128)),
        ("package", node.package.units, "GiB", "TB/s", "TFLOPS", (5, 65.5, 512)),
        ("node", node.units, "GiB", "TB/s", "PFLOPS", (40, 524, 4.1)),
    ):
        scale = {"M": 2.0**20, "G": GIB}[size[0]], _SCALE[rate[0]], _SCALE[peak[0]]
        yield Row("Table III", f"{name}: capacity", units.memory_bytes / scale[0], printed[0], size)
        yield Row("Table III", f"{name}: read bandwidth", units.read_bytes_per_s / scale[1], printed[1], rate)
        yield Row("Table III", f"{name}: peak", units.flop_per_s / scale[2], printed[2], peak)
        yield Row("Table III", f"{name}: bytes per FLOP", units.bytes_per_flop, 0.128)


def table_4() -> Iterator[Row]:
    """Yield the demands that equation 3 gives, for GLM-5.2 at its tile-fill batch."""
    model, node, _ = _pool(GLM)
    batch = reduction.tile_fill_batch(model, node)
    found = {demand.level: demand.bytes_per_s / _GB for demand in reduction.demands(model, node, batch)}
    for level, printed in (("unit I/O", 1.57), ("all D2D, per die", 47.0), ("node residual", 16.7)):
        yield Row("Table IV", f"{GLM}: {level}", found[level], printed, "GB/s")


def table_5() -> Iterator[Row]:
    """Yield the devices of equal capacity, peak and bandwidth, against the pool for Qwen3.5-35B."""
    model, node, _ = _pool(QWEN_35B)
    die = node.package.die
    dies = die.dies_for(ffn_bytes(model))
    pool = die.pool(dies)
    yield Row("Table V", "weights to hold", ffn_bytes(model) / GIB, 30.1, "GiB")
    yield Row("Table V", "ReXpert dies", dies, 25)
    for name, printed in (("h100", (1, 1.6, 122)), ("h20", (1, 10.8, 102))):
        gpu = _gpu(name)
        counts = (
            -(-ffn_bytes(model) // gpu.memory_bytes),
            disaggregation.equal_compute_gpus(die, dies, gpu),
            pool.read_bytes_per_s / gpu.memory_bandwidth_bytes_per_s,
        )
        for held, ours, count in zip(("capacity", "compute", "bandwidth"), counts, printed, strict=True):
            yield Row(
                "Table V",
                f"{name}: dies of equal {held}",
                ours,
                count,
                decimals=1 if held == "compute" else None,
            )


def table_7() -> Iterator[Row]:
    """Yield weights moved, and what moving them costs, at 64 requests."""
    model, node, platform = _pool(QWEN_35B)
    pooled, alone = (_energy(model, node, platform, reads) for reads in (UNIONS[QWEN_35B, 64], JOBS))
    yield Row("Table VII", "weights", pooled.weights_bytes / 1e6, 331, "MB/token")
    yield Row("Table VII", "weights without pooling", alone.weights_bytes / 1e6, 420, "MB/token")
    yield Row("Table VII", "HBM", pooled.weights_hbm_j / _US, 1326, "uJ/token")
    yield Row("Table VII", "ReXpert", pooled.weights_j / _US, 66, "uJ/token")
    yield Row("Table VII", "ReXpert without pooling", alone.weights_j / _US, 84, "uJ/token")
    yield Row("Table VII", "HBM over ReXpert", pooled.weights_hbm_j / pooled.weights_j, 20, "x")
    source = "section VII-E"
    yield Row("Table VII", "dies", pooled.dies_w / 1e3, 1.2, "kW", source, decimals=1)
    yield Row("Table VII", "H20s of equal compute", pooled.gpus_w / 1e3, 4.3, "kW", source)
    yield Row(
        "Table VII", "H20 over ReXpert, energy per token", pooled.gpus_j / pooled.dies_j, 35, "x", source
    )


def table_8() -> Iterator[Row]:
    """Yield latency per token where peak or bandwidth are held equal."""
    _, node, platform = _pool(QWEN_35B)
    die, dies = node.package.die, platform.nearmem.dies if platform.nearmem else 0
    bandwidth = die.pool(dies).read_bytes_per_s
    steps = {batch: _step(QWEN_35B, batch, 1) for batch in (8, 64)}
    ours = {batch: disaggregation.ffn_s(step, die, dies) for batch, step in steps.items()}
    for batch, printed in ((8, 1.93), (64, 0.81)):
        yield Row("Table VIII", f"ReXpert, B {batch}", ours[batch] / batch / _US, printed, "us/token")
    for name, compute, ratio in (("h100", {8: 145.8, 64: 61.25}, 75.6), ("h20", {8: 18.26, 64: 7.67}, 9.5)):
        gpu = _gpu(name)
        equal = disaggregation.equal_compute_gpus(die, dies, gpu)
        wide = bandwidth / gpu.memory_bandwidth_bytes_per_s
        for batch, step in steps.items():
            slow, level = step.ffn_gpu_s(gpu, equal), step.ffn_gpu_s(gpu, wide)
            yield Row(
                "Table VIII",
                f"{name}, equal compute, B {batch}",
                slow / batch / _US,
                compute[batch],
                "us/token",
            )
            yield Row(
                "Table VIII", f"{name}, equal compute, B {batch}: slower by", slow / ours[batch], ratio, "x"
            )
            printed = {8: 1.93, 64: 0.81}[batch]
            yield Row(
                "Table VIII", f"{name}, equal bandwidth, B {batch}", level / batch / _US, printed, "us/token"
            )


def table_11() -> Iterator[Row]:
    """Yield stage times and TPOT of disaggregated and homogeneous serving, as printed per token."""
    printed = {
        (QWEN_35B, 8): ((6.06, 1.93, 24.3, 4.0), (33.2, 1.93, 51.5, 1.55)),
        (QWEN_35B, 64): ((4.15, 0.81, 11.8, 2.85), (31.3, 0.81, 39.0, 1.25)),
        (QWEN_397B, 8): ((1.57, 1.30, 13.9, 8.8), (5.10, 1.30, 17.4, 3.4)),
        (QWEN_397B, 64): ((0.64, 0.63, 6.56, 10.3), (4.16, 0.63, 10.1, 2.4)),
        (GLM, 8): ((2.30, 2.07, 21.9, 9.5), (6.99, 2.07, 26.6, 3.8)),
        (GLM, 64): ((0.87, 0.87, 9.11, 10.4), (5.56, 0.87, 13.8, 2.5)),
    }
    for (name, batch), lines in printed.items():
        for kilo, (attention, ffn, alone, gain) in zip((4, 32), lines, strict=True):
            found = _stages(name, batch, kilo * 1024)
            at, given = f"{name}, B {batch}, {kilo}K", name == GLM
            for label, seconds, us in (
                ("t_attn", found.attention_s, attention),
                ("t_FFN", found.ffn_s, None if given else ffn),
                ("TPOT", found.tpot_s, attention),
                ("TPOT, H20 alone", found.homogeneous_s, alone),
            ):
                note = "given: U follows from it" if us is None else ""
                yield Row("Table XI", f"{at}: {label}", found.per_token(seconds) / _US, us, "us/token", note)
            yield Row("Table XI", f"{at}: gain", found.gain, gain, "x")


def ratios() -> Iterator[Row]:
    """Yield the ratio of attention to feed-forward devices that balances the stages (section VII-D)."""
    for name, printed in ((QWEN_35B, 7.5), (QWEN_397B, 1.7)):
        model, node, platform = _pool(name)
        assert platform.nearmem is not None
        assert platform.gpu is not None
        (found,) = disaggregation.balanced_ratios(
            model,
            node.package.die,
            platform.nearmem.dies,
            platform.gpu,
            unions={8: UNIONS[name, 8]},
            contexts=(32768,),
        )
        yield Row(
            "Table XI",
            f"{name}, B 8, 32K: GPUs per die in balance",
            found.ratio,
            printed,
            note="about, there",
        )


def figure_8() -> Iterator[Row]:
    """Yield the sweep over array depths at each model's tile-fill batch."""
    printed: dict[tuple[str, int], dict[str, float]] = {
        (QWEN_35B, 16): {"layer": 31.1, "D2D": 12.7, "dies": 49},
        (QWEN_35B, 24): {"used": 1.0},
        (QWEN_35B, 32): {"layer": 61.8, "D2D": 0.0, "dies": 25},
        (QWEN_397B, 16): {"D2D": 59.9, "shards": 8},
        (QWEN_397B, 24): {"used": 1.0},
        (QWEN_397B, 32): {"D2D": 30.3, "shards": 4, "dies": 289},
        (QWEN_397B, 48): {"dies": 193},
        (GLM, 16): {"shards": 0},
        (GLM, 32): {"D2D": 37.6, "dies": 543},
        (GLM, 48): {"dies": 362},
    }
    for name in POOLS:
        model, node, _ = _pool(name)
        batch = reduction.tile_fill_batch(model, node)
        for depth in reduction.array_depths(model, node, batch, weight_bytes=ffn_bytes(model)):
            kilo = depth.columns // 1024
            known = printed.get((name, kilo), {})
            at = f"{name}, {kilo}K columns"
            if not depth.shards:
                yield Row(
                    "Figure 8", f"{at}: shards", 0, known.get("shards"), note="no slice fits, as published"
                )
                continue
            yield Row("Figure 8", f"{at}: layer", depth.layer_s / _US, known.get("layer"), "us")
            yield Row("Figure 8", f"{at}: D2D", depth.package_bytes_per_s / _GB, known.get("D2D"), "GB/s")
            yield Row("Figure 8", f"{at}: shards", depth.shards, known.get("shards"))
            yield Row("Figure 8", f"{at}: used columns", depth.utilization, known.get("used"))
            yield Row("Figure 8", f"{at}: dies", depth.dies, known.get("dies"))


def penalties() -> Iterator[Row]:
    """Yield D2D of the reversed order of reduction over the matched one (section V-C).

    Qwen3.5-35B has one shard per expert at 32K columns and nothing to send; its penalty is that at 16K.
    """
    for name, columns, printed in ((GLM, 32768, 5.7), (QWEN_35B, 16384, 5.7), (QWEN_397B, 32768, 2.7)):
        model, node, _ = _pool(name)
        ours = reduction.order_penalty(model, node.resized(columns=columns))
        yield Row(
            "Section V-C", f"{name}, {columns // 1024}K columns: tp-first over ep-first", ours, printed, "x"
        )
    model, node, _ = _pool(GLM)
    batch = reduction.tile_fill_batch(model, node)
    for order, printed in zip(reduction.ORDERS, (37.6, 213.1), strict=True):
        demand = reduction.demands(model, node, batch, order)[1]
        yield Row("Section V-C", f"{GLM}: D2D, {order}", demand.bytes_per_s / _GB, printed, "GB/s")


def main() -> None:
    """Print all tables, and the largest error of each."""
    from .rexpert_routed import fetch_table, routed_rows

    found = rows() + routed_rows()
    print(text(found))
    print(fetch_table())
    print()
    for table in dict.fromkeys(row.table for row in found):
        print(worst(table, found))


_SCALE: Final = {"G": 1e9, "T": 1e12, "P": 1e15}


def _pool(name: str) -> tuple[MoEModel, Node, Platform]:
    platform = load_platform(POOLS[name])
    assert platform.nearmem is not None
    return load_model(name), platform.nearmem.node, platform


def _gpu(name: str) -> Gpu:
    """A GPU credited with its full rates and no launch cost, as ReXpert does (section VI)."""
    gpu = load_platform(name).gpu
    assert gpu is not None
    return replace(gpu, memory_efficiency=1.0, compute_efficiency=1.0, kernel_s=0.0)


def _step(name: str, batch: int, context: int) -> DecodeStep:
    return decode_step(load_model(name), batch=batch, context=context, union=UNIONS[name, batch])


def _stages(name: str, batch: int, context: int) -> disaggregation.Stages:
    _, node, platform = _pool(name)
    assert platform.nearmem is not None
    assert platform.gpu is not None
    pool = platform.nearmem
    step = _step(name, batch, context)
    return disaggregation.stages(step, node.package.die, pool.dies, platform.gpu, pool.gpus)


def _energy(model: MoEModel, node: Node, platform: Platform, reads: float) -> disaggregation.PoolEnergy:
    assert platform.nearmem is not None
    assert platform.gpu is not None
    step = decode_step(model, batch=64, context=1, union=reads)
    return disaggregation.pool_energy(
        step,
        node.package.die,
        platform.nearmem.dies,
        platform.gpu,
        platform.nearmem.gpus,
        router_bytes=float(model.router_params),
    )


if __name__ == "__main__":
    main()
