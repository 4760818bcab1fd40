"""Checkpoint plans with finished tasks, and which failures of checkpoints a job endures."""

from __future__ import annotations

from typing import Final

from tests.support.conformance.case import Comparison, Json, Shape, entry
from tests.support.conformance.graphs import edge, graph_of, subtask, texts, vertex
from unistream.base.ids import CheckpointId
from unistream.core.checkpoint.failures import FailureCounter
from unistream.core.checkpoint.plan import NotAllRunning, plan_checkpoint
from unistream.core.checkpoint.requests import QueuedRequest, RequestQueue
from unistream.core.graph.plan import ExecutionPlan
from unistream.model.execution_state import ExecutionState
from unistream.model.failure_reason import FailureReason

AFTER_FINISH: Final = ("checkpointsAfterTasksFinish", "allowCheckpointsAfterTasksFinished")
IS_SAVEPOINT: Final = {"savepoint": True, "checkpoint": False}
PRE_FLIGHT: Final = frozenset(  # before any task takes part
    {
        FailureReason.PERIODIC_SCHEDULER_SHUTDOWN,
        FailureReason.TOO_MANY_CHECKPOINT_REQUESTS,
        FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS,
        FailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING,
        FailureReason.IO_EXCEPTION,
        FailureReason.BLOCKING_OUTPUT_EXIST,
    }
)


def _plan(case: Json) -> Comparison:
    graph = graph_of(
        [vertex(name, parallelism) for name, parallelism in case["vertices"]],
        [edge(i, e["from"], e["to"], e["pattern"]) for i, e in enumerate(case["edges"])],
    )
    plan = ExecutionPlan(graph)
    states = dict.fromkeys(plan.subtasks, ExecutionState.RUNNING)
    for name, state in case["states"].items():
        if subtask(name) not in states:
            raise ValueError(f"the case has no subtask {name}")
        states[subtask(name)] = ExecutionState[state]
    after_finish = all(case.get(name, True) for name in AFTER_FINISH)
    found = plan_checkpoint(plan, states, after_finish=after_finish)
    expected = {k: sorted(v) if isinstance(v, list) else v for k, v in case["expected"].items()}
    if isinstance(found, NotAllRunning):
        return Comparison(expected, {"failureReason": FailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING.name})
    actual: Json = {
        "tasksToTrigger": texts(found.to_trigger),
        "tasksToWaitFor": texts(found.to_wait_for),
        "tasksToCommitTo": texts(found.to_wait_for),
        "finishedTasks": texts(found.finished),
        "fullyFinishedVertices": texts(found.fully_finished),
        "mayHaveFinishedTasks": after_finish,
    }
    return Comparison(expected, {k: v for k, v in actual.items() if k in expected})


def _failures_in_a_row(case: Json) -> Comparison:
    counter = FailureCounter(case["tolerableFailures"])
    actual = []
    for event in case["events"]:
        if "success" in event:
            counter.succeeded(CheckpointId(event["success"]))
            actual.append(False)
            continue
        failed = counter.failed(
            None if event["id"] == -1 else CheckpointId(event["id"]),
            FailureReason[event["fail"]],
            savepoint=event.get("savepoint", False),
        )
        actual.append(failed)
    return Comparison([event["failsJob"] for event in case["events"]], actual)


def _reason(case: Json) -> Comparison:
    reason = FailureReason.__members__.get(case["reason"])
    expected = {"counts": case["countsTowardsTolerableFailures"], "before any task": case["preFlight"]}
    if reason is None:
        return Comparison(expected, "no such reason")
    return Comparison(expected, {"counts": reason.counts, "before any task": reason in PRE_FLIGHT})


class _Decider:
    """The product's queue among what Flink's CheckpointRequestDecider looks at in addition: the least pause
    (here the schedule's timers keep it) and snapshots being cleaned up."""

    def __init__(self, case: Json) -> None:
        self._concurrent_max, self._pause_ms = case["maxConcurrent"], case["minPauseMs"]
        self._queue: RequestQueue[str] = RequestQueue(
            concurrent_max=self._concurrent_max, waiting_max=case["maxQueued"]
        )
        self._cleaning = self._pending = 0

    def play(self, step: Json, now_ms: int) -> Json:
        self._cleaning = step.get("cleaning", self._cleaning)
        self._pending = step.get("pending", self._pending)
        said: Json = {"execute": None, "failed": {}, "rescheduleInMs": None}
        rejected = self._queue.offer(_queued(step, now_ms)) if "request" in step else None
        if rejected is not None:
            said["failed"][rejected.what] = FailureReason.TOO_MANY_CHECKPOINT_REQUESTS.name
        if not step.get("isTriggering", False) and self._cleaning <= self._concurrent_max:
            self._choose(said, now_ms - step["lastCompletionMs"])
        return said | {"queued": len(self._queue)}

    def _choose(self, said: Json, since_completion_ms: int) -> None:
        first = self._queue.take(self._pending)
        wait_ms = self._pause_ms - since_completion_ms
        if first is not None and first.is_periodic and not first.is_forced and wait_ms > 0:
            said["failed"][first.what] = FailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS.name
            said["rescheduleInMs"] = wait_ms
        elif first is not None:
            said["execute"] = first.what


def _queued(step: Json, now_ms: int) -> QueuedRequest[str]:
    return QueuedRequest(
        what=step["request"],
        number=now_ms,
        is_savepoint=IS_SAVEPOINT[step["kind"]],
        is_forced=step.get("force", False),
        is_periodic=step["periodic"],
    )


def _queue(case: Json) -> Comparison:
    decider, now_ms = _Decider(case), 0
    expected, actual = [], []
    for step in case["steps"]:
        now_ms = step.get("t", now_ms)
        said = decider.play(step, now_ms)
        expected.append({"rescheduleInMs": None} | step["expected"])
        actual.append({key: said[key] for key in expected[-1]})
    return Comparison(expected, actual)


SHAPES: Final[tuple[Shape, ...]] = (
    entry("plans", "vertices", "edges", "states", "expected", play=_plan),
    entry("failureManager", "tolerableFailures", "events", play=_failures_in_a_row),
    entry("requestQueue", "maxConcurrent", "minPauseMs", "maxQueued", "steps", play=_queue),
    entry("failureReasons", "reason", "countsTowardsTolerableFailures", "preFlight", play=_reason),
)
