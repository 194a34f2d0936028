"""Whole decode steps on GPUs whose memory computes (Sieve): all layers, policies beside each other.

Requests are split over `gpus` GPUs, experts too (data-parallel attention, expert-parallel experts); with
`tensor_parallel` t, every t GPUs share the attention of their requests. A layer ends when its busiest GPU
does. Its time is either the estimate max(T_comm, T_gpu, T_pim) of Sieve's eq. 1, or the makespan of its tasks
(section 6, figure 8); dense layers and the output matrix run on the GPU, layer after layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..common.errors import BadInput, UsageError
from ..placement.partition.layer import PartitionLayer, partition_layer
from ..placement.partition.problem import Decision, PartitionProblem
from ..placement.solve import solve
from ..workload.attention import decode_attention
from .gpu_memory import GpuMemory, decode_memory
from .layer import FixedWork, estimate, in_mode, layer_graph
from .timeline import list_schedule
from .work import Routed, busiest_gpu, layer_work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..hardware.gpu import Gpu
    from ..hardware.platform import Platform
    from ..placement.partition.layer import LayoutName
    from ..workload.load import Load
    from ..workload.model import MoEModel

Timing = Literal["estimate", "timeline"]
Choose = Callable[[PartitionProblem], Decision]
#: The layer's own parts of eq. 1, and what lies outside of MoE layers.
PARTS = ("comm_s", "gpu_s", "pim_s", "moe_layers_s", "dense_layers_s", "head_s")


@dataclass(frozen=True)
class Policy:
    """Who decides which experts run on the GPU, and how PIM holds them.

    `solver` names a solver of the family `partition`; `choose` replaces it by any function that gives the
    same kind of decision. `layout`: every expert over all channels (`tp`), or on one (`ep`).
    """

    solver: str
    layout: LayoutName = "tp"
    choose: Choose | None = None

    def decide(self, problem: PartitionProblem) -> Decision:
        """Return the partition of one layer in one step."""
        if self.choose is not None:
            return self.choose(problem)
        result = solve(problem, self.solver)
        assert result.decision is not None  # every partition is feasible
        return result.decision


#: As Sieve's evaluation lays them out (7.1), and the proven optimum of its estimate.
POLICIES = (
    Policy("no_exp"),
    Policy("all_exp"),
    Policy("pimoe", "ep"),
    Policy("sieve"),
    Policy("exact"),
)


@dataclass(frozen=True)
class Prefill:
    """Requests whose prompt is in the batch: `requests` of `tokens` tokens each, none cached before."""

    requests: int = 0
    tokens: int = 1024

    def __post_init__(self) -> None:
        if self.requests < 0 or self.tokens < 1:
            raise UsageError("prefill needs 0 or more requests of at least 1 token")


@dataclass(frozen=True)
class Setup:
    """What serves: `gpus` of the platform; `context` tokens before the first step, one more each step."""

    model: MoEModel
    platform: Platform
    gpus: int = 1
    tensor_parallel: int = 1
    context: int = 1024
    prefill: Prefill = Prefill()
    timing: Timing = "timeline"
    scheduler_s: float = 20e-6
    """Time that the decision takes, in timelines (Sieve section 5)."""

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.tensor_parallel < 1 or self.gpus % self.tensor_parallel:
            raise UsageError(
                f"{self.gpus} GPUs cannot be grouped by {self.tensor_parallel}", fix="choose a divisor"
            )
        if self.timing not in ("estimate", "timeline"):
            raise UsageError(f"unknown timing {self.timing!r}", allowed="estimate, timeline")
        if self.platform.gpu is None or self.platform.pim is None:
            raise BadInput(
                f"platform {self.platform.name!r} has not both GPU and PIM",
                fix="take one that has, for example b200-hbmpim",
            )

    @property
    def gpu(self) -> Gpu:
        """The GPU; a Setup always has one."""
        assert self.platform.gpu is not None
        return self.platform.gpu


@dataclass(frozen=True, eq=False)
class Decoded:
    """S decode steps under one policy.

    `step_s` [S]: TPOT of every step; `parts` by PARTS: means over steps, of which the last three add up to
    the mean TPOT and the first three are eq. 1's, summed over MoE layers; `batch` decoding requests. Times
    are those of GPUs with enough memory, whether or not `memory` fits.
    """

    step_s: NDArray[np.float64]
    parts: dict[str, float]
    batch: int
    gpus: int
    memory: GpuMemory

    @property
    def tpot_s(self) -> float:
        """Mean time per output token."""
        return float(self.step_s.mean())

    @property
    def tokens_per_s_per_user(self) -> float:
        """Interactivity: 1 / TPOT."""
        return 1.0 / self.tpot_s

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Throughput per GPU: batch / (TPOT x GPUs)."""
        return self.batch / (self.tpot_s * self.gpus)


def decode(setup: Setup, load: Load, policy: Policy, *, seed: int = 0) -> Decoded:
    """Run the steps of `load` through all decoding layers.

    A MoE layer whose routing was not recorded takes that of a recorded one, in turn. `seed` draws the tokens
    of prompts from the recorded ones of the same layer. Raises UsageError where experts or requests cannot be
    split evenly over the GPUs, BadInput where load and model do not belong together.
    """
    model = setup.model
    if load.num_experts != model.experts or load.top_k != model.top_k:
        raise BadInput(
            f"the load has top-{load.top_k} of {load.num_experts} experts, "
            f"{model.name} top-{model.top_k} of {model.experts}"
        )
    layers = _Layers(setup, load, policy, np.random.default_rng(seed))
    decoding = model.attention.cross_layers or tuple(range(model.layers))
    moe = [layer for layer in decoding if layer in model.moe_layers]
    steps, sums = np.zeros(load.steps), dict.fromkeys(PARTS, 0.0)
    for step in range(load.steps):
        contexts = [setup.context + step + 1] * (load.batch // setup.gpus)
        done = [layers.run(step, layer, index, contexts) for index, layer in enumerate(moe)]
        dense_s = sum(_dense_s(setup, layer, contexts) for layer in decoding if layer not in moe)
        head_s = _head_s(setup, len(contexts))
        moe_s = sum(layer.total_s for layer in done)
        steps[step] = moe_s + dense_s + head_s
        values = (
            sum(layer.comm_s for layer in done), sum(layer.gpu_s for layer in done),
            sum(layer.pim_s for layer in done), moe_s, dense_s, head_s,
        )  # fmt: skip
        sums = {name: sums[name] + value for name, value in zip(PARTS, values, strict=True)}
    steps.flags.writeable = False
    parts = {name: value / load.steps for name, value in sums.items()}
    return Decoded(steps, parts, load.batch, setup.gpus, decode_memory(setup, load.batch, load.steps))


@dataclass(frozen=True)
class _Layer:
    """One MoE layer in one step: its time, and the parts of eq. 1."""

    total_s: float
    comm_s: float
    gpu_s: float
    pim_s: float


class _Layers:
    """MoE layers under one policy; equal questions are answered once."""

    def __init__(self, setup: Setup, load: Load, policy: Policy, rng: np.random.Generator) -> None:
        self._setup, self._load, self._policy = setup, load, policy
        self._posed: dict[int, PartitionLayer] = {}
        self._known: dict[tuple[object, ...], _Layer] = {}
        count = setup.prefill.requests * setup.prefill.tokens
        if count % setup.gpus:
            raise UsageError(
                f"{count} tokens of prompts cannot be split evenly over {setup.gpus} GPUs",
                fix="choose prompts whose tokens are a multiple",
            )
        self._prompts = rng.integers(load.steps * load.batch, size=count)

    def run(self, step: int, layer: int, index: int, contexts: list[int]) -> _Layer:
        """Return one layer (absolute id, the `index`-th of the MoE layers) in one step."""
        load = self._load
        recorded = load.layers.index(layer) if layer in load.layers else index % len(load.layers)
        key = (step, recorded, *_kind(self._setup.model, layer))
        if key not in self._known:
            self._known[key] = self._run(step, layer, recorded, contexts)
        return self._known[key]

    def _run(self, step: int, layer: int, recorded: int, contexts: list[int]) -> _Layer:
        setup = self._setup
        routed = busiest_gpu(self._chosen(step, recorded), setup.model, setup.platform, setup.gpus)
        posed = self._pose(layer, routed)
        shared_s = _all_reduce_s(setup, routed.batch)
        problem = posed.problem(
            routed.tokens,
            attention_s=posed.attention_s(contexts),
            comm_s=sum(routed.exchange) + shared_s,
            batch=routed.batch,
        )
        prompt_s = _prompt_attention_s(setup, layer)
        saved_s = _sharded_weights_s(setup, layer)
        problem = replace(problem, coefficients=_with(problem.coefficients, prompt_s, -saved_s))
        decision = self._policy.decide(problem)
        times = problem.times(decision)
        if setup.timing == "estimate":
            return _Layer(times.total_s, times.comm_s, times.gpu_s, times.pim_s)
        work = layer_work(posed, problem, routed, decision.on_gpu, scheduler_s=setup.scheduler_s)
        fixed = _with_attention(work.fixed, prompt_s + shared_s - saved_s)
        graph = in_mode(layer_graph(replace(work, fixed=fixed)), "overlapped")
        return _Layer(list_schedule(graph).makespan_s, *estimate(graph))

    def _pose(self, layer: int, routed: Routed) -> PartitionLayer:
        if layer not in self._posed:
            self._posed[layer] = partition_layer(
                self._setup.model,
                self._setup.platform,
                layer=layer,
                layout=self._policy.layout,
                experts=routed.experts.size,
            )
        return self._posed[layer]

    def _chosen(self, step: int, recorded: int) -> NDArray[np.int16]:
        """Experts of the batch and of all prompts, `[B + P, K]`, each GPU's share of both together."""
        rows = self._load.experts[step, :, recorded]
        if not self._prompts.size:
            return rows
        steps, slots = np.divmod(self._prompts, self._load.batch)
        prompts = self._load.experts[steps, slots, recorded]
        gpus, top_k = self._setup.gpus, rows.shape[1]
        if len(rows) % gpus:
            raise UsageError(
                f"{len(rows)} requests cannot be split evenly over {gpus} GPUs", fix="choose a divisor"
            )
        both = (rows.reshape(gpus, -1, top_k), prompts.reshape(gpus, -1, top_k))
        return np.concatenate(both, axis=1).reshape(-1, top_k)


def _kind(model: MoEModel, layer: int) -> tuple[bool, ...]:
    """What attention of a layer is: layers of one kind take the same time on the same routing."""
    shape = model.attention
    return tuple(layer in part for part in (shape.linear_layers, shape.sliding_layers, shape.index_layers))


def _with(coefficients: NDArray[np.float64], compute_s: float, memory_s: float) -> NDArray[np.float64]:
    """Add time to the GPU's computing and memory traffic that the partition does not change."""
    changed = coefficients.copy()
    changed[2] = max(0.0, changed[2] + memory_s)
    changed[3] += compute_s
    changed.flags.writeable = False
    return changed


def _with_attention(fixed: FixedWork, extra_s: float) -> FixedWork:
    return replace(fixed, projections_s=max(0.0, fixed.projections_s + extra_s))


def _prompt_attention_s(setup: Setup, layer: int) -> float:
    """Scores and weighted sums of a GPU's share of the prompts, which the GPU computes.

    A token of a prompt attends to all before it and to itself: the FLOP are those of decoding it there.
    """
    prefill = setup.prefill
    if not prefill.requests:
        return 0.0
    contexts = np.arange(1, prefill.tokens + 1)
    encoder = 1 if setup.model.attention.cross_layers else 0
    work = decode_attention(setup.model, contexts, layers=[layer], encoder_tokens=encoder)
    return setup.gpu.roofline_s(0.0, prefill.requests * work.cache_flop / setup.gpus, "bf16")


def _sharded_weights_s(setup: Setup, layer: int) -> float:
    """What a GPU saves when it reads one t-th of attention's weights; tokens and heads balance out."""
    if setup.tensor_parallel == 1:
        return 0.0
    encoder = 1 if setup.model.attention.cross_layers else 0
    work = decode_attention(setup.model, [1], layers=[layer], encoder_tokens=encoder)
    return setup.gpu.roofline_s(work.weight_bytes * (1.0 - 1.0 / setup.tensor_parallel), 0.0, "bf16")


def _all_reduce_s(setup: Setup, tokens: int) -> float:
    """Sum of attention's outputs over t GPUs: 2 (t - 1) / t of the group's vectors over one NVLink."""
    t, model, gpu = setup.tensor_parallel, setup.model, setup.gpu
    if t == 1:
        return 0.0
    group_bytes = t * tokens * model.hidden_size * model.activation_bytes
    return gpu.kernel_s + 2.0 * (t - 1) / t * group_bytes / gpu.nvlink_bytes_per_s


def _dense_s(setup: Setup, layer: int, contexts: list[int]) -> float:
    """A layer without experts: attention (cache on PIM), then its feed-forward block, one after the other."""
    model, gpu = setup.model, setup.gpu
    tokens = len(contexts) + setup.prefill.requests * setup.prefill.tokens // setup.gpus
    encoder = 1 if model.attention.cross_layers else 0
    work = decode_attention(model, [1] * tokens, layers=[layer], encoder_tokens=encoder)
    dtype = gpu.data_type(model.other_weight_bytes, model.activation_bytes)
    weights_bytes = work.weight_bytes / setup.tensor_parallel + work.activation_bytes
    projections_s = gpu.roofline_s(weights_bytes, work.projection_flop, dtype)
    block = model.expert_matrices * model.hidden_size * model.dense_intermediate_size
    moved = block * model.other_weight_bytes + 2 * tokens * model.hidden_size * model.activation_bytes
    block_s = gpu.roofline_s(moved, 2.0 * tokens * block, dtype)
    cached_s = _attention_on_pim_s(setup, layer, contexts)
    extra_s = _prompt_attention_s(setup, layer) + _all_reduce_s(setup, tokens)
    return 3 * gpu.kernel_s + projections_s + cached_s + extra_s + block_s


def _attention_on_pim_s(setup: Setup, layer: int, contexts: list[int]) -> float:
    from ..placement.partition.costs import attention_on_pim_s

    return attention_on_pim_s(setup.model, setup.platform, contexts, layer)


def _head_s(setup: Setup, tokens: int) -> float:
    """The output matrix, once per GPU, for the tokens that it generates."""
    model, gpu = setup.model, setup.gpu
    params = model.vocab_size * model.hidden_size
    return gpu.kernel_s + gpu.roofline_s(params * model.activation_bytes, 2.0 * tokens * params, "bf16")
