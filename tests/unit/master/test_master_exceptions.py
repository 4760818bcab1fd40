"""The history of failures: from the job's commands to what REST shows in Flink's shape."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.master.test_master_journal import RECORD
from unistream.base.ids import AttemptId, JobId, LineageId, OperatorUid, TaskManagerId, VertexId
from unistream.core.contract import AttemptView, JobView, RecordAttempt, RecordException
from unistream.master.job.journal import JobJournal
from unistream.master.shown.exceptions import recorded_exceptions
from unistream.model.graph import JobGraph, JobVertex, OperatorInfo
from unistream.model.job_info import ExceptionInfo, JobInfo
from unistream.model.messages import TaskFailure
from unistream.port.metadata import ExceptionRecord
from unistream.rest import flink_json
from unistream.testing.harness.operators import ManualClock

JOB = JobId("j")
GRAPH = JobGraph(
    name="g",
    vertices=(
        JobVertex(
            id=VertexId("v"),
            name="numbers -> map",
            operators=(OperatorInfo(uid=OperatorUid("u"), name="map"),),
            parallelism=2,
            max_parallelism=128,
        ),
    ),
    edges=(),
    config={"web.exception-history-size": "2", "jobmanager.execution.attempts-history-size": "1"},
)
BOOM = TaskFailure(kind="UserCodeError", message="row 3", traceback="at map")


class Facts:
    """A catalogue that keeps exceptions."""

    def __init__(self) -> None:
        self.exceptions: list[ExceptionRecord] = []

    def record_exception(self, record: ExceptionRecord) -> None:
        self.exceptions.append(record)

    def record_attempt(self, *_facts: object) -> None: ...


@pytest.fixture
def facts() -> Facts:
    return Facts()


@pytest.fixture
def journal(facts: Facts) -> JobJournal:
    return JobJournal(JOB, GRAPH, facts, ManualClock())  # type: ignore[arg-type]


def attempt(index: int, number: int = 0) -> AttemptId:
    return AttemptId(JOB, VertexId("v"), index, number)


def reported(index: int = 0, **changes: object) -> RecordException:
    fields = {"failure": BOOM, "attempt": attempt(index), "task_manager": TaskManagerId("tm"), **changes}
    return RecordException(**fields)  # type: ignore[arg-type]


def shown(journal: JobJournal, limit: int = 20) -> list[dict[str, object]]:
    info = JobInfo(
        job=JOB,
        name="g",
        lineage=LineageId("l"),
        state="RUNNING",
        target="t",
        submitted_ms=0,
        exceptions=journal.exceptions,
    )
    entries: list[dict[str, object]] = flink_json.exceptions(info, limit)["exceptionHistory"]["entries"]
    return entries


def test_a_failure_in_flinks_shape(journal: JobJournal) -> None:
    journal.exception(reported(1), "grpc://127.0.0.1:4000")
    journal.exception(reported(0, is_root=False))
    [entry] = shown(journal)
    concurrent = entry.pop("concurrentExceptions")
    stamp = entry.pop("timestamp")
    assert isinstance(stamp, int)
    assert entry == {
        "exceptionName": "UserCodeError",
        "stacktrace": "UserCodeError: row 3\nat map",
        "failureLabels": {},
        "taskName": "numbers -> map (2/2) - execution #0",
        "endpoint": "127.0.0.1:4000",
        "taskManagerId": "tm",
    }
    assert isinstance(concurrent, list)
    assert [c["taskName"] for c in concurrent] == ["numbers -> map (1/2) - execution #0"]
    assert "concurrentExceptions" not in concurrent[0]


def test_a_failure_of_the_job_as_a_whole_has_no_place(journal: JobJournal) -> None:
    journal.failure(BOOM)
    [entry] = shown(journal)
    assert not {"taskName", "endpoint", "taskManagerId"} & set(entry)


def test_the_failure_that_ended_the_job_is_below_the_decision(journal: JobJournal) -> None:
    journal.exception(reported(suppressed="Recovery is suppressed by none; UserCodeError: row 3"))
    [entry] = shown(journal)
    assert "suppressed by none" in str(entry["stacktrace"])
    assert "Caused by: UserCodeError: row 3\nat map" in str(entry["stacktrace"])
    [concurrent] = entry["concurrentExceptions"]  # type: ignore[misc]
    assert concurrent["taskManagerId"] == "tm"


def test_the_options_bound_what_is_kept(journal: JobJournal, facts: Facts) -> None:
    for _ in range(3):
        journal.exception(reported())
    assert len(shown(journal)) == 2
    assert len(shown(journal, limit=1)) == 1
    assert len(facts.exceptions) == 3


def test_former_attempts_are_kept_with_their_failure(journal: JobJournal) -> None:
    for number, state in ((0, "CANCELED"), (1, "RUNNING"), (1, "FAILED")):
        journal.attempt(
            RecordAttempt(attempt=attempt(0, number), vertex_name="v", state=state, task_manager=None)
        )
    journal.exception(reported(attempt=attempt(0, 1)))
    running = AttemptView(attempt=attempt(0, 2), state="RUNNING", task_manager=None)
    view = JobView(graph=GRAPH, state="RUNNING", restarts=2, attempts=(running,))
    [past] = journal.info(RECORD, view, None).subtasks[0].past
    assert (past.attempt, past.state, past.failure) == (1, "FAILED", f"{BOOM.kind}: {BOOM.message}")


def test_what_the_catalogue_knows_has_names_too() -> None:
    records = [
        ExceptionRecord(job=JOB, at_ms=at, attempt=who, task_manager=None, kind="E", message=str(at))
        for at, who in ((1, str(attempt(1, 4))), (3, None), (2, "no attempt"))
    ]
    infos = recorded_exceptions(records, GRAPH)
    assert [(info.message, info.task_name) for info in infos] == [("3", None), ("2", "no attempt")]
    [oldest] = recorded_exceptions(records[:1], GRAPH)
    assert oldest.task_name == "numbers -> map (2/2) - execution #4"
    [nameless] = recorded_exceptions(records[:1], None)
    assert nameless.task_name == "j/v#1.4"


def test_the_picture_survives_the_wire(journal: JobJournal) -> None:
    journal.exception(reported(1))
    journal.exception(reported(0, is_root=False))
    sent = msgspec.json.encode(journal.exceptions)
    assert msgspec.json.decode(sent, type=tuple[ExceptionInfo, ...]) == journal.exceptions
