"""A short run of every fuzz target with fixed seeds; `make fuzz` runs them longer."""

from __future__ import annotations

import pytest

from tests.fuzz.runner import fuzz_target
from tests.fuzz.target import Target, discover

INPUTS = 250
SEEDS = (1, 2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("target", discover(), ids=lambda target: str(target.name))
def test_a_decoder_gives_a_value_or_its_documented_error(target: Target, seed: int) -> None:
    tallies, failures = fuzz_target(target, seed, inputs=INPUTS)
    assert not failures, "\n".join(map(str, failures))
    for tally in tallies:
        assert tally.inputs == INPUTS
        assert tally.values, f"{tally.target} ({tally.form}) decoded nothing: do the inputs still reach it?"
        assert tally.refused, f"{tally.target} ({tally.form}) refused nothing: does it check anything?"
