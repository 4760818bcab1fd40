"""How many rows a job has dropped as late or read out of order: over restarts, and once in the log."""

from __future__ import annotations

import logging

import pytest

from tests.unit.master.test_master_journal import GRAPH, JOB, NOBODY, VERTEX, shown
from unistream.base.ids import AttemptId
from unistream.master.job.journal import JobJournal
from unistream.master.job.row_counts import dead_letters, late_rows, skipped_rows
from unistream.model.messages import TaskMetrics
from unistream.testing.harness.operators import ManualClock

Report = tuple[int, int, int]  # subtask, attempt, late rows so far


@pytest.mark.parametrize(
    ("reports", "total"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param([(0, 0, 0)], {}, id="an operator that drops none"),
        pytest.param([(0, 0, 3), (0, 0, 5)], {"window": 5}, id="heartbeats of one attempt"),
        pytest.param([(0, 0, 3), (1, 0, 4)], {"window": 7}, id="two subtasks"),
        pytest.param(
            [(0, 0, 3), (0, 1, 0)], {"window": 3}, id="a restart: those of before are not forgotten"
        ),
        pytest.param([(0, 0, 3), (0, 1, 2), (0, 2, 1)], {"window": 6}, id="two restarts"),
        pytest.param([(0, 1, 2), (0, 0, 9)], {"window": 2}, id="a heartbeat of an attempt that is over"),
    ],
)
def test_late_rows_of_all_attempts(reports: list[Report], total: dict[str, int]) -> None:
    journal = JobJournal(JOB, GRAPH, NOBODY, ManualClock())
    for index, attempt, rows in reports:
        metrics = TaskMetrics(user={"window.numLateRecordsDropped": rows, "window.other": 8})
        journal.metrics(AttemptId(JOB, VERTEX.id, index, attempt), metrics)
    assert shown(journal).late_rows == total


def test_rows_out_of_order_by_source_and_split() -> None:
    journal = JobJournal(JOB, GRAPH, NOBODY, ManualClock())
    for attempt, rows in ((0, 2), (1, 3)):
        counters = {"files, old.numRecordsOutOfOrder./in/a.json:0-9": rows, "files, old.rows": 8}
        journal.metrics(AttemptId(JOB, VERTEX.id, 0, attempt), TaskMetrics(user=counters))
    assert shown(journal).out_of_order_rows == {"files, old: /in/a.json:0-9": 5}
    assert shown(journal).late_rows == {}


def test_the_log_warns_once_for_each_operator(caplog: pytest.LogCaptureFixture) -> None:
    late = late_rows(JOB)
    with caplog.at_level(logging.WARNING):
        for rows in range(3):
            late.reported({"a window.numLateRecordsDropped": rows, "b.numLateRecordsDropped": 1})
    assert sorted(record.getMessage().partition(":")[0] for record in caplog.records) == [
        "event=late_rows_dropped job=j operator='a window'",
        "event=late_rows_dropped job=j operator='b'",
    ]


def test_rows_that_failed_by_operator() -> None:
    journal = JobJournal(JOB, GRAPH, NOBODY, ManualClock())
    for attempt, rows in ((0, 2), (1, 3)):
        counters = {"parse.dead_letters": rows, "clean.numRecordsSkipped": 1, "parse.rows": 8}
        journal.metrics(AttemptId(JOB, VERTEX.id, 0, attempt), TaskMetrics(user=counters))
    assert shown(journal).dead_letters == {"parse": 5}
    assert shown(journal).skipped_rows == {"clean": 2}


def test_the_log_warns_of_rows_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for counts in (dead_letters(JOB), skipped_rows(JOB)):
            counts.reported({"parse.dead_letters": 1, "parse.numRecordsSkipped": 1})
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "event=dead_letters job=j operator='parse'",
        "event=rows_skipped job=j operator='parse'",
    ]
