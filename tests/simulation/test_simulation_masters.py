"""Clusters with several masters and a ZooKeeper, from seeds; and bugs of an election that are planted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.simulation.found_by import known_first
from tests.simulation.reached_by import MASTERS, listed, seeds
from tests.support.masters.mutants import MUTANTS
from tests.support.masters.run import run_seed
from tests.support.mutants import plant

HASHED = len(seeds(5, 20))
SEEDS_MAX = len(seeds(400, 1_000))


@pytest.mark.timeout(3_600)
def test_every_invariant_holds_with_several_masters_and_every_rare_branch_is_reached(
    record_property: Callable[[str, object], None],
) -> None:
    report = MASTERS.play(seeds(40, 400))
    record_property("seeds", report.text())
    assert report.failed == [], report.text()
    assert report.unreached(MASTERS.required) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_of_masters_is_found(name: str, record_property: Callable[[str, object], None]) -> None:
    with plant(MUTANTS[name]):
        for seed in known_first(name, (*listed(MASTERS.regressions), *range(SEEDS_MAX))):
            outcome = run_seed(seed)
            if outcome.violation is not None:
                violation = outcome.violation.removeprefix("Violation: ")
                record_property("planted bug", f"{name:34s} {seed + 1:6d}  {violation[:90]}")
                return
    pytest.fail(f"{MUTANTS[name].lesson}: not found in {SEEDS_MAX} seeds")


def test_a_seed_of_several_masters_is_a_run_under_any_hash_seed() -> None:
    """I17, in two processes with different hashes of texts."""
    code = (
        "import json, sys; from tests.support.masters.run import run_seed; "
        "print(json.dumps([run_seed(s).trace_hash for s in range(int(sys.argv[1]))]))"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(HASHED)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
        )
        for hash_seed in ("1", "2")
    ]
    hashes = [json.loads(process.communicate()[0]) for process in running]
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == HASHED, "different seeds are different runs"
