"""The cut of a layer: what the paper says of it."""

from __future__ import annotations

from itertools import groupby

from moeplan.schedule.stages import OPERATORS, PHASES, STAGES, Side, Substrate


def test_seventeen_operators_and_five_phases():
    assert (len(OPERATORS), len(PHASES), len(STAGES)) == (17, 5, 22)
    assert len({stage.name for stage in STAGES}) == 22


def test_both_substrates_alternate():
    runs = [
        substrate for substrate, _ in groupby(s.substrate for s in STAGES if s.substrate != Substrate.NOC)
    ]
    assert runs == [Substrate.SRAM, Substrate.HBM] * 5 + [Substrate.SRAM]


def test_the_five_phases_lie_where_the_paper_has_them():
    names = [stage.name for stage in STAGES]
    for phase, before, after in (
        ("kv_all_gather", "qkv_projection", "attention_scores"),
        ("attention_all_gather", "attention_values", "output_projection"),
        ("dispatch", "router", "ffn1"),
        ("tp_communication", "ffn1", "ffn2"),
        ("output_gather", "ffn2", "combine"),
    ):
        assert names.index(before) < names.index(phase) < names.index(after)


def test_attention_runs_from_the_gather_of_its_inputs_to_its_weighted_sum():
    """HBM-PIM works for the experts' side alone; what carries attention's results waits for it."""
    names = [stage.name for stage in STAGES]
    first, last = names.index("kv_all_gather"), names.index("attention_values")
    assert [s.name for s in STAGES if s.side is Side.ATTENTION] == names[first : last + 1]
    assert not [s for s in STAGES if s.side is Side.ATTENTION and s.substrate is Substrate.HBM]
