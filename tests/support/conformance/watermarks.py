"""Watermark valves, combined watermarks and barrier handlers, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.support.conformance.case import Comparison, Json, Shape, SkipCase, entry
from unistream.base.ids import CheckpointId
from unistream.core.task.alignment import BarrierAligner
from unistream.core.task.barriers import (
    Abort,
    Action,
    BarrierHandler,
    Prioritize,
    StartPersisting,
    StopPersisting,
    Trigger,
)
from unistream.core.task.barriers_alternating import AlternatingAligner
from unistream.core.task.barriers_tracker import BarrierTracker
from unistream.core.task.watermark import CombinedWatermark, Signal, StatusWatermarkValve
from unistream.model.elements import AlignmentType, CheckpointBarrier, Watermark
from unistream.model.snapshot_kind import SnapshotKind

IDLE: Final = {"IDLE": True, "ACTIVE": False}
BARRIERS: Final = {
    "aligned": AlignmentType.ALIGNED,
    "timeout": AlignmentType.ALIGNED,
    "unaligned": AlignmentType.UNALIGNED,
}


def _written(signal: Signal) -> Json:
    if isinstance(signal, Watermark):
        return {"watermark": signal.timestamp}
    return {"status": next(name for name, idle in IDLE.items() if idle == signal.idle)}


def _play(machine: StatusWatermarkValve | CombinedWatermark, case: Json, key: str) -> Comparison:
    actual = []
    for step in case["steps"]:
        if "watermark" in step:
            out = machine.on_watermark(step[key], step["watermark"])
        else:
            out = machine.on_status(step[key], IDLE[step["status"]])
        actual.append([_written(signal) for signal in out])
    return Comparison([step["out"] for step in case["steps"]], actual)


def _valve(case: Json) -> Comparison:
    return _play(StatusWatermarkValve(case["channels"]), case, "channel")


def _combined(case: Json) -> Comparison:
    return _play(CombinedWatermark(case["inputs"]), case, "input")


def _handler(case: Json) -> BarrierHandler:
    channels, after = case["channels"], case.get("checkpointsAfterTasksFinish", True)
    match case["handler"]:
        case "tracker":
            return BarrierTracker(channels, after_tasks_finish=after)
        case "aligned":
            return BarrierAligner(channels, after_tasks_finish=after)
        case "alternating" | "unaligned":
            return AlternatingAligner(channels, after_tasks_finish=after)
        case other:
            raise SkipCase(f"no handler is called {other!r}")


def _action(action: Action) -> Json:
    match action:
        case Trigger(barrier=barrier):
            overtook = barrier.alignment is AlignmentType.UNALIGNED
            return {"trigger": barrier.checkpoint_id} | ({"alignment": "UNALIGNED"} if overtook else {})
        case Abort(checkpoint_id=checkpoint_id, reason=reason):
            return {"abort": checkpoint_id, "reason": reason.value}
        case StartPersisting(checkpoint_id=checkpoint_id):
            return {"startPersistingInputs": checkpoint_id}
        case StopPersisting(checkpoint_id=checkpoint_id):
            return {"stopPersistingInputs": checkpoint_id}
        case Prioritize(channel=channel):
            return {"convertToPriorityEvent": channel}


def _actions(handler: BarrierHandler, actions: Sequence[Action]) -> list[Json]:
    """With Flink's action before a snapshot that may have rows in flight; here nothing has to be opened."""
    out: list[Json] = []
    opens = isinstance(handler, AlternatingAligner)
    for former, action in zip((None, *actions), actions, strict=False):
        if (
            opens
            and isinstance(action, StartPersisting | Trigger)
            and not isinstance(former, StartPersisting)
        ):
            out.append({"initInputsCheckpoint": action.checkpoint_id})
        out.append(_action(action))
    return out


class _Steps:
    """Plays the steps of one case on its handler, with a clock that the case moves."""

    def __init__(self, case: Json) -> None:
        self.handler = _handler(case)
        self._type = "unaligned" if case["handler"] == "unaligned" else "aligned"
        self._now_ms = 0
        self._seen_ms: dict[int, int] = {}

    def play(self, step: Json) -> list[Action]:
        handler = self.handler
        if "advanceMs" in step:
            self._now_ms += step["advanceMs"]
            return [] if step.get("withoutTimers") else handler.on_time(self._now_ms)
        channel = step["ch"]
        if "barrier" in step:
            return handler.on_barrier(channel, self._barrier(step["barrier"], step), self._now_ms)
        if "announce" in step:
            return handler.on_announcement(channel, self._barrier(step["announce"], step))
        if "cancel" in step:
            return handler.on_cancel(channel, CheckpointId(step["cancel"]))
        if "endOfPartition" in step:
            return handler.on_end_of_partition(channel, self._now_ms)
        assert "buffer" in step, step
        return []

    def _barrier(self, checkpoint_id: int, step: Json) -> CheckpointBarrier:
        kind = step.get("type", self._type)
        return CheckpointBarrier(
            CheckpointId(checkpoint_id),
            step.get("ts", self._seen_ms.setdefault(checkpoint_id, self._now_ms)),
            SnapshotKind.SAVEPOINT if step.get("savepoint") else SnapshotKind.CHECKPOINT,
            alignment=BARRIERS[kind],
            timeout_ms=step["timeoutMs"] if kind == "timeout" else None,
        )


def _barriers(case: Json) -> Comparison:
    """Only the results that the case has for a step, or for the end, are compared."""
    steps = _Steps(case)
    handler = steps.handler
    actual: list[Json] = []
    for step in case["steps"]:
        done = {"out": _actions(handler, steps.play(step)), "blocked": sorted(handler.blocked)}
        actual.append({key: done[key] for key in done if key in step})
    end: Json = {
        "latestCheckpointId": -1 if handler.latest is None else handler.latest,
        "checkpointPending": handler.pending is not None,
        "openChannels": handler.open_channels,
    }
    if isinstance(handler, BarrierTracker):
        end["pendingCheckpointIds"] = [pending.checkpoint_id for pending in handler._pending]
    expected = [{key: step[key] for key in ("out", "blocked") if key in step} for step in case["steps"]]
    return Comparison([*expected, case["end"]], [*actual, {key: end.get(key) for key in case["end"]}])


SHAPES: Final[tuple[Shape, ...]] = (
    entry("watermarkValve", "channels", "steps", play=_valve),
    entry("combinedWatermark", "inputs", "steps", play=_combined),
    entry("barrierHandling", "handler", "channels", "steps", "end", play=_barriers),
)
