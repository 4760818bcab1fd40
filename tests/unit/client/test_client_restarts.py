"""What a client says and does when a cluster was away, or has started again and forgotten its operations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from tests.unit.client.servers import Server, answers
from unistream.base.errors import (
    ConfigError,
    NotFound,
    NothingListens,
    OutcomeUnknown,
    ProtocolError,
    UnistreamError,
    Unreachable,
)
from unistream.base.ids import CheckpointId, JobId, LineageId
from unistream.client.remote import restarts
from unistream.client.remote.absence import ANSWER_MIN_S, Absence
from unistream.client.remote.rest_client import RestClient, RestJobClient
from unistream.model.checkpoint_figures import CheckpointFigures, CheckpointsInfo, SnapshotStatus
from unistream.model.job_info import CheckpointInfo, JobInfo
from unistream.model.snapshot_kind import SnapshotKind

JOB = JobId("ab" * 16)
WHERE = "http://there:1"
REQUESTED_MS = 1_000_000
BOUND_S = 60.0


def info(state: str = "RUNNING", **more: object) -> JobInfo:
    return JobInfo(
        job=JOB, name="flights", lineage=LineageId("l"), state=state, target="local", submitted_ms=0, **more
    )  # type: ignore[arg-type]


def snapshot(
    timestamp_ms: int, kind: SnapshotKind = SnapshotKind.SAVEPOINT, path: str | None = "file:/sp"
) -> CheckpointFigures:
    return CheckpointFigures(
        checkpoint_id=CheckpointId(7),
        kind=kind,
        status=SnapshotStatus.COMPLETED,
        timestamp_ms=timestamp_ms,
        duration_ms=1,
        path=path,
    )


def taken(number: int, kind: SnapshotKind, path: str) -> CheckpointInfo:
    return CheckpointInfo(
        checkpoint_id=CheckpointId(number), kind=kind, state="completed", path=path, triggered_ms=REQUESTED_MS
    )


OLD, NEW = snapshot(REQUESTED_MS - 1), snapshot(REQUESTED_MS)
KNOWS_NOT = (
    f"the outcome of a savepoint of job {JOB} is not known: the cluster at {WHERE} does not know the request "
    "any more, as after a restart"
)


@pytest.mark.parametrize(
    ("job", "newest", "text"),
    [
        pytest.param(None, None, "nor the job", id="the job is lost, too"),
        pytest.param(
            info(),
            NEW,
            "the job is RUNNING, and file:/sp is complete, which was begun after the request",
            id="there is one of the request",
        ),
        pytest.param(
            info("RESTARTING"),
            OLD,
            "the job is RESTARTING, and nothing that was begun after the request is known to be complete",
            id="there is an older one",
        ),
        pytest.param(
            info(),
            None,
            "the job is RUNNING, and nothing that was begun after the request is known to be complete",
            id="there is none",
        ),
    ],
)
def test_what_is_said_about_a_forgotten_savepoint(
    job: JobInfo | None, newest: CheckpointFigures | None, text: str
) -> None:
    error = restarts.lost_operation(
        *("a savepoint", JOB, WHERE), info=job, newest=newest, requested_ms=REQUESTED_MS
    )
    assert str(error) == f"{KNOWS_NOT}{', ' if job is None else '; '}{text}"
    assert isinstance(error, OutcomeUnknown)


def test_what_is_said_about_a_forgotten_rescale() -> None:
    error = restarts.lost_operation(
        *("the change", JOB, WHERE), info=info(), newest=None, requested_ms=0, snapshot=False
    )
    assert str(error).endswith("; the job is RUNNING, and 'unistream info abababab' shows its tasks")


SUSPENDED = snapshot(REQUESTED_MS, SnapshotKind.SUSPEND)


@pytest.mark.parametrize(
    ("job", "newest", "made"),
    [
        pytest.param(
            info("FINISHED", savepoint="file:/sp"), SUSPENDED, ("file:/sp", "file:/sp"), id="it has succeeded"
        ),
        pytest.param(
            info(
                "FINISHED",
                savepoint="file:/sp",
                checkpoints=(
                    taken(8, SnapshotKind.TERMINATE, "file:/sp"),
                    taken(7, SnapshotKind.SAVEPOINT, "file:/before"),
                ),
            ),
            snapshot(REQUESTED_MS, SnapshotKind.TERMINATE),
            ("file:/sp", "file:/before"),
            id="a drain",
        ),
        pytest.param(info("RUNNING", savepoint="file:/sp"), SUSPENDED, None, id="it still runs"),
        pytest.param(info("FAILED", savepoint="file:/sp"), SUSPENDED, None, id="it has failed"),
        pytest.param(info("FINISHED", savepoint="file:/sp"), OLD, None, id="by itself, after a savepoint"),
        pytest.param(info("FINISHED", savepoint="file:/sp"), NEW, None, id="by itself, after a newer one"),
        pytest.param(info("FINISHED", savepoint="file:/other"), SUSPENDED, None, id="with another savepoint"),
        pytest.param(info("FINISHED"), None, None, id="without a savepoint"),
        pytest.param(None, None, None, id="the job is lost"),
    ],
)
def test_a_stop_whose_outcome_was_forgotten(
    job: JobInfo | None, newest: CheckpointFigures | None, made: tuple[str, str] | None
) -> None:
    assert restarts.stopped_with(job, newest, REQUESTED_MS) == made


# --- absences -------------------------------------------------------------------------------------


def fails(error: Exception) -> Callable[[float], str]:
    def call(_timeout_s: float) -> str:
        raise error

    return call


def ask_until_it_raises(absence: Absence, error: Exception) -> None:
    began_s = time.monotonic()
    while time.monotonic() - began_s < BOUND_S:
        assert absence.ask(fails(error)) is None


def test_an_absence_is_borne_until_the_limit() -> None:
    absence = Absence(0.5, heard=True)
    assert absence.ask(fails(Unreachable("silent"))) is None
    assert absence.is_current
    assert absence.ask(lambda _: "back") == "back"
    assert not absence.is_current
    began_s = time.monotonic()
    with pytest.raises(NothingListens, match="refused"):
        ask_until_it_raises(absence, NothingListens("refused"))
    assert time.monotonic() - began_s >= 0.4


def test_one_that_was_never_heard_is_not_waited_for() -> None:
    with pytest.raises(Unreachable):
        Absence(60, heard=False).ask(fails(Unreachable("silent")))
    with pytest.raises(NotFound):
        Absence(60, heard=False).ask(fails(NotFound("no job")))


@pytest.mark.parametrize("error", [ProtocolError("status 500"), ConfigError("forbidden")], ids=repr)
def test_answers_that_make_no_sense_are_borne_like_none(error: UnistreamError) -> None:
    absence = Absence(0.5, heard=True, refusable=False)
    assert absence.ask(fails(error)) is None
    assert absence.ask(lambda _: "back") == "back"
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match=f"{error}; there has been no other answer for .* client.timeout"):
        ask_until_it_raises(absence, error)
    assert time.monotonic() - began_s >= 0.4
    with pytest.raises(type(error)):
        Absence(60, heard=False, refusable=False).ask(fails(error))


def test_a_refusal_of_an_operation_is_an_answer() -> None:
    with pytest.raises(ConfigError, match="no room"):
        Absence(60, heard=True).ask(fails(ConfigError("no room")))


def test_what_was_known_may_be_unknown_for_a_while_after_a_restart() -> None:
    absence = Absence(60, heard=True, recovery_s=0.3)
    assert absence.ask(fails(NotFound("not yet"))) is None
    with pytest.raises(NotFound):
        ask_until_it_raises(absence, NotFound("no job"))
    with pytest.raises(NotFound):
        Absence(60, heard=True, recovery_s=0).ask(fails(NotFound("no operation")))


@pytest.mark.parametrize(
    ("left_s", "timeout_s"),
    [(None, 60.0), (0.1, ANSWER_MIN_S), (20.0, 20.0), (3_600.0, 60.0)],
    ids=["for ever", "a moment", "longer", "longer than the limit"],
)
def test_how_long_one_question_may_take(left_s: float | None, timeout_s: float) -> None:
    assert Absence(60, heard=True).ask(lambda given_s: given_s, left_s) == timeout_s


# --- the same with servers that go and come again ---------------------------------------------------


class Cluster:
    """Serves one job on one port; it can be ended and started again.

    Attributes:
        paths: What is requested, since the last start.
        state: Of the job; None: it is not known.
        operations: The status of each operation, None: it is not known.
    """

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.state: str | None = "RUNNING"
        self.knows_operations = True
        self.figures = CheckpointsInfo()
        self._server = Server(answers(self._respond, self.paths))
        self.url = self._server.url

    def _respond(self, line: str) -> tuple[int, object]:
        path = line.split()[1].removeprefix("/v1")
        if line.startswith("POST"):
            return 202, {"request-id": "cd" * 16}
        if path.endswith("cd"):
            in_progress = {"status": {"id": "IN_PROGRESS"}, "operation": None}
            return (200, in_progress) if self.knows_operations else (404, {"errors": ["no operation"]})
        if path.endswith("/checkpoints"):
            return 200, msgspec.to_builtins(self.figures)
        if self.state is None:
            return 404, {"errors": ["there is no job"]}
        return 200, msgspec.to_builtins(info(self.state))

    def end(self) -> None:
        self._server.close()

    def start(self) -> None:
        self._server = Server(answers(self._respond, self.paths), self._server.port)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    served = Cluster()
    yield served
    served.end()


def later(delay_s: float, act: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(delay_s, act)
    timer.start()
    return timer


def test_who_waits_for_a_job_survives_a_restart_of_its_cluster(cluster: Cluster) -> None:
    def restart() -> None:
        cluster.end()
        time.sleep(1.0)
        cluster.state = "FINISHED"
        cluster.start()

    with RestClient(cluster.url, timeout_s=BOUND_S) as client:
        restarting = later(0.3, restart)
        assert client.client(JOB).wait(BOUND_S).state == "FINISHED"
        restarting.join()


def test_short_waits_survive_it_too(cluster: Cluster) -> None:
    with RestClient(cluster.url, timeout_s=BOUND_S) as client:
        job = client.client(JOB)
        with pytest.raises(TimeoutError):
            job.wait(0.1)
        cluster.end()
        with pytest.raises(TimeoutError):
            job.wait(0.1)
        cluster.state = "FINISHED"
        cluster.start()
        assert job.wait(BOUND_S).state == "FINISHED"


def test_who_waits_for_a_job_that_is_lost_hears_that_once_the_cluster_is_back(cluster: Cluster) -> None:
    with RestClient(cluster.url, timeout_s=1.0) as client:
        job = RestJobClient(client, JOB, accepted=True)
        cluster.state = None
        with pytest.raises(OutcomeUnknown, match=rf"how job {JOB} ends is not known: .* has started again"):
            job.wait(BOUND_S)


def test_a_job_that_was_never_there_is_not_found_at_once(cluster: Cluster) -> None:
    cluster.state = None
    with (
        RestClient(cluster.url, timeout_s=BOUND_S) as client,
        pytest.raises(NotFound, match="there is no job"),
    ):
        client.client(JOB).wait(BOUND_S)
    assert len(cluster.paths) == 1


def test_who_waits_for_a_job_gives_up_after_the_limit(cluster: Cluster) -> None:
    with RestClient(cluster.url, timeout_s=1.0) as client:
        job = RestJobClient(client, JOB, accepted=True)
        assert job.status().state == "RUNNING"
        cluster.end()
        with pytest.raises(NothingListens, match="does not answer"):
            job.wait()
        cluster.start()


@pytest.mark.parametrize("operation", ["savepoint", "stop", "checkpoint"])
def test_a_forgotten_operation_has_not_failed(operation: str, cluster: Cluster) -> None:
    cluster.knows_operations = False
    with (
        RestClient(cluster.url, timeout_s=BOUND_S) as client,
        pytest.raises(
            OutcomeUnknown, match=r"is not known: .* the job is RUNNING, and nothing that was begun"
        ),
    ):
        getattr(client.client(JOB), operation)()


def test_a_forgotten_savepoint_that_is_complete_is_named(cluster: Cluster) -> None:
    cluster.knows_operations = False
    newest = snapshot(int(time.time() * 1_000) + 60_000)
    cluster.figures = CheckpointsInfo(latest=(newest,), latest_savepoint=newest)
    with (
        RestClient(cluster.url, timeout_s=BOUND_S) as client,
        pytest.raises(OutcomeUnknown, match="file:/sp is complete, which was begun after the request"),
    ):
        client.client(JOB).savepoint()


def test_a_savepoint_of_a_lost_job_is_not_known(cluster: Cluster) -> None:
    cluster.knows_operations, cluster.state = False, None
    with RestClient(cluster.url, timeout_s=1.0) as client, pytest.raises(OutcomeUnknown, match="nor the job"):
        client.client(JOB).savepoint()


def test_a_savepoint_in_progress_survives_an_absence_and_then_asks_again(cluster: Cluster) -> None:
    def restart() -> None:
        cluster.end()
        cluster.knows_operations = False
        cluster.start()

    with RestClient(cluster.url, timeout_s=BOUND_S) as client:
        restarting = later(0.5, restart)
        with pytest.raises(OutcomeUnknown, match="as after a restart; the job is RUNNING"):
            client.client(JOB).savepoint()
        restarting.join()
    assert sum(line.startswith("POST") for line in cluster.paths) == 1, "not sent again on its own"


def test_a_stop_whose_snapshots_nobody_knows_names_the_savepoint_of_the_job() -> None:
    ended = info("FINISHED", savepoint="file:/sp")
    error = restarts.lost_operation(*("the stop", JOB, WHERE), info=ended, newest=None, requested_ms=0)
    assert str(error).endswith("; the job is FINISHED, with the savepoint file:/sp")
