"""Tables on adaptive routing and sub-batches: what must hold on any trace, on a small synthetic one."""

from dataclasses import replace

import numpy as np
import pytest

from moeplan.benchmarks.pipeline_table import POLICIES, foretell, pipeline_rows, pipeline_table
from moeplan.benchmarks.pruning_table import KEEPS, pruning_rows, pruning_table
from moeplan.schedule.calibration import VARIANTS
from moeplan.workload.model import load_model
from moeplan.workload.pruning import with_phase, with_rank_weights
from moeplan.workload.synthetic import synthesize

NAME = "phi-mini-moe"


@pytest.fixture(scope="module")
def trace():
    model = load_model(NAME)
    few = replace(model, moe_layers=model.moe_layers[:2])
    return with_phase(with_rank_weights(synthesize(few, tokens=1024, seed=0), 0.5), 0.5)


def test_pruning_rows(trace):
    rows = list(pruning_rows(trace, NAME, 8, steps=3))
    assert [(row.variant, row.keep) for row in rows] == [(v, k) for v in VARIANTS for k in KEEPS]
    for row in rows:
        # weights are 2/3 and 1/3 everywhere: a dropped expert costs one third, where congestion takes the
        # larger one two
        dropped = 2.0 - row.experts_per_token
        assert 1.0 - dropped * 2.0 / 3.0 - 1e-6 <= row.kept_mass <= 1.0 - dropped / 3.0 + 1e-6
        assert row.speed_up >= 1.0
        assert 0.0 < row.cognitive_kept <= 1.0
    assert rows[2].speed_up >= rows[1].speed_up >= rows[0].speed_up


def test_pipeline_rows(trace):
    known = foretell(trace, NAME, 8, steps=4)
    assert known.true.shape == known.predicted.shape == (3, 2, 9, 9)
    rows = list(pipeline_rows(known, ratios=(0.5, 2.0)))
    assert [(row.ratio, row.policy) for row in rows] == [(r, p) for r in (0.5, 2.0) for p in POLICIES]
    for ratio in (0.5, 2.0):
        speed_up = {row.policy: row.speed_up for row in rows if row.ratio == ratio}
        assert speed_up["optimal"] >= max(speed_up.values())
        assert speed_up["optimal"] >= 1.0
    assert all(0.0 < row.efficiency <= 1.0 and 1.0 <= row.sub_batches <= 8.0 for row in rows)
    # no pipeline beats two substrates that are always busy
    assert max(row.speed_up for row in rows) <= 2.0


def test_tables_have_a_line_per_row(trace):
    lines = pruning_table([("small", NAME, trace)], batches=(8,)).splitlines()
    assert len(lines) == 2 + len(VARIANTS) * len(KEEPS)
    pipeline = pipeline_table([("small", NAME, trace)], batches=(8,)).splitlines()
    assert len(pipeline) == 2 + 1 + 1 + 2 + 3 * len(POLICIES)
    assert all(
        np.ptp([line.count("|") for line in part]) == 0 for part in (lines, pipeline[:3], pipeline[4:])
    )
