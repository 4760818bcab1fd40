"""`unistream checkpoints`, as people and as programs see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.unit.cli import screens
from unistream.base.config import Configuration
from unistream.base.ids import CheckpointId, VertexId
from unistream.cli.checkpoints import newest, shown, shown_checkpoint
from unistream.cli.main import main
from unistream.cli.tables import Cell, Grid
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.job.lookup import find_job
from unistream.client.remote.rest_client import Poll
from unistream.model.checkpoint_figures import (
    CheckpointFigures,
    CheckpointsInfo,
    RestoredFigures,
    SnapshotStatus,
    SubtaskFigures,
    VertexFigures,
)
from unistream.model.snapshot_kind import SavepointFormat, SnapshotKind

Start = Callable[[], EmbeddedCluster]
Capture = pytest.CaptureFixture[str]

VERTEX = VertexFigures(
    vertex=VertexId("v"),
    name="count [k]",
    subtasks=(
        SubtaskFigures(
            index=1,
            acked_after_ms=1_500,
            start_delay_ms=3,
            alignment_ms=50,
            sync_ms=2,
            async_ms=9,
            processed_bytes=10,
            persisted_bytes=20,
            state_bytes=400,
            new_bytes=100,
            unaligned=True,
        ),
    ),
    missing=(0,),
)


def figures(n: int, status: SnapshotStatus = SnapshotStatus.COMPLETED, **more: Any) -> CheckpointFigures:
    values: dict[str, Any] = {"kind": SnapshotKind.CHECKPOINT, "timestamp_ms": 0, "duration_ms": 26}
    return CheckpointFigures(checkpoint_id=CheckpointId(n), status=status, **(values | more))


FAILED = figures(9, SnapshotStatus.FAILED, reason="IO_EXCEPTION: [full]", kind=SnapshotKind.TERMINATE)


def printed(parts: Iterable[Grid | Cell]) -> list[list[str]]:
    """Columns of each line."""
    lines = screens.printed(parts, 250, color=False).splitlines()
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines if line.strip()]


@pytest.mark.parametrize(
    ("kind", "form", "reported"),
    [
        (SnapshotKind.CHECKPOINT, SavepointFormat.CANONICAL, "checkpoint"),
        (SnapshotKind.SAVEPOINT, SavepointFormat.CANONICAL, "savepoint"),
        (SnapshotKind.SAVEPOINT, SavepointFormat.NATIVE, "native savepoint"),
        (SnapshotKind.SUSPEND, SavepointFormat.NATIVE, "native savepoint of a stop"),
        (SnapshotKind.TERMINATE, None, "savepoint of a drain"),
    ],
)
def test_a_native_savepoint_is_called_so(
    kind: SnapshotKind, form: SavepointFormat | None, reported: str
) -> None:
    info = CheckpointsInfo(completed=1, latest=(figures(5, kind=kind, format=form),))
    assert printed(shown(info, 0))[2][:2] == ["5", reported]


@pytest.mark.parametrize(
    ("one", "then"),
    [
        pytest.param(figures(8), ["–", "–", "–", "–"], id="the database has no sizes"),
        pytest.param(
            figures(8, recorded_bytes=400), ["400 B", "–", "–", "–"], id="it has the size of the whole"
        ),
        pytest.param(
            figures(8, vertices=(VERTEX,)), ["400 B", "100 B", "20 B", "50 ms"], id="tasks are known"
        ),
    ],
)
def test_what_is_not_known_is_not_zero(one: CheckpointFigures, then: list[str]) -> None:
    assert printed([newest((one,), 0)])[1][5:] == then


def test_a_task_that_has_not_acknowledged_and_a_directory_that_is_gone() -> None:
    one = figures(8, vertices=(VERTEX,), path="file:///chk-8", discarded=True)
    page = printed(shown_checkpoint(one, 0))
    assert ["directory", "file:///chk-8 (discarded)"] in page
    assert ["count [k] (1)", "no"] in page
    assert page[-1][:2] == ["count [k] (2)", "after 1.5 s, unaligned"]


def test_why_one_failed_and_from_where_the_job_was_restarted() -> None:
    assert ["why", "IO_EXCEPTION: [full]"] in printed(shown_checkpoint(FAILED, 0))
    restored = RestoredFigures(
        checkpoint_id=CheckpointId(3), kind=SnapshotKind.SAVEPOINT, path="file:///sp", restored_ms=0
    )
    page = printed(shown(CheckpointsInfo(latest_failed=FAILED, latest_restored=restored), 0))
    assert page[1:] == [
        ["last failure", "9: IO_EXCEPTION: [full]"],
        ["last restart", "just now from savepoint 3"],
        ["file:///sp"],
    ]


def test_a_running_job(start_cluster: Start, pipelines: str, capsys: Capture) -> None:
    start_cluster()
    words = ["-t", "remote", "--detached", "--json", "-D", "execution.checkpointing.interval=20 ms"]
    assert main(["run", f"{pipelines}:endless", *words]) == 0
    job = json.loads(capsys.readouterr().out)["job"]
    newest = await_checkpoint(job)

    assert main(["checkpoints", job[:8]]) == 0
    out = capsys.readouterr().out
    assert "ALIGNMENT" in out
    assert "P99.9" in out

    assert main(["checkpoints", job, "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["job"] == job
    assert reported["checkpoints"]["completed"] >= 1

    assert main(["checkpoint", job, "--full", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checkpoint"].rpartition("/")[2].startswith("chk-")
    assert main(["checkpoint", job[:8]]) == 0
    assert capsys.readouterr().out.startswith("checkpoint complete: file://")

    assert main(["savepoint", job, "--json"]) == 0
    path = json.loads(capsys.readouterr().out)["savepoint"]
    assert main(["checkpoints", job, "--json"]) == 0
    saved = json.loads(capsys.readouterr().out)["checkpoints"]["latest_savepoint"]
    assert (saved["path"], saved["checkpoint_id"] > newest) == (path, True)

    assert main(["checkpoints", job, str(saved["checkpoint_id"])]) == 0
    assert path in capsys.readouterr().out
    assert main(["checkpoints", job, str(saved["checkpoint_id"]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checkpoint"]["path"] == path

    for arguments, text in (
        ([job, "999999"], "checkpoint 999999 is not (or no longer) known"),
        ([job, "first"], "Invalid value for 'CHECKPOINT'"),
        ([job, "0"], "Invalid value for 'CHECKPOINT'"),
        (["ffffffff"], "there is no job 'ffffffff'"),
    ):
        assert main(["checkpoints", *arguments]) == 2
        assert text in capsys.readouterr().err
    assert main(["cancel", job]) == 0


def await_checkpoint(job: str) -> int:
    """Id of the newest completed one, once there is one."""
    with find_job(Configuration(), job) as client:
        poll = Poll(30.0)
        while poll.next():
            latest = client.checkpoints().latest_completed
            if latest is not None:
                return latest.checkpoint_id
    raise AssertionError("there is no checkpoint")


def test_no_cluster_is_3(capsys: Capture) -> None:
    assert main(["checkpoints", "some"]) == 3
    assert "no cluster runs here" in capsys.readouterr().err
