"""Decode steps on GPUs for `moeplan simulate`: GPUs whose memory computes, and clusters with a placement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.errors import BadInput, UsageError
from .console import note, show, show_json, table, warn
from .parameters import Timing
from .traffic import Replay, read_traffic

if TYPE_CHECKING:
    from ..hardware.platform import Platform
    from ..placement.replicas.document import ReplicaPlan
    from ..schedule.cluster_decode import ClusterDecode
    from ..schedule.decode import Decoded, Policy
    from ..workload.load import Load
    from ..workload.model import MoEModel


@dataclass(frozen=True, eq=False)
class GpuJob:
    """What to simulate; `plan` for clusters, the other options for GPUs with PIM."""

    model: MoEModel
    platform: Platform
    trace: Path
    batch: int
    context: int
    steps: int
    seed: int
    plan: Path | None
    policy: str
    gpus: int
    tensor_parallel: int
    timing: Timing
    prefill: int
    prefill_tokens: int

    def load(self) -> Load:
        """Replay the trace."""
        load = read_traffic(self.trace, self.model, Replay(self.batch, self.steps, self.seed, 0.0)).profile
        note(load.note)
        missing = len(set(self.model.moe_layers) - set(load.layers))
        if missing:
            note(f"{missing} MoE layers are not in the trace: those that are stand for them")
        return load


def run_gpu_pim(job: GpuJob, json: bool) -> None:
    """Run a policy of GPU and PIM, beside all experts on the GPU, and print."""
    from ..placement.registry import find
    from ..schedule.decode import POLICIES, Policy, Prefill, Setup, decode

    if job.plan is not None:
        raise UsageError(
            f"experts of {job.platform.name} are placed in every step, not by a plan",
            where="--plan",
            fix="name a --policy",
        )
    known = {policy.solver: policy for policy in POLICIES}
    policy = known.get(job.policy) or Policy(find("partition", job.policy).name)
    setup = Setup(
        job.model, job.platform, gpus=job.gpus, tensor_parallel=job.tensor_parallel, context=job.context,
        prefill=Prefill(job.prefill, job.prefill_tokens), timing=job.timing,
    )  # fmt: skip
    load = job.load()
    done, beside = (decode(setup, load, each, seed=job.seed) for each in (policy, known["no_exp"]))
    if not done.memory.fits:
        warn(done.memory.shortage)
    if json:
        show_json(_pim_answer(job, policy, done, beside))
    else:
        _show_pim(job, policy, done, beside)


def _pim_answer(job: GpuJob, policy: Policy, done: Decoded, beside: Decoded) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "model": job.model.name,
        "platform": job.platform.name,
        "family": "gpu_pim",
        "batch": job.batch,
        "context": job.context,
        "steps": len(done.step_s),
        "policy": policy.solver,
        "layout": policy.layout,
        "timing": job.timing,
        "gpus": job.gpus,
        "tensor_parallel": job.tensor_parallel,
        "prefill": job.prefill,
        **_rates(done),
        **done.memory.figures,
        "pipeline_efficiency": None,
        "baseline": {"policy": "no_exp", **_rates(beside)},
    }


def _show_pim(job: GpuJob, policy: Policy, done: Decoded, beside: Decoded) -> None:
    rows = (
        (name, f"{d.tpot_s * 1e3:.3f}", f"{d.tokens_per_s_per_user:,.1f}", f"{d.tokens_per_s_per_gpu:,.0f}")
        for name, d in ((policy.solver, done), ("no_exp", beside))
    )
    title = f"{job.model.name} on {job.gpus} x {job.platform.name}, batch {job.batch}, {job.timing}"
    show(table(("policy", "TPOT ms", "tokens/s/user", "tokens/s/GPU"), rows, title=title))
    _show_parts(done.parts)


def run_cluster(job: GpuJob, json: bool) -> None:
    """Run a plan of replicas beside experts in order, and print."""
    from ..placement.plan import read_plan
    from ..placement.replicas.document import ReplicaPlan

    if job.plan is None:
        raise UsageError(
            f"experts of {job.platform.name} are placed by a plan",
            where="--plan",
            fix="make one with moeplan plan",
        )
    plan = read_plan(job.plan)
    if not isinstance(plan, ReplicaPlan):
        raise UsageError(
            f"plan {str(job.plan)!r} is of the family {plan.family}", allowed="replicas", fix="plan replicas"
        )
    mine, linear = _placed(job, plan)
    if not mine.memory.fits:
        warn(mine.memory.shortage)
    answer = {
        "model": job.model.name,
        "platform": job.platform.name,
        "family": "cluster",
        "batch": job.batch,
        "context": job.context,
        "steps": job.steps,
        "placement": f"plan by {plan.solver}",
        "ranks": mine.ranks,
        "tpot_s": mine.tpot_s,
        "tokens_per_s": mine.tokens_per_s,
        "parts": mine.parts,
        **mine.memory.figures,
        "pipeline_efficiency": None,
        "baseline": {"placement": "linear", "tpot_s": linear.tpot_s, "tokens_per_s": linear.tokens_per_s},
    }
    if json:
        show_json(answer)
        return
    rows = (
        (name, f"{d.tpot_s * 1e3:.3f}", f"{1.0 / d.tpot_s:,.1f}", f"{d.tokens_per_s / d.ranks:,.0f}")
        for name, d in (("plan", mine), ("linear", linear))
    )
    title = f"{job.model.name} on {mine.ranks} ranks of {job.platform.name}, batch {job.batch}"
    show(table(("placement", "TPOT ms", "tokens/s/user", "tokens/s/rank"), rows, title=title))
    _show_parts(mine.parts)


def _placed(job: GpuJob, plan: ReplicaPlan) -> tuple[ClusterDecode, ClusterDecode]:
    """The plan, and experts in order, on the same steps. Raises BadInput where plan and model differ."""
    from ..placement.replicas.document import decisions
    from ..placement.replicas.planning import baseline
    from ..placement.replicas.traffic import problems_of_traffic
    from ..schedule.cluster_decode import cluster_decode

    if plan.model is None or plan.model.experts != job.model.experts:
        raise BadInput(f"the plan was not made for {job.model.name}", fix="plan with --model and --trace")
    problems = problems_of_traffic(plan, job.model, job.platform, job.load(), None)
    placed = decisions(plan)
    linear = [baseline(problem, "linear").decision for problem in problems]
    mine = [placed[problem.layer] for problem in problems]
    run = [
        cluster_decode(
            job.model, job.platform, problems, [d for d in chosen if d is not None],
            batch=job.batch, context=job.context,
        )
        for chosen in (mine, linear)
    ]  # fmt: skip
    return run[0], run[1]


def _rates(done: Decoded) -> dict[str, Any]:
    return {
        "tpot_s": done.tpot_s,
        "tokens_per_s": done.tokens_per_s_per_user * done.batch,
        "tokens_per_s_per_user": done.tokens_per_s_per_user,
        "tokens_per_s_per_gpu": done.tokens_per_s_per_gpu,
        "parts": done.parts,
    }


def _show_parts(parts: dict[str, float]) -> None:
    rows = ((name.removesuffix("_s").replace("_", " "), f"{s * 1e6:,.1f}") for name, s in parts.items())
    show(table(("part", "us"), rows))
