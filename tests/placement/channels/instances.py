"""Small channel problems for tests, made from arrays alone, and a twin of their cost in plain Python."""

from __future__ import annotations

import numpy as np

from moeplan.hardware import noc
from moeplan.hardware.topology import Topology, mesh, star
from moeplan.placement.channels.groups import tiles
from moeplan.placement.channels.problem import ChannelProblem
from moeplan.placement.channels.tables import Tables, link_tables, ring_tables, slot_tables

HIDDEN, INNER, BYTES = 64, 48, 2.0
LINK, HOP_S = 1e9, 4e-9


def random_tokens(
    seed: int, steps: int, batch: int, experts: int, top_k: int, sigma: float = 1.0
) -> np.ndarray:
    """Skewed top-k choices `[S, B, K]` without repetition inside a token."""
    rng = np.random.default_rng(seed)
    scores = rng.gumbel(size=(steps, batch, experts)) + rng.normal(0.0, sigma, experts)
    return np.argsort(-scores, axis=2)[:, :, :top_k].astype(np.int16)


def grid(rows: int, cols: int, duplex: str = "full") -> Topology:
    return mesh(rows, cols, link_bandwidth_bytes_per_s=LINK, hop_latency_s=HOP_S, duplex=duplex)


def hub(sites: int) -> Topology:
    return star(sites, link_bandwidth_bytes_per_s=LINK, hop_latency_s=HOP_S)


def problem(
    tokens: np.ndarray,
    topology: Topology,
    experts: int,
    *,
    row_mode: bool = True,
    risk: float = 0.0,
    room: float = 100.0,
    held_out: ChannelProblem | None = None,
    overhead_s: float = 2e-7,
) -> ChannelProblem:
    """One layer. A token costs `1e-6 / t + overhead_s` on each of t sites; a site holds `room` experts."""
    groups = tiles(topology, topology.sites)
    links = link_tables(topology)
    token_bytes, inner_bytes = HIDDEN * BYTES, INNER * BYTES
    rings = ring_tables(
        topology, groups, links, row_mode=row_mode, token_bytes=token_bytes, inner_bytes=inner_bytes
    )
    factors = np.array(groups.factors, dtype=np.float64)
    tables = Tables(
        *slot_tables(tokens, experts),
        (np.arange(tokens.shape[1]) % topology.sites).astype(np.int32),
        groups.start, groups.sites, groups.factor_of, groups.factor_start,
        (1e-6 / factors + overhead_s)[groups.factor_of], (1000.0 / factors)[groups.factor_of],
        1000.0 * room, topology.kind != "star", token_bytes, *links, *rings,
    )  # fmt: skip
    return ChannelProblem(0, groups, tokens, tables, risk, f"test-{tokens.shape}-{tokens.sum()}", held_out)


def random_groups(problem: ChannelProblem, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, len(problem.groups), problem.experts).astype(np.int32)


def twin_parts(
    problem: ChannelProblem,
    tokens: np.ndarray,
    topology: Topology,
    group_of: np.ndarray,
    *,
    row_mode: bool = True,
) -> np.ndarray:
    """Step times by part `[S, 5]`, transfer by transfer through `hardware.noc`, without any shared state."""
    t = problem.tables
    members = [[int(c) for c in problem.groups.sites_of(int(g))] for g in group_of]
    parts = np.zeros((len(tokens), 5))
    for s, step in enumerate(tokens):
        counts = np.bincount(step[step >= 0], minlength=len(group_of))
        active = [e for e in range(len(group_of)) if counts[e]]
        load = np.zeros(topology.sites)
        for e in active:
            load[members[e]] += counts[e] * t.token_s[group_of[e]]
        parts[s, 0] = load.max()
        if not t.noc:
            continue
        homes = [b % topology.sites for b in range(len(step))]
        sends = [
            (homes[b], c)
            for b in range(len(step))
            for c in sorted({c for e in step[b] if e >= 0 for c in members[e]})
        ]
        parts[s, 1] = _round(topology, sends, t.token_bytes)
        parts[s, 2] = _collectives(topology, members, counts, active, t.token_bytes, row_mode)
        blocks: dict[int, float] = {}
        for e in active:
            blocks[members[e][0]] = blocks.get(members[e][0], 0.0) + counts[e] * t.token_bytes
        cores = sorted(blocks)
        parts[s, 3] = (
            noc.ring_all_gather_s(topology, cores, [blocks[c] for c in cores]) if len(cores) > 1 else 0.0
        )
        answered = [home for b, home in enumerate(homes) if (step[b] >= 0).any()]
        nearest = [min(cores, key=lambda c, h=home: (topology.hops[h, c], c)) for home in answered]
        parts[s, 4] = _round(topology, list(zip(nearest, answered, strict=True)), t.token_bytes)
    return parts


def _round(topology: Topology, pairs: list[tuple[int, int]], bytes_: float) -> float:
    moving = [pair for pair in pairs if pair[0] != pair[1]]
    if not moving:
        return 0.0
    sources, targets = zip(*moving, strict=True)
    return noc.transfers_s(topology, sources, targets, np.full(len(moving), bytes_)).total_s


def _collectives(
    topology: Topology,
    members: list[list[int]],
    counts: np.ndarray,
    active: list[int],
    token_bytes: float,
    row_mode: bool,
) -> float:
    """Link bytes of all collectives together, and the longest of their latencies."""
    load, latency_s = np.zeros(len(topology.link_bandwidth_bytes_per_s)), 0.0
    for e in active:
        ring, t = members[e], len(members[e])
        if t == 1:
            continue
        edges = [(ring[i], ring[(i + 1) % t]) for i in range(t)]
        message = counts[e] * (token_bytes if row_mode else INNER * BYTES) / t
        rounds = 2 * (t - 1) if row_mode else t - 1
        for edge in edges:
            for link in topology.route(*edge):
                load[link] += rounds * message
        longest = rounds * max(topology.hops[edge] for edge in edges) * HOP_S
        if not row_mode:
            for site in ring[1:]:
                for link in topology.route(site, ring[0]):
                    load[link] += counts[e] * token_bytes / t
            longest += max(topology.hops[site, ring[0]] for site in ring[1:]) * HOP_S
        latency_s = max(latency_s, longest)
    return float((load / topology.link_bandwidth_bytes_per_s).max() + latency_s)
