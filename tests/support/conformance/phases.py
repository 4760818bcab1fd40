"""Effects of a failure, by the phase of a task's life in which it happens.

A phase names the methods of an operator that throw there: the last operator of T2 throws in each of them, in
one run of the recorded job. Each clause of the effect is compared with the run, for all the methods, or
listed with the test of ours that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final

from tests.support.conformance.case import Case, Comparison, Json, Shape, skipped
from tests.support.conformance.prose import in_words
from tests.support.conformance.recorded_job import TIMER_MS, RecordedJob
from tests.support.conformance.wire import final_checkpoint, run_upstream, written
from unistream.base.ids import SubtaskId, VertexId
from unistream.model.messages import CheckpointDeclined, TaskStateChanged
from unistream.model.snapshot_kind import SnapshotKind

TASK: Final = "T2"
CHAIN: Final = ("B", "C")  # of T2, head first; C throws
METHODS: Final = (
    "initializeState",
    "open",
    "processElement",
    "processWatermark",
    "timer",
    "prepareSnapshotPreBarrier",
    "snapshotState",
    "notifyCheckpointComplete",
    "notifyCheckpointAborted",
    "endInput",
    "finish",
    "close",
)
ASYNC: Final = "async"  # not a method: the state that was taken cannot be stored


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        state: The final state of T2.
        during: The last state that T2 had reported before it failed.
        located: The failure is the user's, and names the operator.
        declined: Checkpoints that T2 declined.
        wire: Output of T2.
        behind: Calls of T4, which reads from it.
        opened, closed: Operators of T2 in the order of these calls.
        continues: A checkpoint after the failure completed.
    """

    state: str
    during: str
    located: bool
    declined: list[int]
    wire: list[str]
    behind: list[str]
    opened: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    continues: bool = False


# --- running --------------------------------------------------------------------------------------


@cache
def run(method: str) -> Run:
    """All phases in turn, until T2 fails in `method`: once with all tasks, once for what it writes."""
    fail = None if method == ASYNC else (CHAIN[-1], method)
    recorded, alone = RecordedJob(fail), RecordedJob(fail)
    continues = _drive(recorded, recorded.job.run, broken=method == ASYNC)
    wire = _drive_alone(alone)
    task = recorded.job.task(TASK)
    states = [
        report.state
        for report in recorded.job.reports
        if isinstance(report, TaskStateChanged) and report.attempt == task.deployment.attempt
    ]
    failure = recorded.job.failures.get(SubtaskId(VertexId(TASK), 0))
    calls = recorded.traces[TASK]
    return Run(
        state=task.state.name,
        during=next((state for state in reversed(states) if state != "FAILED"), "CREATED"),
        located=failure is not None
        and failure.kind == "UserCodeError"
        and f"operator {CHAIN[-1]!r} (uid {CHAIN[-1]!r}), subtask 1/1" in failure.message,
        declined=[
            report.checkpoint_id
            for report in recorded.job.reports
            if isinstance(report, CheckpointDeclined) and report.attempt == task.deployment.attempt
        ],
        wire=wire,
        behind=recorded.traces["T4"],
        opened=[name for name, _, call in map(_split, calls) if call == "open"],
        closed=[name for name, _, call in map(_split, calls) if call == "close"],
        continues=continues,
    )


def _split(call: str) -> tuple[str, str, str]:
    """``C close``; what throws (``!! C throws in close``) is no call."""
    return call.partition(" ")


def _drive(recorded: RecordedJob, go: Callable[[], None], *, broken: bool) -> bool:
    """Rows, a timer, a checkpoint, one that is aborted, and the end; or a checkpoint that cannot be stored,
    and one more. True: that one completed."""
    job = recorded.job
    go()
    for _ in range(2):
        recorded.sources["T1"].put_row()
    recorded.sources["T3"].put_row()
    go()
    job.clock.now_ms += TIMER_MS
    go()
    if broken:
        job.trigger(SnapshotKind.CHECKPOINT)
        job.run(recorded.subtasks(["T1", "T3"]))
        job.store.fail_writes = OSError("no space left")
        go()
        job.store.fail_writes = None
        later = job.trigger(SnapshotKind.CHECKPOINT)
        go()
        return later.completed
    job.trigger(SnapshotKind.CHECKPOINT)
    go()
    job.abort(job.trigger(SnapshotKind.CHECKPOINT).checkpoint_id)
    go()
    for source in recorded.sources.values():
        source.end()
    go()
    if not job.failures:
        job.trigger(SnapshotKind.CHECKPOINT)
        go()
    return False


def _drive_alone(recorded: RecordedJob) -> list[str]:
    """The same without the reader of T2, so that what it writes can be seen."""
    job = recorded.job
    for _ in range(2):
        recorded.sources["T1"].put_row()
    run_upstream(recorded, TASK)
    job.clock.now_ms += TIMER_MS
    run_upstream(recorded, TASK)
    snapshot = job.trigger(SnapshotKind.CHECKPOINT)
    run_upstream(recorded, TASK)
    job.complete(snapshot.checkpoint_id)
    run_upstream(recorded, TASK)
    job.abort(job.trigger(SnapshotKind.CHECKPOINT).checkpoint_id)
    run_upstream(recorded, TASK)
    recorded.sources["T1"].end()
    run_upstream(recorded, TASK)
    if not job.failures:
        final_checkpoint(recorded, TASK)
    return written(recorded, TASK)


# --- clauses --------------------------------------------------------------------------------------


def _task(found: re.Match[str], did: Run) -> tuple[object, object]:
    return [found[1], found[1] == "FAILED"], [did.state, did.located]


def _barrier(found: re.Match[str], did: Run) -> tuple[object, object]:
    return found[1] == "after", any(name.startswith("CheckpointBarrier") for name in did.wire)


def _sent_at_end(_found: re.Match[str], did: Run) -> tuple[object, object]:
    """Nothing more than the end of time, which came before the end of the input."""
    return ["Watermark(MAX)"], did.wire[did.wire.index("Watermark(MAX)") :]


def _also_unopened(_found: re.Match[str], did: Run) -> tuple[object, object]:
    unopened = [name for name in CHAIN if name not in did.opened]
    return [True, unopened], [bool(unopened), [name for name in unopened if name in did.closed]]


CLAUSES: Final[Mapping[str, Callable[[re.Match[str], Run], tuple[object, object]]]] = {
    r"task (FAILED|CANCELED|FINISHED)": _task,
    r"task keeps (running)": lambda found, did: ([found[1].upper(), True], [did.state, did.continues]),
    r"state ([A-Z]+)": lambda found, did: (found[1], did.during),
    r"all operators of the chain closed": lambda _, did: (sorted(CHAIN), sorted(did.closed)),
    r"remaining operators closed": lambda _, did: (sorted(CHAIN), sorted(did.closed)),
    r"also unopened ones": _also_unopened,
    r"close tail->head": lambda _, did: ([*reversed(CHAIN)], did.closed),
    r"(before|after) the barrier (?:is|was) emitted": _barrier,
    r"downstream may already have snapshotted": lambda _, did: (True, "E snapshotState(1)" in did.behind),
    r"checkpoint declined": lambda _, did: ([1], did.declined),
    r"nothing forwarded": _sent_at_end,
    r"no EndOfData": lambda _, did: (False, any(name.startswith("EndOfData") for name in did.wire)),
}


def clauses(effect: str) -> list[str]:
    """``a (b: c); d, e`` is five of them; a task's new state is a clause by itself."""
    parts = re.split(r"[;:,]\s+|\s*\(|\)\s*", effect)
    split = (re.split(r"(?<=^task [A-Z]{6}) (?=before |after )", part) for part in parts)
    return [clause.strip() for part in split for clause in part if clause.strip()]


def _read(name: str, case: Json, _section: Any) -> Iterator[Case]:
    phase, effect = case["phase"], case["effect"]
    words = re.findall(r"[A-Za-z]+", phase)
    methods = [ASYNC] if ASYNC in words else [word for word in words if word in METHODS]
    if not methods:
        yield skipped(name, in_words("failurePhases", phase))
        return
    for clause in clauses(effect):
        played = ((re.fullmatch(pattern, clause), check) for pattern, check in CLAUSES.items())
        found = next(((match, check) for match, check in played if match is not None), None)
        title = f"{name}: {clause}"
        if found is None:
            yield skipped(title, in_words("failurePhases", clause))
        else:
            yield Case(title, partial(_clause, methods, *found))


def _clause(
    methods: list[str], found: re.Match[str], check: Callable[[re.Match[str], Run], tuple[object, object]]
) -> Comparison:
    sides = {method: check(found, run(method)) for method in methods}
    return Comparison({m: side[0] for m, side in sides.items()}, {m: side[1] for m, side in sides.items()})


SHAPES: Final[tuple[Shape, ...]] = (Shape("failurePhases", frozenset({"phase", "effect"}), _read),)
