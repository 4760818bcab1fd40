"""`unistream checkpoints`, as people and as programs see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from unistream.base.config import Configuration
from unistream.base.ids import CheckpointId, VertexId
from unistream.cli.checkpoints import print_checkpoint, print_checkpoints
from unistream.cli.main import main
from unistream.client.embedded import EmbeddedCluster
from unistream.client.lookup import find_job
from unistream.client.rest_client import Poll
from unistream.model.checkpoint_figures import (
    CheckpointFigures,
    CheckpointsInfo,
    RestoredFigures,
    SnapshotStatus,
    Spread,
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
INFO = CheckpointsInfo(
    completed=7,
    failed=1,
    in_progress=1,
    restored=2,
    latest=(figures(10, SnapshotStatus.IN_PROGRESS, vertices=(VERTEX,)), FAILED, figures(8)),
    latest_failed=FAILED,
    latest_restored=RestoredFigures(
        checkpoint_id=CheckpointId(3), kind=SnapshotKind.SAVEPOINT, path="file:///sp", restored_ms=0
    ),
    summary={
        "duration_ms": Spread(
            min=5, max=2_612, average=39.4, p50=11.0, p90=63.0, p95=131, p99=633.2, p999=2_612
        ),
        "state_bytes": Spread(min=1, max=2**20, average=7.5, p50=2, p90=3, p95=4, p99=5, p999=6),
    },
)


def printed(capsys: Capture) -> list[list[str]]:
    """Columns of each line."""
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines if line.strip()]


def test_the_newest_and_how_figures_are_spread(capsys: Capture) -> None:
    print_checkpoints(INFO)
    counts, head, running, failed, done, spreads, durations, sizes, failure, restart = printed(capsys)
    assert counts == ["7 completed, 1 failed, 1 in progress, 2 times restored from one"]
    assert head == [
        "ID",
        "KIND",
        "STATE",
        "STARTED",
        "DURATION",
        "STATE SIZE",
        "NEW",
        "IN FLIGHT",
        "ALIGNMENT",
    ]
    assert [running[:3], running[4:]] == [
        ["10", "checkpoint", "in progress"],
        ["26 ms", "400 b", "100 b", "20 b", "50 ms"],
    ]
    assert failed[:3] == ["9", "savepoint of a drain", "failed"]
    assert [done[:3], done[4:]] == [["8", "checkpoint", "completed"], ["26 ms", "0 b", "0 b", "0 b", "0 ms"]]
    assert spreads == ["MIN", "AVERAGE", "P50", "P90", "P95", "P99", "P99.9", "MAX"]
    assert durations == [
        *("duration", "5 ms", "39 ms", "11 ms", "63 ms", "131 ms", "633 ms", "2.6 s", "2.6 s"),
    ]
    assert sizes == ["state", "1 b", "8 b", "2 b", "3 b", "4 b", "5 b", "6 b", "1 mb"]
    assert failure == ["last failure", "9: IO_EXCEPTION: [full]"]
    assert restart[0] == "last restart"
    assert restart[1].endswith("from savepoint 3: file:///sp")


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
    capsys: Capture, kind: SnapshotKind, form: SavepointFormat | None, reported: str
) -> None:
    print_checkpoints(CheckpointsInfo(completed=1, latest=(figures(5, kind=kind, format=form),)))
    assert printed(capsys)[2][:2] == ["5", reported]


def test_all_that_the_job_remembers_are_shown(capsys: Capture) -> None:
    """How many that are is said by `web.checkpoints.history`."""
    print_checkpoints(CheckpointsInfo(completed=40, latest=tuple(figures(n) for n in range(40, 15, -1))))
    assert [line[0] for line in printed(capsys)[2:]] == [str(n) for n in range(40, 15, -1)]


def test_a_job_without_any(capsys: Capture) -> None:
    print_checkpoints(CheckpointsInfo())
    assert printed(capsys) == [["0 completed, 0 failed, 0 in progress, 0 times restored from one"]]


def test_the_tasks_of_one(capsys: Capture) -> None:
    one = figures(8, vertices=(VERTEX,), path="file:///chk-8", discarded=True)
    print_checkpoint(one)
    *facts, head, missing, acked = printed(capsys)
    assert [fact[0].split(maxsplit=1)[0] for fact in facts] == [
        *("id", "kind", "state", "started", "tasks", "size", "directory"),
    ]
    text = "\n".join(" ".join(fact) for fact in facts)
    assert "1 of 2 have acknowledged" in text
    assert "400 b, 100 b of it new" in text
    assert "file:///chk-8 (discarded)" in text
    assert head == [
        *("TASK", "ACKNOWLEDGED", "DELAY", "ALIGNMENT", "SYNC", "ASYNC"),
        *("STATE SIZE", "NEW", "WHILE ALIGNING", "IN FLIGHT"),
    ]
    assert missing == ["count [k] #0", "no"]
    assert acked == [
        *("count [k] #1", "after 1.5 s, unaligned", "3 ms", "50 ms", "2 ms", "9 ms"),
        *("400 b", "100 b", "10 b", "20 b"),
    ]


def test_why_one_failed(capsys: Capture) -> None:
    print_checkpoint(FAILED)
    assert "IO_EXCEPTION: [full]" in capsys.readouterr().out


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
