import dataclasses

import numpy as np
import pytest

from moeplan.placement.export.layout import Deployment, Layout
from moeplan.workload.model import load_model

from .maps import ROWS


@pytest.fixture
def model():
    """5 hidden layers, of which 1, 2 and 4 have 4 experts."""
    return dataclasses.replace(
        load_model("olmoe-1b-7b"),
        layers=5,
        experts=4,
        top_k=2,
        moe_layers=(1, 2, 4),
        dense_intermediate_size=8,
    )


@pytest.fixture
def layout():
    return Layout(np.array([ROWS[0], ROWS[1], ROWS[0]]), (1, 2, 4), experts=4, ranks=2)


@pytest.fixture
def deployment(model):
    return Deployment(model.name, model.layers, model.moe_layers, model.experts, ranks=2)
