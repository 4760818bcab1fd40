"""The test of the test: each bug that is planted is found, and soon. A table of all ends the report."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.found_by import known_first
from tests.support.mutants import MUTANTS, planted
from unistream.testing.sim.run import run_seed

SEEDS_MAX = 1_000


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str, record_property: Callable[[str, object], None]) -> None:
    with planted(name):
        for seed in known_first(name, range(SEEDS_MAX)):
            outcome = run_seed(seed)
            if outcome.violation is not None:
                violation = outcome.violation.removeprefix("Violation: ")
                record_property("planted bug", f"{name:34s} {seed + 1:6d}  {violation[:90]}")
                return
    pytest.fail(f"{MUTANTS[name].lesson}: not found in {SEEDS_MAX} seeds")


def test_nothing_is_left_of_a_planted_bug() -> None:
    before = run_seed(7).trace_hash
    with planted("no-alignment"):
        assert run_seed(7).trace_hash != before
    assert run_seed(7).trace_hash == before
