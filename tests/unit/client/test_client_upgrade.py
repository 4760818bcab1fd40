"""What an upgrade does next, by what the cluster knows."""

from __future__ import annotations

import pytest
from msgspec import structs

from unistream.base.errors import CorruptSnapshot, NotFound
from unistream.base.ids import JobId, LineageId
from unistream.client.job.upgrade import Facts, IncompatibleSnapshot, Upgrade, UpgradeStep, left_by, next_step
from unistream.model.graph import JobGraph
from unistream.model.job_info import JobInfo
from unistream.model.submission import SubmitRequest

RUNNING = JobInfo(
    job=JobId("a"), name="flow", lineage=LineageId("l"), state="RUNNING", target="local", submitted_ms=1
)
STOPPED = structs.replace(RUNNING, state="FINISHED", latest_checkpoint="/sp")
FAILED = structs.replace(RUNNING, state="FAILED")
COMMITTED = structs.replace(RUNNING, checkpoints_completed=1)


@pytest.mark.parametrize(
    ("kept", "old", "new", "back", "step"),
    [
        pytest.param(False, RUNNING, None, None, UpgradeStep.KEEP, id="begins"),
        pytest.param(True, RUNNING, None, None, UpgradeStep.STOP, id="the old version is kept"),
        pytest.param(
            True, structs.replace(RUNNING, state="RESTARTING"), None, None, UpgradeStep.STOP, id="restarts"
        ),
        pytest.param(True, STOPPED, None, None, UpgradeStep.SUBMIT, id="the old job is stopped"),
        pytest.param(False, STOPPED, None, None, UpgradeStep.SUBMIT, id="stopped by somebody else"),
        pytest.param(True, FAILED, None, None, UpgradeStep.LOST, id="the old job failed without a snapshot"),
        pytest.param(
            *(True, structs.replace(FAILED, latest_checkpoint="/chk-3"), None, None, UpgradeStep.SUBMIT),
            id="failed with one",
        ),
        pytest.param(True, None, None, None, UpgradeStep.LOST, id="nobody knows the old job"),
        pytest.param(True, STOPPED, RUNNING, None, UpgradeStep.WAIT, id="the new version starts"),
        pytest.param(
            *(True, STOPPED, structs.replace(RUNNING, state="RECONCILING"), None, UpgradeStep.WAIT),
            id="taken over",
        ),
        pytest.param(True, STOPPED, COMMITTED, None, UpgradeStep.DONE, id="it has a checkpoint"),
        pytest.param(False, STOPPED, COMMITTED, None, UpgradeStep.DONE, id="again, when it is done"),
        pytest.param(
            True,
            STOPPED,
            structs.replace(FAILED, checkpoints_completed=2),
            None,
            UpgradeStep.DONE,
            id="later",
        ),
        pytest.param(
            True, STOPPED, structs.replace(RUNNING, state="FINISHED"), None, UpgradeStep.DONE, id="bounded"
        ),
        pytest.param(True, STOPPED, FAILED, None, UpgradeStep.GO_BACK, id="it failed before its checkpoint"),
        pytest.param(
            *(True, STOPPED, structs.replace(RUNNING, state="CANCELED"), None, UpgradeStep.GO_BACK),
            id="given up",
        ),
        pytest.param(True, STOPPED, FAILED, RUNNING, UpgradeStep.WENT_BACK, id="the old version runs again"),
        pytest.param(True, STOPPED, None, RUNNING, UpgradeStep.WENT_BACK, id="the new one was refused"),
        pytest.param(False, STOPPED, FAILED, FAILED, UpgradeStep.WENT_BACK, id="again, after it went back"),
    ],
)
def test_the_next_step(
    kept: bool, old: JobInfo | None, new: JobInfo | None, back: JobInfo | None, step: UpgradeStep
) -> None:
    assert next_step(Facts(kept=kept, old=old, new=new, back=back)) is step


def test_a_version_that_does_not_fit_is_refused_also_when_checkpoints_come_faster_than_it_is_checked() -> (
    None
):
    """The newest checkpoint is another one at each look."""
    checked: list[str] = []

    class Cluster:
        url = "http://127.0.0.1:1"  # where nothing listens
        looks = 0

        def info(self, job: JobId) -> JobInfo:
            if job != RUNNING.job:
                raise NotFound("no such job")
            self.looks += 1
            return structs.replace(RUNNING, latest_checkpoint=f"/chk-{self.looks}")

        def request(self, *_arguments: object, **_more: object) -> object:
            raise NotFound("none is kept")

    def check(directory: str) -> None:
        checked.append(directory)
        raise IncompatibleSnapshot("another type") if len(checked) == 3 else CorruptSnapshot("it is gone")

    request = SubmitRequest(graph=JobGraph(name="g", vertices=(), edges=()), artifact=b"", request_id="up")
    upgrade = Upgrade(cluster=Cluster(), old=RUNNING.job, request=request, check=check)  # type: ignore[arg-type]
    with pytest.raises(IncompatibleSnapshot, match="another type"):
        upgrade.run()
    assert len(checked) == len(set(checked)) == 3, (
        "one that was replaced while it was read is looked for again"
    )


def test_a_job_goes_on_from_its_savepoint_or_else_its_newest_checkpoint() -> None:
    assert left_by(RUNNING) is None
    assert left_by(STOPPED) == "/sp"
    assert left_by(structs.replace(STOPPED, resumes_from="/half")) == "/half", "it was drained"


def test_a_job_is_up_when_all_its_tasks_run() -> None:
    assert RUNNING.all_tasks_run
    assert not structs.replace(RUNNING, state="RESTARTING").all_tasks_run
