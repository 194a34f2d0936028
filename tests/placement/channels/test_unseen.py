"""Steps drawn for traffic to come."""

from __future__ import annotations

import numpy as np
import pytest

from moeplan.placement.channels.unseen import novelty, unseen_steps

from .instances import random_tokens


def test_novelty_by_hand():
    """Three slots, two experts; every slot has 4 choices: (4, 0), (4, 0), (2, 2).

    Left out, a slot of the first kind is foretold (6/8, 2/8) and the third (1, 0). The log-likelihood
    8 ln(3/4 (1 - x) + x/2) + 2 ln(1 - x + x/2) + 2 ln(x/2) has its maximum where
    -8/(3 - x) - 2/(2 - x) + 2/x = 0, that is 3 x^2 - 8 x + 3 = 0, at (4 - sqrt(7)) / 3 = 0.4514.
    """
    tokens = np.zeros((4, 3, 1), dtype=np.int16)
    tokens[2:, 2] = 1
    assert novelty(tokens, 2) == pytest.approx(0.4514, rel=0.08)  # shares 14 % apart are tried


def test_slots_that_foretell_each_other_leave_no_novelty():
    tokens = np.tile(np.arange(4, dtype=np.int16)[:, None, None], (3, 5, 1))
    assert novelty(tokens, 16) == 0.0


def test_slots_that_say_nothing_of_each_other_are_all_novelty():
    tokens = np.tile(np.arange(6, dtype=np.int16)[None, :, None], (5, 1, 1))
    assert novelty(tokens, 6) == pytest.approx(0.9)


def test_without_novelty_every_drawn_set_is_the_profile_shuffled():
    tokens = np.tile(np.arange(4, dtype=np.int16)[:, None, None], (1, 5, 2))
    tokens[:, :, 1] += 4
    tokens[1, :, 1] = -1
    drawn = unseen_steps(tokens, 8, 3, seed=1).reshape(3, 20, 2)
    for part in drawn:
        assert sorted(map(tuple, part)) == sorted(map(tuple, tokens.reshape(20, 2)))
    assert (drawn[0] != drawn[1]).any()


def test_novelty_replaces_its_share_and_never_repeats_an_expert():
    tokens = random_tokens(5, 40, 16, 32, 4, sigma=2.0)
    tokens[0, 0, 3] = -1
    drawn = unseen_steps(tokens, 32, 4, seed=2)
    assert drawn.shape == (160, 16, 4)
    kept = drawn.reshape(-1, 4)
    ordered = np.sort(kept, axis=1)
    assert ((ordered[:, 1:] != ordered[:, :-1]) | (ordered[:, 1:] < 0)).all()
    assert (drawn < 0).sum() == 4
    assert (unseen_steps(tokens, 32, 4, seed=2) == drawn).all()


def test_one_slot_is_halved_in_time():
    tokens = np.array([0, 0, 1, 1], dtype=np.int16)[:, None, None]
    assert novelty(tokens, 2) == pytest.approx(0.9)
    assert novelty(np.array([0, 1, 0, 1], dtype=np.int16)[:, None, None], 2) == 0.0
    assert novelty(tokens[:1], 2) == 0.0
