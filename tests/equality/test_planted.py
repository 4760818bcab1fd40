"""The test of the test: the property finds each bug that is planted, and says which rows differ."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.equality.operators import OPERATORS
from tests.equality.pipelines import Pipeline
from tests.equality.planted import PLANTED, Planted
from tests.equality.run import assert_equal, simulated
from tests.equality.strategies import pipelines
from unistream.base.errors import UserCodeError

EXAMPLES_MAX = 1_000
FOUND = "differs from the model|I11: .* has key groups .* to which they do not belong"
"""The simulation sees by itself that a state is stored by a subtask to which its keys do not belong."""
BY_CHANCE = {"finish"}
"""What a run shows only where a fault meets its last moment."""


@pytest.mark.parametrize("name", [name for name in PLANTED if name not in BY_CHANCE])
def test_a_planted_bug_shows_in_one_of_the_small_pipelines(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug = PLANTED[name]
    bug.plant(monkeypatch)
    assert any(shows(pipeline, bug) for pipeline in OPERATORS.values()), bug.lesson


def shows(pipeline: Pipeline, bug: Planted) -> bool:
    try:
        run(pipeline, bug, 7)
    except (AssertionError, UserCodeError) as error:
        return re.search(FOUND, str(error)) is not None
    return False


def run(pipeline: Pipeline, bug: Planted, seed: int) -> None:
    for found in simulated(pipeline, {**bug.mode, "parallelism.default": "2"}, seed):
        assert_equal(pipeline, "the simulated cluster", found)


@pytest.mark.skipif(settings().derandomize, reason="found within some hundred examples: equality-nightly")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = PLANTED[name]
    bug.plant(monkeypatch)

    @settings(
        max_examples=EXAMPLES_MAX,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(pipelines(), st.integers(0, 1_000))
    def equality(pipeline: Pipeline, seed: int) -> None:
        run(pipeline, bug, seed)

    with pytest.raises((AssertionError, UserCodeError), match=FOUND):
        equality()
