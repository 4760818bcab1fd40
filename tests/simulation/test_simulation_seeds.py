"""Whole clusters from seeds: invariants after every event, an end to every run, equal runs of equal seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from random import Random

import pytest

from tests.simulation.reached_by import SINGLE, listed, seeds
from unistream.testing.sim.run import run_seed
from unistream.testing.sim.scenario import ScenarioKind, scenario_of
from unistream.testing.sim.variants import varied

HASHED = seeds(25, 100)


@pytest.mark.timeout(3_600)
def test_every_invariant_holds_in_every_run_and_every_rare_branch_is_reached(
    record_property: Callable[[str, object], None],
) -> None:
    report = SINGLE.play(seeds(100, 1_000))
    record_property("seeds", report.text())
    assert report.failed == [], report.text()
    assert report.unreached(SINGLE.required) == []


BEFORE_SHARING = (
    *(25, 32, 65, 253, 1164, 1312, 1381, 5666, 4261, 651, 864, 1464),
    *(2282, 6239, 59388, 98160, 80575, 75495),
)
"""Seeds that had failed when no run shared files: each keeps its meaning as long as it is the same run."""


@pytest.mark.parametrize("seed", BEFORE_SHARING)
def test_what_failed_before_there_were_shared_files_is_the_same_run(seed: int) -> None:
    assert varied(scenario_of(Random(seed)), seed).sharing is None
    assert seed in listed(SINGLE.regressions)


def test_about_one_run_in_four_shares_files() -> None:
    drawn = sum(varied(scenario_of(Random(seed)), seed).sharing is not None for seed in range(2_000))
    assert 440 < drawn < 600, drawn


def test_a_seed_is_a_run_under_any_hash_seed() -> None:
    """I17, in two processes with different hashes of texts."""
    assert {varied(scenario_of(Random(seed)), seed).kind for seed in HASHED} == set(ScenarioKind)
    code = (
        "import json, sys; from unistream.testing.sim.run import run_seed; "
        "print(json.dumps([run_seed(int(s)).trace_hash for s in sys.argv[1:]]))"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, *map(str, HASHED)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
        )
        for hash_seed in ("1", "2")
    ]
    hashes = [json.loads(process.communicate()[0]) for process in running]
    different = [
        seed for seed, pair in zip(HASHED, zip(*hashes, strict=True), strict=True) if len(set(pair)) > 1
    ]
    assert different == []
    assert len(set(hashes[0])) == len(HASHED), "different seeds are different runs"


def test_the_story_of_a_run_is_told_in_order() -> None:
    outcome = run_seed(1, story=True)
    times = [float(line.split()[0]) for line in outcome.story]
    assert times == sorted(times)
    assert any("healed" in line for line in outcome.story)
