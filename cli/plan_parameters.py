"""The options of `moeplan plan`, by the panels of its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from . import parameters
from .traffic import SplitBy

_INPUT, _SEARCH, _OUTPUT = "What to plan", "How to search", "What to write"
_CHANNELS, _CORES, _REPLICAS = "On a PIM machine", "On a near-memory machine", "On a GPU cluster"

ModeName = Literal["auto", "row", "col", "direct", "broadcast"]
LayoutName = Literal["rows", "best"]

# What to plan.

Platform = Annotated[str, parameters.platform(_INPUT)]
Model = Annotated[str | None, parameters.model(_INPUT)]
Trace = Annotated[Path | None, parameters.trace(_INPUT)]
Batch = Annotated[int, parameters.batch(_INPUT)]
Steps = Annotated[int, parameters.steps(_INPUT)]
HeldOut = Annotated[
    str,
    typer.Option(
        metavar="SHARE|FILE",
        help="Share of the trace that no solver sees (0: nothing), or another trace of the model.",
        rich_help_panel=_INPUT,
    ),
]
Split = Annotated[SplitBy, parameters.split(_INPUT)]
Layers = Annotated[str | None, parameters.layers(_INPUT, what="Layers to plan")]
Risk = Annotated[
    float,
    typer.Option(help="Standard deviations over steps added to the mean.", rich_help_panel=_INPUT),
]

# On a PIM machine.

Mode = Annotated[
    ModeName | None,
    typer.Option(
        help="Channels: how the second matrix of an expert is split (auto, row, col). "
        "Cores: how jobs reach the units (direct, broadcast).",
        rich_help_panel=_CHANNELS,
    ),
]
Layout = Annotated[
    LayoutName,
    typer.Option(
        help="Whole outputs per bank (as published), or the fastest split over banks.",
        rich_help_panel=_CHANNELS,
    ),
]

# On a near-memory machine.

Side = Annotated[
    int | None,
    typer.Option(help="Units along the side of a core (default: the platform's).", rich_help_panel=_CORES),
]
Width = Annotated[
    int | None,
    typer.Option(help="Tokens of a job (default: the platform's tile).", rich_help_panel=_CORES),
]

# On a GPU cluster.

Load = Annotated[
    Path | None,
    typer.Option(help="Counts [L, E] or [S, L, E] (.npy) instead of a trace.", rich_help_panel=_REPLICAS),
]
Nodes = Annotated[int | None, parameters.nodes(_REPLICAS)]
RanksPerNode = Annotated[int | None, parameters.ranks_per_node(_REPLICAS)]
Slots = Annotated[
    int | None,
    typer.Option(
        min=1, help="Physical slots of a layer (default: one an expert).", rich_help_panel=_REPLICAS
    ),
]
Groups = Annotated[int, parameters.groups(_REPLICAS)]
IntraBandwidth = Annotated[
    str | None, typer.Option(help="Of one GPU inside its node: '450 GB/s'.", rich_help_panel=_REPLICAS)
]
InterBandwidth = Annotated[
    str | None, typer.Option(help="Of one GPU to other nodes: '50 GB/s'.", rich_help_panel=_REPLICAS)
]
SlotsPerRank = Annotated[
    str | None, typer.Option(help="Slots of every rank, as in 9,9,8,8.", rich_help_panel=_REPLICAS)
]
Speeds = Annotated[
    str | None, typer.Option(help="Relative speed of every rank, as in 1,1,0.9.", rich_help_panel=_REPLICAS)
]
Dispatch = Annotated[
    Literal["equal", "hash", "nearest", "fixed"],
    typer.Option(
        help="How tokens choose a replica: in turn, by hash (vLLM), nearest (SGLang static), or one "
        "fixed by source rank (vllm-ascend).",
        rich_help_panel=_REPLICAS,
    ),
]
Sources = Annotated[
    Literal["uniform", "slots"],
    typer.Option(
        help="Tokens come evenly from all ranks, or batch slot b from rank b modulo G.",
        rich_help_panel=_REPLICAS,
    ),
]
Duplicates = Annotated[
    bool, typer.Option(help="Allow two replicas of an expert on a rank.", rich_help_panel=_REPLICAS)
]
Drift = Annotated[
    float | None,
    typer.Option(
        help="Plan for the recorded windows as they are, and against this drift of log loads (0 to 0.5). "
        "Left out: estimated from the windows.",
        show_default=False,
        rich_help_panel=_REPLICAS,
    ),
]
TrafficWeight = Annotated[
    float, typer.Option(help="Weight on cross-node traffic.", rich_help_panel=_REPLICAS)
]
Tile = Annotated[
    int, typer.Option(min=1, help="Pad a replica's tokens to this number.", rich_help_panel=_REPLICAS)
]
Current = Annotated[
    Path | None,
    typer.Option(help="Placement that is there: a plan, or slots [L, R] (.npy).", rich_help_panel=_REPLICAS),
]
MaxMoves = Annotated[
    int | None, typer.Option(min=0, help="Slots of a layer that may change.", rich_help_panel=_REPLICAS)
]

# How to search.

Solver = Annotated[str, parameters.solver(_SEARCH)]
Budget = Annotated[
    str,
    typer.Option(
        help="Per layer: 2s, 500ms, 20000it, or 2s,20000it. Iterations repeat exactly.",
        rich_help_panel=_SEARCH,
    ),
]
Gap = Annotated[
    float, typer.Option(help="Stop a layer when this gap to the bound is proven.", rich_help_panel=_SEARCH)
]
SolverOptions = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Option of the solver; repeatable.", rich_help_panel=_SEARCH),
]
Seed = Annotated[int, parameters.seed("Of split, replay and search.", _SEARCH)]
Jobs = Annotated[int | None, parameters.jobs("Layers planned", _SEARCH)]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Memory of the whole plan, as '8 GiB': refused in advance where it does not fit.",
        rich_help_panel=_SEARCH,
    ),
]
Backend = Annotated[
    Literal["threads", "loky", "dask", "ray"],
    typer.Option(help="Where layers are planned; dask and ray are extras.", rich_help_panel=_SEARCH),
]
Address = Annotated[
    str,
    typer.Option(help="Of a Dask scheduler or Ray head (default: a local one).", rich_help_panel=_SEARCH),
]

# What to write.

Output = Annotated[Path, parameters.output("The plan.", _OUTPUT)]
Report = Annotated[Path | None, typer.Option(help="Also a report (.html).", rich_help_panel=_OUTPUT)]
Work = Annotated[
    Path | None,
    typer.Option(
        help="Folder of finished layers, until the plan is whole (default: beside the plan).",
        rich_help_panel=_OUTPUT,
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Plan finished layers anew.", rich_help_panel=_OUTPUT)]
Json = Annotated[bool, parameters.json(_OUTPUT)]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress bar and no table.", rich_help_panel=_OUTPUT)
]
