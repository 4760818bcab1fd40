"""What a seed of `simulate` means for a job."""

from __future__ import annotations

from unistream.testing.sim.faults import Faults
from unistream.testing.simulation.run import draw

SEEDS = range(200)


def test_some_runs_change_the_master() -> None:
    drawn = [draw(seed, None, rescale=False).faults.master_every_ms for seed in SEEDS]
    assert 20 < sum(map(bool, drawn)) < 100


def test_given_faults_replace_the_drawn_ones() -> None:
    faults = Faults(master_every_ms=700.0)
    assert draw(1, faults, rescale=False).faults == faults
