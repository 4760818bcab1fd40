"""When a simulated job is stuck in one failure."""

from __future__ import annotations

from typing import Any

import pytest

from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.model.file_ref import FileRef
from unistream.model.job_info import ExceptionInfo
from unistream.model.snapshot import (
    ListHandle,
    ListMode,
    Manifest,
    OperatorStateHandle,
    TaskSnapshot,
    VertexSnapshot,
)
from unistream.model.snapshot_kind import SnapshotKind
from unistream.testing.simulation.failures import EQUAL_MAX, STANDING_MAX, Failures, reached, said

WHERE = "operator 'files committer' (uid 'out-committer'), subtask 1/2"


def failure(number: int, text: str, kind: str = "UserCodeError") -> ExceptionInfo:
    return ExceptionInfo(
        at_ms=number, kind=kind, message=text, attempt=f"job/v#0.{number}", task_name="v (1/1)"
    )


def looked(
    failures: list[ExceptionInfo], *, checkpoints: dict[int, int] | None = None, healed: bool = False
) -> tuple[int, str | None]:
    """How many were looked at, and what was said then. `checkpoints`: before which failure one completed."""
    seen, checkpoint = Failures(), 0
    for number, one in enumerate(failures):
        checkpoint = (checkpoints or {}).get(number, checkpoint)
        stuck = seen.look([one], checkpoint, healed=healed)
        if stuck is not None:
            return number + 1, stuck
    return len(failures), None


MANY = EQUAL_MAX + 5


@pytest.mark.parametrize(
    ("failures", "options", "count"),
    [
        pytest.param([failure(n, f"{WHERE}: no") for n in range(MANY)], {}, EQUAL_MAX, id="equal ones"),
        pytest.param(
            [failure(n, f"operator 'm' (uid 'm'), subtask {n}/99: tx{n:032x}") for n in range(MANY)],
            {},
            EQUAL_MAX,
            id="numbers, transactions and subtasks differ",
        ),
        pytest.param(
            [
                failure(n, f"{WHERE}, {'restoring its state' if n else 'working in the background'}: no")
                for n in range(MANY)
            ],
            {},
            EQUAL_MAX,
            id="what it was doing differs",
        ),
        pytest.param(
            [failure(n, f"{WHERE}: {'ab'[n % 2]}") for n in range(2 * EQUAL_MAX)],
            {},
            2 * EQUAL_MAX - 1,
            id="two by turns",
        ),
        pytest.param(
            [failure(n, f"{WHERE}: no") for n in range(MANY)],
            {"checkpoints": {10: 3}},
            MANY,
            id="a checkpoint completes between them",
        ),
        pytest.param(
            [failure(n, f"{WHERE}: no") for n in range(2 * MANY)],
            {"checkpoints": {10: 3}},
            EQUAL_MAX + 10,
            id="and then no other",
        ),
        pytest.param([failure(1, f"{WHERE}: no")] * MANY, {}, MANY, id="one that is seen again"),
        pytest.param(
            [failure(n, f"no answer (in {WHERE}, committing)", "Unreachable") for n in range(MANY)],
            {},
            MANY,
            id="no answer, while there are faults",
        ),
        pytest.param(
            [failure(n, f"no answer (in {WHERE}, committing)", "Unreachable") for n in range(MANY)],
            {"healed": True},
            EQUAL_MAX,
            id="no answer, without any fault",
        ),
        pytest.param(
            [failure(n, "tm-000002 is lost", "WorkerLost") for n in range(MANY)],
            {"healed": True},
            MANY,
            id="not in an operator",
        ),
    ],
)
def test_stuck(failures: list[ExceptionInfo], options: dict[str, object], count: int) -> None:
    seen, stuck = looked(failures, **options)  # type: ignore[arg-type]
    assert seen == count
    assert (stuck is None) is (count == len(failures))
    if stuck is not None:
        assert stuck.startswith(f"the job keeps failing: {EQUAL_MAX} times, with no checkpoint in between, ")
        assert stuck.endswith(said(failures[count - 1]))


def behind(checkpoint: int, **changes: Any) -> Manifest:
    """A checkpoint in which a source has two subtasks, and its splits stand at 7 and 9."""
    given: dict[str, Any] = {
        "splits": (b"a 7", b"b 9"),
        "finished": (),
        "waiting": b"",
        "file": None,
    } | changes
    handles = [
        ListHandle(name="splits", mode=ListMode.SPLIT, count=1, inline=(split,)) for split in given["splits"]
    ]
    if given["file"] is not None:
        handles[0] = ListHandle(name="splits", mode=ListMode.SPLIT, count=1, file=given["file"])
    other = ListHandle(name="other", mode=ListMode.SPLIT, count=1, inline=(str(checkpoint).encode(),))
    tasks = tuple(
        TaskSnapshot(operators={OperatorUid("s"): OperatorStateHandle(lists=(one, other))}) for one in handles
    )
    vertex = VertexSnapshot(
        vertex=VertexId("v"),
        name="v",
        operators=(OperatorUid("s"),),
        parallelism=2,
        max_parallelism=2,
        subtasks=tasks,
        finished_subtasks=given["finished"],
        coordinator=given["waiting"],
    )
    return Manifest(
        job=JobId("job"),
        job_name="job",
        lineage=LineageId("l"),
        checkpoint_id=CheckpointId(checkpoint),
        kind=SnapshotKind.CHECKPOINT,
        timestamp_ms=checkpoint,
        vertices=(vertex,),
    )


@pytest.mark.parametrize(
    ("changes", "stuck"),
    [
        pytest.param({}, True, id="nothing is read"),
        pytest.param({"splits": (b"b 9", b"a 7")}, True, id="a split has gone to another subtask"),
        pytest.param({"splits": (b"a 8", b"b 9")}, False, id="a row is read"),
        pytest.param({"finished": (1,)}, False, id="a task has finished"),
        pytest.param({"waiting": b"one less"}, False, id="a split is given out"),
        pytest.param({"file": FileRef(path="f", size=1, sha256="0" * 64)}, False, id="positions in a file"),
    ],
)
def test_a_job_that_fails_behind_each_checkpoint_is_stuck_when_it_reads_nothing(
    changes: dict[str, object], stuck: bool
) -> None:
    seen, said_at = Failures(), None
    for number in range(STANDING_MAX):
        manifest = behind(number, **(changes if number > STANDING_MAX // 2 else {}))
        one = failure(number, f"{WHERE}, committing checkpoint {number}: no")
        said_at = seen.look([one], number, healed=False, reached=reached(manifest))
        assert (said_at is None) is (not stuck or number + 1 < STANDING_MAX)
    if stuck:
        assert said_at is not None
        assert f"{STANDING_MAX} times, with checkpoints in between, but no input, " in said_at


def test_the_failure_that_came_most_often_is_named() -> None:
    failures = Failures()
    assert failures.most() == ""
    for number, text in enumerate(["a", "b", "b"]):
        failures.look([failure(number, f"{WHERE}: {text}")], number, healed=False)
    assert failures.most() == f"; most often, 2 times: {WHERE}: b"


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        pytest.param(
            failure(1, f"{WHERE}: ValueError: no\nmore"), f"{WHERE}: ValueError: no", id="user code"
        ),
        pytest.param(failure(1, "gone", "Unreachable"), "Unreachable: gone (in v (1/1))", id="of a task"),
        pytest.param(failure(1, f"x (in {WHERE})", "Fenced"), f"Fenced: x (in {WHERE})", id="of an operator"),
        pytest.param(
            ExceptionInfo(
                at_ms=1, kind="JobFailed", message="no restarts", concurrent=(failure(1, f"{WHERE}: no"),)
            ),
            f"{WHERE}: no",
            id="of a job that may not restart",
        ),
    ],
)
def test_a_failure_in_one_sentence(failure: ExceptionInfo, text: str) -> None:
    assert said(failure) == text
