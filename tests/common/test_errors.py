"""Errors carry what a user needs, and survive worker processes."""

from __future__ import annotations

import pickle

import pytest

from moeplan.common import errors


def test_text_names_every_part_and_leaves_out_empty_ones():
    full = errors.BadInput("it is wrong", where="row 3", allowed="0..5", fix="mend it")
    assert str(full) == "it is wrong\n  where:   row 3\n  allowed: 0..5\nfix: mend it"
    assert str(errors.BadInput("it is wrong")) == "it is wrong"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.MoeplanError, 1),
        (errors.Contradiction, 1),
        (errors.UsageError, 2),
        (errors.BadInput, 3),
        (errors.ProvenInfeasible, 4),
        (errors.NothingFound, 5),
        (errors.MissingLibrary, 6),
    ],
)
def test_exit_codes_and_pickling(kind, code):
    error = kind("what", where="where", allowed="allowed", fix="fix")
    assert error.exit_code == code
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)


def test_did_you_mean():
    assert errors.did_you_mean("anealing", ["annealing", "ilp"]) == "did you mean 'annealing'?"
    assert errors.did_you_mean("zzz", ["ilp", "ep"]) == "use one of: ep, ilp"
