"""What a seed of `simulate` means for a job."""

from __future__ import annotations

import pytest

from unistream.model.graph import JobType
from unistream.testing.sim.faults import Faults
from unistream.testing.simulation.run import draw

SEEDS = range(200)


def test_the_master_of_a_batch_job_does_not_change() -> None:
    """The job would end with it, so a run with another one is none that happens."""
    streams = [draw(seed, None, rescale=False) for seed in SEEDS]
    batches = [draw(seed, None, rescale=False, job_type=JobType.BATCH) for seed in SEEDS]
    changing = [seed for seed, drawn in zip(SEEDS, streams, strict=True) if drawn.faults.master_every_ms]
    assert len(changing) > 20
    assert not any(drawn.faults.master_every_ms for drawn in batches)
    assert all(batches[seed].faults.kill_every_ms for seed in changing)
    same = [seed for seed in SEEDS if seed not in changing]
    assert [batches[seed] for seed in same] == [streams[seed] for seed in same]


@pytest.mark.parametrize(("kills", "found"), [(0.0, 700.0), (300.0, 300.0)])
def test_given_faults_too(kills: float, found: float) -> None:
    faults = Faults(master_every_ms=700.0, kill_every_ms=kills)
    drawn = draw(1, faults, rescale=False, job_type=JobType.BATCH)
    assert drawn.faults == Faults(kill_every_ms=found)
    assert draw(1, faults, rescale=False).faults == faults
