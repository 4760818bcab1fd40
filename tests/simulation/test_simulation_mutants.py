"""The test of the test: each bug that is planted is found, and soon. Ends with a table of all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unistream.testing.sim.mutants import MUTANTS, planted
from unistream.testing.sim.run import run_seed

SEEDS_MAX = 1_000

found: dict[str, tuple[int, str]] = {}


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    yield
    print("\n\nplanted bug                         seeds  found by")
    for name, (seeds, violation) in found.items():
        print(f"{name:34s} {seeds:6d}  {violation[:90]}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    with planted(name):
        for seed in range(SEEDS_MAX):
            outcome = run_seed(seed)
            if outcome.violation is not None:
                found[name] = (seed + 1, outcome.violation.removeprefix("Violation: "))
                return
    pytest.fail(f"{MUTANTS[name].lesson}: not found in {SEEDS_MAX} seeds")


def test_nothing_is_left_of_a_planted_bug() -> None:
    before = run_seed(7).trace_hash
    with planted("no-alignment"):
        assert run_seed(7).trace_hash != before
    assert run_seed(7).trace_hash == before
