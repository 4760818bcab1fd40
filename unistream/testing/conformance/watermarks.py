"""Watermark valves, combined watermarks and barrier handlers, step by step."""

from __future__ import annotations

from typing import Final

from unistream.base.ids import CheckpointId
from unistream.core.alignment import Abort, Action, BarrierAligner
from unistream.core.watermark import CombinedWatermark, Signal, StatusWatermarkValve
from unistream.model.elements import Watermark
from unistream.testing.conformance.case import Comparison, Json, Shape, SkipCase, entry

SKIPPED_HANDLERS: Final = {
    "tracker": "at-least-once is not built yet: barriers are aligned",
    "alternating": "aligned with a timeout is not built yet: barriers are aligned",
    "unaligned": "unaligned checkpoints are not built yet: barriers are aligned",
}


def _written(signal: Signal) -> Json:
    if isinstance(signal, Watermark):
        return {"watermark": signal.timestamp}
    return {"status": "IDLE" if signal.idle else "ACTIVE"}


def _play(machine: StatusWatermarkValve | CombinedWatermark, case: Json, key: str) -> Comparison:
    actual = []
    for step in case["steps"]:
        if "watermark" in step:
            out = machine.on_watermark(step[key], step["watermark"])
        else:
            out = machine.on_status(step[key], step["status"] == "IDLE")
        actual.append([_written(signal) for signal in out])
    return Comparison([step["out"] for step in case["steps"]], actual)


def _valve(case: Json) -> Comparison:
    return _play(StatusWatermarkValve(case["channels"]), case, "channel")


def _combined(case: Json) -> Comparison:
    return _play(CombinedWatermark(case["inputs"]), case, "input")


def _action(action: Action) -> Json:
    if isinstance(action, Abort):
        return {"abort": action.checkpoint_id, "reason": action.reason.value}
    return {"trigger": action.checkpoint_id}


def _step(aligner: BarrierAligner, step: Json) -> list[Action]:
    channel = step["ch"]
    if "barrier" in step:
        return aligner.on_barrier(channel, CheckpointId(step["barrier"]))
    if "cancel" in step:
        return aligner.on_cancel(channel, CheckpointId(step["cancel"]))
    if "endOfPartition" in step:
        return aligner.on_end_of_partition(channel)
    assert "buffer" in step, step
    return []


def _barriers(case: Json) -> Comparison:
    if case["handler"] in SKIPPED_HANDLERS:
        raise SkipCase(SKIPPED_HANDLERS[case["handler"]])
    if case.get("checkpointsAfterTasksFinish") is False:
        raise SkipCase("checkpoints after tasks finish cannot be turned off")
    assert case["handler"] == "aligned", case["handler"]
    aligner = BarrierAligner(case["channels"])
    actual = [
        {"out": [_action(a) for a in _step(aligner, step)], "blocked": sorted(aligner.blocked)}
        for step in case["steps"]
    ]
    end = {
        "latestCheckpointId": -1 if aligner.latest is None else aligner.latest,
        "checkpointPending": aligner.pending is not None,
        "openChannels": aligner.open_channels,
    }
    expected = [{"out": step["out"], "blocked": step["blocked"]} for step in case["steps"]]
    return Comparison([*expected, {key: case["end"][key] for key in end}], [*actual, end])


SHAPES: Final[tuple[Shape, ...]] = (
    entry("watermarkValve", "channels", "steps", play=_valve),
    entry("combinedWatermark", "inputs", "steps", play=_combined),
    entry("barrierHandling", "handler", "channels", "steps", "end", play=_barriers),
)
PROSE: Final[dict[str, str]] = {}
