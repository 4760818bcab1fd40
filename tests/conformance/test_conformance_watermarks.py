"""Watermark valve, combined watermark and aligned barriers against vectors computed by Flink 2.3.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unistream.base.ids import CheckpointId
from unistream.core.alignment import Abort, Action, BarrierAligner
from unistream.core.watermark import CombinedWatermark, Signal, StatusWatermarkValve
from unistream.model.elements import Watermark

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "watermarks.json").read_text())
SKIPPED_HANDLERS = {
    "tracker": "at-least-once comes later",
    "alternating": "aligned with a timeout and unaligned come later",
    "unaligned": "unaligned comes later",
}


def _written(signal: Signal) -> dict[str, Any]:
    if isinstance(signal, Watermark):
        return {"watermark": signal.timestamp}
    return {"status": "IDLE" if signal.idle else "ACTIVE"}


def _play(machine: StatusWatermarkValve | CombinedWatermark, steps: list[dict[str, Any]], key: str) -> None:
    for number, step in enumerate(steps):
        if "watermark" in step:
            out = machine.on_watermark(step[key], step["watermark"])
        else:
            out = machine.on_status(step[key], step["status"] == "IDLE")
        assert [_written(s) for s in out] == step["out"], (number, step)


@pytest.mark.parametrize("case", VECTORS["watermarkValve"], ids=lambda c: c["name"])
def test_valve(case: dict[str, Any]) -> None:
    _play(StatusWatermarkValve(case["channels"]), case["steps"], "channel")


@pytest.mark.parametrize("case", VECTORS["combinedWatermark"], ids=lambda c: c["name"])
def test_combined(case: dict[str, Any]) -> None:
    _play(CombinedWatermark(case["inputs"]), case["steps"], "input")


def _action(action: Action) -> dict[str, Any]:
    if isinstance(action, Abort):
        return {"abort": action.checkpoint_id, "reason": action.reason.value}
    return {"trigger": action.checkpoint_id}


def _step(aligner: BarrierAligner, step: dict[str, Any]) -> list[Action]:
    channel = step["ch"]
    if "barrier" in step:
        return aligner.on_barrier(channel, CheckpointId(step["barrier"]))
    if "cancel" in step:
        return aligner.on_cancel(channel, CheckpointId(step["cancel"]))
    if "endOfPartition" in step:
        return aligner.on_end_of_partition(channel)
    assert "buffer" in step
    return []


@pytest.mark.parametrize("case", VECTORS["barrierHandling"], ids=lambda c: f"{c['handler']}: {c['name']}")
def test_barrier_handling(case: dict[str, Any]) -> None:
    if case["handler"] in SKIPPED_HANDLERS:
        pytest.skip(SKIPPED_HANDLERS[case["handler"]])
    if case.get("checkpointsAfterTasksFinish") is False:
        pytest.skip("checkpoints after tasks finish cannot be turned off")
    aligner = BarrierAligner(case["channels"])
    for number, step in enumerate(case["steps"]):
        actions = _step(aligner, step)
        assert [_action(a) for a in actions] == step["out"], (number, step)
        assert sorted(aligner.blocked) == step["blocked"], (number, step)
    end = case["end"]
    assert (-1 if aligner.latest is None else aligner.latest) == end["latestCheckpointId"]
    assert (aligner.pending is not None) == end["checkpointPending"]
    assert aligner.open_channels == end["openChannels"]
