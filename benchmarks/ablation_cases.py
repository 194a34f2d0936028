"""Models on SPIMOE and on an A100 for the ablation: synthetic routing, placements, and their figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..hardware.platform import load_platform
from ..placement.channels.problem import Decision, Settings, channel_problem
from ..placement.partition.costs import GpuWork
from ..placement.partition.layer import partition_layer
from ..placement.result import Budget
from ..placement.solve import solve
from ..schedule.gpu_decode import gpu_decode, routed_experts_s
from ..schedule.spimoe import Features
from ..schedule.spimoe_run import Outcome, Placement, Traffic, place, prepare, simulate
from ..workload.model import load_model
from ..workload.pruning import with_rank_weights
from ..workload.synthetic import synthesize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..hardware.platform import Platform
    from ..schedule.gpu_decode import Experts, GpuDecode
    from ..workload.model import MoEModel
    from ..workload.pruning import PruningSettings

PLATFORM, GPU = "spimoe-4x8", "a100-80g"
EP, OURS = "ep", "spimoe"
LAYERS = 4
"""MoE layers that are drawn and run; their mean stands for all."""
STEPS, PROFILE_STEPS = 6, 32
BUDGET = Budget(time_s=None, iterations=2000)
RANK_RATIO = 0.8
"""Synthetic routing has no weights: the i-th choice is taken to weigh RANK_RATIO**i."""
PLAIN = Features(partition="none", sparse=None, eviction=None)
"""No pipeline, all tokens attended to and kept."""


@dataclass(frozen=True, eq=False)
class Case:
    """A model at a batch, with the placements of its first drawn layers on the published machine."""

    name: str
    batch: int
    layout: Literal["rows", "best"] = "rows"
    _placements: dict[str, Placement] = field(default_factory=dict)

    @cached_property
    def model(self) -> MoEModel:
        """All layers."""
        return load_model(self.name)

    @cached_property
    def platform(self) -> Platform:
        """The published machine."""
        return load_platform(PLATFORM)

    @cached_property
    def traffic(self) -> Traffic:
        """Requests of 128 tokens, half of them for the planner; the same ones for every layout."""
        drawn = dataclasses.replace(self.model, moe_layers=self.model.moe_layers[-LAYERS:])
        tokens = max(4096, 2 * self.batch * STEPS, 2 * self.batch * 16)
        trace = synthesize(drawn, tokens=tokens, seed=0)
        return prepare(
            with_rank_weights(trace, RANK_RATIO), batch=self.batch, steps=STEPS, profile_steps=PROFILE_STEPS
        )

    def placement(self, solver: str = OURS) -> Placement:
        """Planned on the profile part."""
        if solver not in self._placements:
            self._placements[solver] = place(
                self.model,
                self.platform,
                self.traffic.planned.load,
                solver,
                budget=BUDGET,
                settings=Settings(layout=self.layout, resample=0),
            )
        return self._placements[solver]

    def run(
        self,
        context: int,
        features: Features | None = None,
        *,
        solver: str = OURS,
        ring: bool = True,
        pruning: PruningSettings | None = None,
        platform: Platform | None = None,
    ) -> Outcome:
        """Decode steps; with another `platform` of the same grid the experts stay where they are."""
        placement = self.placement(solver)
        if platform is not None:
            placement = _posed_on(placement, self.model, platform, self.traffic)
        return simulate(
            self.model,
            platform or self.platform,
            self.traffic,
            placement,
            context,
            features=features,
            ring=ring,
            pruning=pruning,
        )

    def gpu(self, context: int, experts: Experts = "grouped") -> GpuDecode:
        """The A100 on the same choices."""
        counts = self.traffic.simulated.load.counts()
        return gpu_decode(self.model, load_platform(GPU), counts, [context] * self.batch, experts=experts)

    def gpu_s(self, context: int, experts: Experts = "grouped") -> float:
        """Its TPOT."""
        return self.gpu(context, experts).total_s

    def experts_s(self, solver: str) -> float:
        """Mean J of the simulated steps and layers: channels and network."""
        load, placement = self.traffic.simulated.load, self.placement(solver)
        return float(
            np.mean(
                [
                    channel_problem(
                        self.model, self.platform, load, layer, settings=placement.settings
                    ).evaluate(placement.decisions[layer]).total_s
                    for layer in load.layers
                ]
            )
        )  # fmt: skip

    def gpu_experts_s(self) -> float:
        """The same work as one grouped GEMM a layer on the A100."""
        gpu = load_platform(GPU).gpu
        assert gpu is not None
        counts = self.traffic.simulated.load.counts()
        return float(np.mean([routed_experts_s(self.model, gpu, row) for step in counts for row in step]))

    def pimoe_s(self) -> Mapping[str, float]:
        """PIMoE on the same channels with an A100 beside them, as Sieve describes it.

        Experts live on one site each; the most popular ones of the busiest site go to the GPU until it is
        slower. `experts_s` is max(GPU, PIM), which is what PIMoE looks at; `network_s` is J_noc of that
        placement, were the results to travel like SPIMOE's; `gpu_share` are tokens on the GPU.
        """
        placement, load = self.placement(EP), self.traffic.simulated.load
        machine = dataclasses.replace(self.platform, gpu=load_platform(GPU).gpu)
        counts, times, share, network = load.counts(), [], [], []
        for index, layer in enumerate(load.layers):
            token_s = float(placement.problems[layer].tables.token_s[0])
            posed = partition_layer(self.model, machine, layer=layer, layout="ep")
            posed = dataclasses.replace(
                posed,
                gpu=dataclasses.replace(posed.gpu, work=GpuWork()),
                pim_model=partial(_serial_s, token_s),
            )
            for step in counts[:, index]:
                problem = posed.problem(step)
                found = solve(problem, "pimoe").decision
                assert found is not None
                times.append(problem.evaluate(found).total_s)
                share.append(step[found.on_gpu].sum() / step.sum())
            cost = channel_problem(
                self.model, self.platform, load, layer, settings=placement.settings
            ).evaluate(placement.decisions[layer])
            network.append(cost.total_s - cost.parts["dram_s"])
        return {
            "experts_s": float(np.mean(times)),
            "network_s": float(np.mean(network)),
            "gpu_share": float(np.mean(share)),
        }


def _serial_s(token_s: float, tokens: int) -> NDArray[np.float64]:
    """Seconds of 0 to `tokens` tokens, one after the other."""
    return token_s * np.arange(tokens + 1.0)


@cache
def case(name: str, batch: int, layout: Literal["rows", "best"] = "rows") -> Case:
    """Every case is planned once."""
    return Case(name, batch, layout)


def _posed_on(placement: Placement, model: MoEModel, platform: Platform, traffic: Traffic) -> Placement:
    """The same groups of channels on a platform of the same grid."""
    problems = {
        layer: channel_problem(model, platform, traffic.planned.load, layer, settings=placement.settings)
        for layer in placement.problems
    }
    decisions = {layer: Decision(decision.group_of) for layer, decision in placement.decisions.items()}
    return dataclasses.replace(placement, problems=problems, decisions=decisions)


def half_duplex() -> Platform:
    """The published machine where the two directions of a link share its bandwidth."""
    from ..hardware.topology import mesh

    platform = load_platform(PLATFORM)
    old = platform.topology
    assert old is not None
    topology = mesh(
        old.rows,
        old.cols,
        link_bandwidth_bytes_per_s=float(old.link_bandwidth_bytes_per_s[0]),
        hop_latency_s=float(old.link_latency_s[0]),
        duplex="half",
    )
    return dataclasses.replace(platform, topology=topology)


def wide_port() -> Platform:
    """The published machine whose cores read their channels at full speed, 102.4 GB/s."""
    platform = load_platform(PLATFORM)
    assert platform.sram_pim is not None
    core = dataclasses.replace(platform.sram_pim, port_bytes_per_s=102.4e9)
    return dataclasses.replace(platform, sram_pim=core)
