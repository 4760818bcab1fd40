"""An input ends while a checkpoint is under way, with and without checkpoints after tasks have finished."""

from __future__ import annotations

import pytest

from unistream.base.config import Configuration
from unistream.base.ids import CheckpointId
from unistream.core.task import Abort, Action, BarrierSettings, Trigger
from unistream.core.task.barriers import AbortReason
from unistream.model.elements import CheckpointBarrier
from unistream.model.snapshot_kind import SnapshotKind

OFF = {"execution.checkpointing.checkpoints-after-tasks-finish": "false"}
AT_LEAST_ONCE = {"execution.checkpointing.mode": "AT_LEAST_ONCE"}
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
FIRST = CheckpointBarrier(CheckpointId(1), 0, SnapshotKind.CHECKPOINT)


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param({}, id="aligned"),
        pytest.param(AT_LEAST_ONCE, id="at least once"),
        pytest.param(UNALIGNED, id="unaligned, by an aligned barrier"),
    ],
)
@pytest.mark.parametrize(
    ("option", "then"),
    [
        pytest.param({}, Trigger(FIRST), id="the other inputs are enough"),
        pytest.param(OFF, Abort(CheckpointId(1), AbortReason.INPUT_ENDED), id="switched off: it is given up"),
    ],
)
def test_an_input_ends_behind_a_barrier_of_another(
    mode: dict[str, str], option: dict[str, str], then: Action
) -> None:
    handler = BarrierSettings.of(Configuration(mode | option)).handler(2)
    assert handler.on_barrier(0, FIRST, 0) == []
    assert handler.on_end_of_partition(1, 1)[-1] == then
