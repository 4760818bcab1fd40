"""The gate tries few examples of each property, and the night many, whatever number a test names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from tests.examples import scale


class Machine(RuleBasedStateMachine):
    """Is never run."""


@given(st.integers())
def row(number: int) -> None:
    """A property that is never tried."""


@pytest.mark.parametrize("profile", ["same", "random"])
@pytest.mark.parametrize(
    ("named", "gate", "night"), [(5, 5, 100), (25, 25, 500), (100, 25, 500), (500, 25, 500)]
)
def test_a_number_that_a_test_names_is_scaled(named: int, gate: int, night: int, profile: str) -> None:
    class Case(Machine.TestCase):  # type: ignore[misc]  # hypothesis makes the class
        """Not in the module: pytest would collect it."""

    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        wanted = gate if profile == "same" else night
        function = settings(max_examples=named)(given(st.integers())(lambda number: number))
        Case.settings = settings(max_examples=named, stateful_step_count=7)
        items: list[Any] = [
            SimpleNamespace(obj=function),
            SimpleNamespace(obj=function),  # another row of its table
            SimpleNamespace(obj=Case("runTest").runTest, cls=Case),
            SimpleNamespace(obj=row),
            SimpleNamespace(obj=print),
        ]
        scale(items)
        assert function._hypothesis_internal_use_settings.max_examples == wanted  # type: ignore[attr-defined]
        assert (Case.settings.max_examples, Case.settings.stateful_step_count) == (wanted, 7)
        assert settings().max_examples == (25 if profile == "same" else 500)
    finally:
        settings.load_profile(before)
