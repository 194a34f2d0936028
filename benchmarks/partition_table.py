"""Tables on the GPU/PIM partition: policies on given loads, and over batch sizes against Sieve's findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..hardware.platform import load_platform
from ..placement.partition.compare import COMPARED, compare, load_problems
from ..placement.partition.layer import LAYOUTS, LayoutName, partition_layer
from ..workload.model import load_model
from ..workload.replay import replay
from ..workload.synthetic import SyntheticRouting, synthesize

if TYPE_CHECKING:
    from ..hardware.platform import Platform
    from ..placement.partition.compare import PolicyMeans
    from ..placement.partition.problem import PartitionProblem
    from ..workload.load import Load
    from ..workload.model import MoEModel

PLATFORM = "b200-hbmpim"
BATCHES = (1, 4, 16, 32, 64, 128, 256, 512)
#: Models and how many GPUs share their experts: Sieve section 7.1, and its example for small expert counts.
SYSTEMS = (("gpt-oss-120b", 4), ("qwen3.5-397b-a17b", 8), ("qwen3-30b-a3b", 1), ("mixtral-8x7b", 1))
#: Mixtral's experts are nearly equally popular (Jiang et al. 2024, arXiv 2401.04088, figure 7).
_EVEN = SyntheticRouting(
    skew=0.2, skew_spread=0.0, cold_tail=0.0, drift=0.1, persistence=0.2, coactivation=0.0
)
#: Seconds per column that a power budget leaves all-bank MACs: AttAcc's nCCDAB, 6 cycles of 0.769 ns.
_POWER_LIMITED_S = 4.614e-9
_LAYERS, _STEPS, _CONTEXT = 2, 4, 1024
_SAME = 1.01
_POLICIES = ("no_exp", "all_exp", "pimoe", "sieve", "exact")


@dataclass(frozen=True)
class SweepRow:
    """Means of every policy for one system, layout and batch size (of all its GPUs together)."""

    model: str
    gpus: int
    layout: LayoutName
    batch: int
    means: dict[str, PolicyMeans]

    def ratio(self, policy: str) -> float:
        """T_total of a policy over the optimum."""
        return self.means[policy].total_s / self.means["exact"].total_s

    def equals_sieve(self, policy: str) -> bool:
        """Tell whether a policy is within 1 % of Sieve's greedy."""
        return self.means[policy].total_s <= _SAME * self.means["sieve"].total_s


def policy_table(loads: Sequence[tuple[str, str, Load]], *, layout: LayoutName = "tp") -> str:
    """Markdown table of all policies on (label, model name, load), with attention over 1024 tokens."""
    platform = load_platform(PLATFORM)
    lines = [
        "| trace | batch | policy | total us | GPU us | PIM us | GPU experts | gap | / Sieve |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for label, name, load in loads:
        problems = load_problems(load_model(name), platform, load, layout=layout, context=_CONTEXT)
        means = compare(problems, COMPARED)
        sieve_s = next(row.total_s for row in means if row.policy == "sieve")
        for row in means:
            cells = [label, str(load.batch), row.policy]
            cells += [f"{seconds * 1e6:,.1f}" for seconds in (row.total_s, row.t_gpu_s, row.t_pim_s)]
            cells += [f"{row.gpu_experts:.1f}", f"{row.gap:.2%}", f"{row.total_s / sieve_s:.3f}"]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sweep(batches: Sequence[int] = BATCHES) -> Iterator[SweepRow]:
    """All policies on synthetic routing, for every system, layout and batch size."""
    platform = load_platform(PLATFORM)
    for name, gpus in SYSTEMS:
        whole = load_model(name)
        model = dataclasses.replace(whole, moe_layers=whole.moe_layers[:_LAYERS])
        routing = _EVEN if name == "mixtral-8x7b" else None
        trace = synthesize(model, tokens=max(batches) * _STEPS, seed=0, routing=routing)
        for layout in LAYOUTS:
            for batch in batches:
                load = replay(trace, batch=batch, steps=_STEPS, seed=0)
                means = compare(_of_all_gpus(model, platform, load, gpus, layout), _POLICIES)
                yield SweepRow(name, gpus, layout, batch, {row.policy: row for row in means})


def sweep_table(rows: Sequence[SweepRow]) -> str:
    """Markdown table of T_total over the optimum, and of where the optimum computes its experts."""
    lines = [
        "| model | GPUs | layout | batch | optimum us | NoExp | AllExp | PIMoE | Sieve | GPU experts |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        share = row.means["exact"].gpu_experts / max(row.means["no_exp"].gpu_experts, 1e-9)
        cells = [row.model, str(row.gpus), row.layout, str(row.batch)]
        cells.append(f"{row.means['exact'].total_s * 1e6:,.1f}")
        cells += [f"{row.ratio(policy):.3f}" for policy in ("no_exp", "all_exp", "pimoe", "sieve")]
        lines.append("| " + " | ".join([*cells, f"{share:.0%}"]) + " |")
    return "\n".join(lines)


def findings(rows: Sequence[SweepRow]) -> list[str]:
    """What the sweep says on each of Sieve's findings, in sentences: its own layout is tp, PIMoE's is ep."""
    said = []
    for name, gpus in SYSTEMS:
        mine = [row for row in rows if (row.model, row.layout) == (name, "tp")]
        theirs = {row.batch: row for row in rows if (row.model, row.layout) == (name, "ep")}
        last = mine[-1]
        all_exp = _leading(mine, "all_exp")
        no_exp = [str(row.batch) for row in mine if row.equals_sieve("no_exp")]
        worst = max(mine, key=lambda row: row.means["pimoe"].total_s / row.means["sieve"].total_s)
        hurt = worst.means["pimoe"].total_s / worst.means["sieve"].total_s
        own = theirs[last.batch].means["pimoe"].total_s / last.means["sieve"].total_s
        upto = f"up to batch {all_exp}" if all_exp else "at no batch"
        at = f"batch {', '.join(no_exp)}" if no_exp else "no batch"
        said.append(
            f"{name} on {gpus} GPU{'s' if gpus > 1 else ''}: AllExp is within 1 % of Sieve {upto} "
            f"(published: up to 16), NoExp at {at}; PIMoE takes up to {hurt:.2f} x Sieve's time in the "
            f"same layout (batch {worst.batch}), and {own:.2f} x in its own at batch {last.batch}."
        )
    return said


def explanations() -> list[str]:
    """Why PIM stops winning where it does, per model, in the layout over all channels."""
    platform = load_platform(PLATFORM)
    assert platform.pim is not None
    limited = dataclasses.replace(
        platform, pim=dataclasses.replace(platform.pim, mac_power_s=_POWER_LIMITED_S)
    )
    peak_bytes_per_s = _peak_bytes_per_s(platform)
    said = []
    for name, _ in SYSTEMS:
        model = load_model(name)
        free, bound = (partition_layer(model, machine) for machine in (platform, limited))
        token_s, limited_s = (float(layer.timing.snapshot.seconds[1]) for layer in (free, bound))
        roofline_s = model.expert_params * model.weight_bytes / peak_bytes_per_s
        expert_s = free.gpu.expert_s
        said.append(
            f"{name}: an expert costs the GPU {expert_s * 1e6:.1f} us, PIM {token_s * 1e6:.2f} us per token, "
            f"so that PIM wins up to {expert_s / token_s:.1f} tokens; its roofline is {roofline_s * 1e6:.2f} "
            "us, the rest is writing the input to every channel, turning rows over, filling them unevenly. "
            f"With {_POWER_LIMITED_S * 1e9:.1f} ns per column (power limit) it is {limited_s * 1e6:.2f} us."
        )
    return said


def _peak_bytes_per_s(platform: Platform) -> float:
    """Bytes per second that all banks read while they multiply."""
    assert platform.pim is not None
    assert platform.topology is not None
    banks = platform.topology.sites * platform.site_pseudo_channels * platform.pim.banks
    return banks * platform.pim.column_bytes / platform.pim.t_ccd_s


def _leading(rows: Sequence[SweepRow], policy: str) -> int:
    """Largest batch up to which a policy equals Sieve at every batch; 0: not even at the first."""
    last = 0
    for row in rows:
        if not row.equals_sieve(policy):
            break
        last = row.batch
    return last


def _of_all_gpus(
    model: MoEModel, platform: Platform, load: Load, gpus: int, layout: LayoutName
) -> Iterator[PartitionProblem]:
    """Every GPU's share of every layer and step: an equal part of the experts and of the requests.

    Tokens go to the GPUs of their experts and come back (dispatch and combine), except those that are there
    already: 1 of `gpus`.
    """
    assert platform.gpu is not None
    local, requests = model.experts // gpus, -(-load.batch // gpus)
    token_s = 2 * model.hidden_size * model.activation_bytes / platform.gpu.nvlink_bytes_per_s
    counts = load.counts()
    for index, layer in enumerate(load.layers):
        posed = partition_layer(model, platform, layer=layer, layout=layout, experts=local)
        attention_s = posed.attention_s([_CONTEXT] * requests)
        for step in counts[:, index]:
            for gpu in range(gpus):
                tokens = step[gpu * local : (gpu + 1) * local]
                comm_s = float(tokens.sum()) * (gpus - 1) / gpus * token_s
                yield posed.problem(tokens, attention_s=attention_s, comm_s=comm_s, batch=requests)
