"""Published figures that ship with the project: what the literature prints, and what our models say.

References are constants of the papers named in `source`, never computed here. ReXpert credits both sides
with full bandwidth, no launch cost and no stragglers (section VI), and so do these cases. A figure that is
printed with few digits and has to be met exactly is compared after rounding to them (`_as_printed`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

from ...hardware.energy import REXPERT, REXPERT_HBM_J_PER_BYTE
from ...hardware.gpu import Gpu
from ...hardware.nearmem import REXPERT_DIE_BUDGET, Die, Units, mfu, rexpert, tiles
from ...hardware.platform import load_platform
from ...workload.attention import decode_attention
from ...workload.model import MoEModel, load_model
from .case import Case
from .worked_example import worked_example_cases

QWEN_35B, QWEN_397B, GLM = "qwen3.5-35b-a3b", "qwen3.5-397b-a17b", "glm-5.2"
UNIONS = {(QWEN_35B, 8): 50.1, (QWEN_35B, 64): 168.6, (QWEN_397B, 8): 65.1, (QWEN_397B, 64): 250.7}
"""Experts that a batch activates per layer: ReXpert Tables VI and VII."""
DIES = {QWEN_35B: 25, QWEN_397B: 289, GLM: 543}
H20_TDP_W = 400.0
"""NVIDIA H20 product brief."""
GIB = 2.0**30


def published_cases() -> list[Case]:
    """Return every published figure with our prediction, in SI units or those of the table."""
    return list(
        chain(
            _machine_balance(),
            _hierarchy(),
            _array_depth(),
            _tiles(),
            _ffn_pool(),
            _attention_stage(),
            _weight_energy(),
            _die_budget(),
            worked_example_cases(),
        )
    )


def _machine_balance() -> Iterator[Case]:
    """Yield Table I: FLOP per byte F, tokens per weight read F / 2, and batches F / 2 x experts / top-k."""
    case = partial(Case, "machine balance", source="ReXpert Table I")
    ratios = {name: _fp8(name).experts / _fp8(name).top_k for name in DIES}
    for name, flop_per_byte, tokens, batches in (
        ("h20", 74, 37, (1184, 1894, 1184)),
        ("h100", 591, 295, (9452, 15123, 9452)),
    ):
        balance = _ideal(name).machine_balance("fp8")
        yield case(f"{name}: FLOP per byte", balance, flop_per_byte)
        yield case(f"{name}: tokens per read", balance / 2, tokens)
        for model, batch in zip(DIES, batches, strict=True):
            yield case(f"{name}: batch at the compute roof, {model}", balance / 2 * ratios[model], batch)


def _hierarchy() -> Iterator[Case]:
    """Yield Tables III and V, digit by digit, and the pools that hold a model's feed-forward weights."""
    node, die = rexpert(), _die()
    levels = {
        "unit (MiB, GB/s, GFLOPS)": (Units(die.core.unit, 1), 2**20, 1e9, 1e9, "4", "51.2", "400"),
        "core (MiB, GB/s, TFLOPS)": (die.core.units, 2**20, 1e9, 1e12, "64", "819.2", "6.4"),
        "die (GiB, TB/s, TFLOPS)": (die.units, GIB, 1e12, 1e12, "1.25", "16.4", "128"),
        "package (GiB, TB/s, TFLOPS)": (node.package.units, GIB, 1e12, 1e12, "5", "65.5", "512"),
        "node (GiB, TB/s, PFLOPS)": (node.units, GIB, 1e12, 1e15, "40", "524", "4.1"),
        "pool of 25 dies (GiB, TB/s, PFLOPS)": (die.pool(25), GIB, 1e12, 1e15, "31.25", "410", "3.2"),
    }
    table_3 = partial(_as_printed, "rexpert hierarchy", source="ReXpert Table III, section IV-B")
    for name, (units, size, rate, peak, memory, bandwidth, flop) in levels.items():
        yield table_3(f"{name}: memory", units.memory_bytes / size, memory)
        yield table_3(f"{name}: read bandwidth", units.read_bytes_per_s / rate, bandwidth)
        yield table_3(f"{name}: peak", units.flop_per_s / peak, flop)
        yield table_3(f"{name}: bytes per FLOP", units.bytes_per_flop, "0.128")
    pool = die.pool(25)
    table_5 = partial(_as_printed, "rexpert hierarchy", source="ReXpert Table V")
    for name, compute, bandwidth in (("h20", "10.8", "102"), ("h100", "1.6", "122")):
        gpu = _ideal(name)
        share = pool.read_bytes_per_s / gpu.memory_bandwidth_bytes_per_s
        yield table_5(f"{name}: dies of equal compute", _equal_compute(pool, gpu), compute)
        yield table_5(f"{name}: dies of equal bandwidth", share, bandwidth)
    ffn_bytes = {name: _fp8(name).routed_bytes + _fp8(name).shared_params for name in DIES}
    size = ffn_bytes[QWEN_35B] / GIB
    yield Case("rexpert hierarchy", f"{QWEN_35B}: FFN weights (GiB)", size, 30.1, "ReXpert Table V")
    for name, kilo, dies in (
        *((name, 32, dies) for name, dies in DIES.items()),
        (QWEN_35B, 16, 49),
        (QWEN_397B, 48, 193),
        (GLM, 48, 362),
    ):
        source = "ReXpert Table XI; section V-D"
        predicted = _die(kilo).dies_for(ffn_bytes[name])
        yield Case("rexpert hierarchy", f"{name}: dies at {kilo}K columns", predicted, dies, source)


def _array_depth() -> Iterator[Case]:
    """Yield section V-D: columns per 128-wide slice, shards, and time to stream a shard.

    Both published times lie 0.36 to 0.38 us above columns x 2.5 ns, which equation 3 does not explain; they
    are a model of their own, and the shorter one is missed by 1.2 %.
    """
    case = partial(Case, "rexpert array depth", source="ReXpert section V-D")
    fold = {
        (name, kilo): _die(kilo).core.unit.fold(_fp8(name).hidden_size, _fp8(name).expert_intermediate_size)
        for name in DIES
        for kilo in (16, 24, 32, 48)
        if (name, kilo) != (GLM, 16)  # "cannot map at 16K"
    }
    for kilo, us in ((32, 61.8), (16, 31.1)):
        seconds, name = fold[QWEN_35B, kilo].seconds, f"{QWEN_35B}: layer at {kilo}K columns"
        yield Case("rexpert layer time", name, seconds, us * 1e-6, "ReXpert section V-D")
    yield case(f"{GLM}: columns of a slice", fold[GLM, 32].columns / fold[GLM, 32].slices, 18432)
    for name, kilo, shards in ((QWEN_35B, 32, 1), (QWEN_397B, 32, 4), (QWEN_397B, 16, 8)):
        yield case(f"{name}: shards at {kilo}K columns", fold[name, kilo].shards, shards)
    for name, long, short in ((QWEN_397B, 32, 16), (QWEN_397B, 48, 32), (GLM, 48, 32)):
        ratio = fold[name, long].seconds / fold[name, short].seconds
        yield case(f"{name}: layer at {long}K over {short}K columns", ratio, 2.0)
    for name in (QWEN_35B, QWEN_397B):
        yield case(f"{name}: utilization at 24K columns", fold[name, 24].utilization, 1.0)


def _tiles() -> Iterator[Case]:
    """Yield the roofline caps of section IV-D and the hot queue of section IV-C."""
    case = partial(Case, "rexpert tiles", source="ReXpert sections IV-C and IV-D")
    unit = _die().core.unit
    yield case("balance (FLOP per byte)", unit.balance_flop_per_byte, 7.8125)
    for width, cap in ((1, 0.256), (2, 0.512), (4, 1.0)):
        yield case(f"roofline cap at width {width}", unit.roofline_cap(width), cap)
    jobs = tiles([[40, 1, 1, 1]], unit.tile_tokens)
    for broadcast, rounds, occupancy in ((False, 10, 0.325), (True, 4, 0.8125)):
        one = mfu(43, jobs, unit.tile_tokens, broadcast=broadcast)
        how = "broadcast" if broadcast else "direct"
        yield case(f"hot queue, {how}: rounds", one.rounds, rounds)
        yield case(f"hot queue, {how}: occupancy", one.occupancy, occupancy)
    yield case("hot queue: ideal MFU", mfu(43, jobs, unit.tile_tokens, broadcast=False).ideal, 0.83)


def _ffn_pool() -> Iterator[Case]:
    """Yield the time per token of the feed-forward pools, in section VII-A, Tables VIII and XI."""
    case = partial(Case, "rexpert ffn pool", source="ReXpert section VII-A, Tables VIII and XI")
    for (name, batch), us in zip(UNIONS, (1.93, 0.81, 1.30, 0.63), strict=True):
        yield case(f"{name}, B {batch}: ReXpert", _pool_s(_pool(name), name, batch), us * 1e-6)
    pool = _pool(QWEN_35B)
    for gpu, published in (("h20", {8: 18.26, 64: 7.67}), ("h100", {8: 145.8, 64: 61.25})):
        for batch, us in published.items():
            yield case(f"{QWEN_35B}, B {batch}: {gpu} of equal compute", _gpu_pool_s(gpu, batch), us * 1e-6)
    base_s = _gpu_pool_s("h20", 8)
    yield case("H20 over ReXpert", base_s / _pool_s(pool, QWEN_35B, 8), 9.5)
    yield case("H100 over ReXpert", _gpu_pool_s("h100", 8) / _pool_s(pool, QWEN_35B, 8), 75.6)
    for factor, ratio in ((0.5, 4.7), (2.0, 18.9)):
        unit = replace(pool.unit, column_s=pool.unit.column_s / factor)
        scaled_s = _pool_s(Units(unit, pool.count), QWEN_35B, 8)
        yield case(f"H20 over ReXpert, ReRAM bandwidth x {factor}", base_s / scaled_s, ratio)


def _attention_stage() -> Iterator[Case]:
    """Yield t_attn of Table XI: cached keys and values, and projections once per step, as bytes over H20s.

    Three habits of the table are followed here and nowhere else. Every layer of Qwen3.5 reads a growing
    cache and has no output gate (in the checkpoint three of four are linear, and the rest are gated);
    GLM-5.2 caches 2048 bytes per MoE layer and token (not printed: the difference between its rows);
    and projections never meet the compute roof, which at B = 64 they would on H20s (37 tokens per read).
    """
    published = {
        QWEN_35B: (6.06, 33.2, 4.15, 31.3),
        QWEN_397B: (1.57, 5.10, 0.64, 4.16),
        GLM: (2.30, 6.99, 0.87, 5.56),
    }
    for name, times in published.items():
        model = _fp8(name)
        habit = replace(model.attention, linear_layers=(), index_layers=(), output_gate=False)
        model = replace(model, attention=habit)
        h20s = _equal_compute(_pool(name), _ideal("h20"))
        for (batch, kilo), us in zip(((8, 4), (8, 32), (64, 4), (64, 32)), times, strict=True):
            tokens = kilo * 1024
            work = decode_attention(model, [tokens] * batch, layers=model.moe_layers, cache_element_bytes=1.0)
            glm_bytes = 2048.0 * len(model.moe_layers) * tokens * batch
            seconds = _ideal("h20").attention_s(
                projection_bytes=work.weight_bytes / h20s,
                projection_flop=0.0,
                cache_bytes=(glm_bytes if name == GLM else work.cache_read_bytes) / h20s,
                cache_flop=0.0,
                projection_dtype="fp8",
                cache_dtype="fp8",
            )
            label = f"{name}, B {batch}, context {kilo}K"
            yield Case("rexpert attention stage", label, seconds / batch, us * 1e-6, "ReXpert Table XI")


def _weight_energy() -> Iterator[Case]:
    """Yield Table VII: weights that 64 tokens move, and what they cost."""
    case = partial(Case, "rexpert weight energy", source="ReXpert Table VII")
    model = _fp8(QWEN_35B)
    moved, per_job = (len(model.moe_layers) * reads * model.expert_bytes / 64 for reads in (168.6, 213.5))
    yield case("weights moved per token (MB)", moved / 1e6, 331)
    yield case("weights moved without pooling (MB)", per_job / 1e6, 420)
    from_reram = REXPERT.energy(read_bytes=moved, flop=0.0).total_j
    yield case("from HBM (uJ per token)", moved * REXPERT_HBM_J_PER_BYTE * 1e6, 1326)
    yield case("from ReRAM (uJ per token)", from_reram * 1e6, 66)
    yield case("without pooling (uJ per token)", per_job * REXPERT.read_j_per_byte * 1e6, 84)
    yield case("HBM over ReRAM", moved * REXPERT_HBM_J_PER_BYTE / from_reram, 20)


def _die_budget() -> Iterator[Case]:
    """Yield Table XII and section VII-E: area and power of a die, power and energy of its pool."""
    case = partial(Case, "rexpert die budget", source="ReXpert Table XII, section VII-E")
    units, pool, gpu = _die().units, _pool(QWEN_35B), _ideal("h20")
    power_w = sum(part.power_w for part in REXPERT_DIE_BUDGET)
    areas = {part.name: part.area_mm2 for part in REXPERT_DIE_BUDGET}
    network = areas["core mesh"] + areas["die NoC"] + areas["D2D and other IO"]
    yield case("area (mm2)", sum(areas.values()), 400)
    yield case("network and D2D area (mm2)", network, 50)
    yield case("power (W)", power_w, 47)
    yield case("ReRAM read power (W)", units.read_bytes_per_s * REXPERT.read_j_per_byte, 3.3)
    yield case("PE power at MFU 0.38 (W)", 0.38 * units.flop_per_s * REXPERT.compute_j_per_flop, 19.5)
    pool_w, gpu_w = DIES[QWEN_35B] * power_w, _equal_compute(pool, gpu) * H20_TDP_W
    yield _as_printed(
        case.args[0], "pool of 25 dies (kW)", pool_w / 1e3, "1.2", source="ReXpert section VII-E"
    )
    yield case("H20s of equal compute (kW)", gpu_w / 1e3, 4.3)
    yield case("H20 over ReXpert, power", gpu_w / pool_w, 3.7)
    faster = _gpu_pool_s("h20", 8) / _pool_s(pool, QWEN_35B, 8)
    yield case("H20 over ReXpert, energy per token", faster * gpu_w / pool_w, 35)


def _die(kilo_columns: int = 32) -> Die:
    return rexpert(columns=kilo_columns * 1024).package.die


def _pool(name: str) -> Units:
    return _die().pool(DIES[name])


def _fp8(name: str) -> MoEModel:
    return replace(load_model(name), weight_bytes=1.0, other_weight_bytes=1.0)


def _ideal(name: str) -> Gpu:
    gpu = load_platform(name).gpu
    assert gpu is not None
    return replace(gpu, memory_efficiency=1.0, compute_efficiency=1.0, kernel_s=0.0)


def _equal_compute(pool: Units, gpu: Gpu) -> float:
    """Return how many GPUs have the peak of `pool`."""
    return pool.flop_per_s / gpu.peak("fp8")


def _ffn_step(name: str, batch: int) -> tuple[float, float]:
    """Return bytes and FLOP of one step: L (U P_e + router), and each token's routed experts (section VI)."""
    model = _fp8(name)
    layers = len(model.moe_layers)
    read = layers * UNIONS[name, batch] * model.expert_bytes + model.router_params
    return read, 2.0 * layers * batch * model.top_k * model.expert_params


def _pool_s(pool: Units, name: str, batch: int) -> float:
    return pool.roofline_s(*_ffn_step(name, batch)) / batch


def _gpu_pool_s(name: str, batch: int) -> float:
    gpu = _ideal(name)
    gpus = _equal_compute(_pool(QWEN_35B), gpu)
    read, flop = _ffn_step(QWEN_35B, batch)
    return gpu.roofline_s(read / gpus, flop / gpus, "fp8") / batch


def _as_printed(model: str, name: str, predicted: float, printed: str, *, source: str) -> Case:
    """Compare after rounding to the digits of `printed`."""
    decimals = len(printed.partition(".")[2])
    return Case(model, name, round(predicted, decimals), float(printed), source)
