"""What a job shows between its last transition and the record of its result."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from tests.unit.master.test_master_journal import GRAPH, JOB, RECORD
from unistream.base.ids import JobId
from unistream.core.contract import JobEnded, JobView
from unistream.master.job.journal import JobJournal
from unistream.master.job.live import state_of
from unistream.testing.harness.operators import ManualClock


class Jobs:
    """A catalogue that keeps the states of jobs."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def update_job(self, job: JobId, *, state: str, restarts: int, ended_ms: int) -> threading.Event:
        self.states.append(state)
        return threading.Event()


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("FINISHED", "RUNNING"),
        ("CANCELED", "CANCELLING"),
        ("FAILED", "FAILING"),
        ("RUNNING", "RUNNING"),
        ("RESTARTING", "RESTARTING"),
        ("SUSPENDED", "SUSPENDED"),
    ],
)
def test_a_job_has_ended_when_its_result_is_recorded(state: str, shown: str) -> None:
    view = JobView(graph=GRAPH, state=state, restarts=0, attempts=())
    assert state_of(view, None) == shown
    assert state_of(view, (JobEnded(state="FAILED", failure=None), 7)) == "FAILED"


def test_it_has_one_time_of_its_end() -> None:
    """That of the record, which is the page's `end-time`, too."""
    clock, catalogue = ManualClock(), Jobs()
    journal = JobJournal(JOB, GRAPH, catalogue, clock)  # type: ignore[arg-type]  # what it calls here
    view = JobView(graph=GRAPH, state="FINISHED", restarts=0)
    record = replace(RECORD, submitted_ms=journal.submitted_ms)
    journal.ended("FINISHED", 0, clock.wall_ms() + 3)
    assert catalogue.states == ["FINISHED"]
    assert set(journal.info(record, view, None).state_times) == {"INITIALIZING"}
    at = clock.wall_ms() + 5
    times = journal.info(replace(record, state="FINISHED", ended_ms=at), view, None).state_times
    assert times == {"INITIALIZING": journal.submitted_ms, "FINISHED": at}
