"""What a run says of the savepoints that its job has left."""

from __future__ import annotations

from typing import Any

import pytest

from unistream.base.ids import CheckpointId, JobId, LineageId
from unistream.dagster.run.metadata import job_metadata
from unistream.dagster.run.savepoints import Savepoints, savepoints_of, was_stopped
from unistream.model.job_info import CheckpointInfo, JobInfo
from unistream.model.snapshot_kind import SnapshotKind


def job(state: str, *kinds: SnapshotKind, **more: Any) -> JobInfo:
    """Each snapshot is in the directory of its number."""
    checkpoints = tuple(
        CheckpointInfo(
            checkpoint_id=CheckpointId(number),
            kind=kind,
            state="completed",
            path=f"/{number}",
            triggered_ms=number,
        )
        for number, kind in enumerate(kinds, 1)
    )
    saved = [one.path for one in checkpoints if one.kind.is_savepoint]
    known: dict[str, Any] = {
        "checkpoints": checkpoints,
        "savepoint": saved[-1] if saved else None,
        "latest_checkpoint": checkpoints[-1].path if checkpoints else None,
    }
    return JobInfo(
        **{
            **known,
            "job": JobId("a" * 32),
            "name": "rows",
            "lineage": LineageId("l"),
            "state": state,
            "target": "local",
            "submitted_ms": 0,
            **more,
        }
    )


CHECKPOINT, SAVEPOINT = SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT
SUSPEND, TERMINATE = SnapshotKind.SUSPEND, SnapshotKind.TERMINATE
FORGOTTEN = {"savepoint": "/2", "latest_checkpoint": "/2"}


@pytest.mark.parametrize(
    ("info", "left", "stopped"),
    [
        pytest.param(job("RUNNING", CHECKPOINT), Savepoints(None, None), False, id="none yet"),
        pytest.param(job("RUNNING", SAVEPOINT, CHECKPOINT), Savepoints("/1", None), False, id="it runs"),
        pytest.param(job("FINISHED", CHECKPOINT, SUSPEND), Savepoints("/2", None), True, id="stopped"),
        pytest.param(job("FINISHED", SAVEPOINT, TERMINATE), Savepoints("/1", "/2"), True, id="drained"),
        pytest.param(
            job("FINISHED", CHECKPOINT, TERMINATE), Savepoints(None, "/2"), True, id="drained, half is lost"
        ),
        pytest.param(
            job("FINISHED", SAVEPOINT, CHECKPOINT),
            Savepoints("/1", None),
            False,
            id="its input has ended some time after a savepoint",
        ),
        pytest.param(
            job("FINISHED", CHECKPOINT, SAVEPOINT),
            Savepoints("/2", None),
            False,
            id="its input has ended, and it has taken no checkpoint since",
        ),
        pytest.param(
            job("FINISHED", SUSPEND, CHECKPOINT),
            Savepoints("/1", None),
            False,
            id="it failed while it was stopped, and went on to its end",
        ),
        pytest.param(job("FINISHED", **FORGOTTEN), Savepoints("/2", None), True, id="of the history alone"),
        pytest.param(
            job("FINISHED", resumes_from="/1", **FORGOTTEN),
            Savepoints("/1", "/2"),
            True,
            id="drained, of the history alone",
        ),
    ],
)
def test_what_a_job_has_left(info: JobInfo, left: Savepoints, stopped: bool) -> None:
    assert savepoints_of(info) == left
    assert was_stopped(info) is stopped
    keys = ("unistream/savepoint", "unistream/terminal_savepoint")
    metadata = job_metadata(info, info.submitted_ms)
    assert tuple(metadata[key].value if key in metadata else None for key in keys) == left
