"""What a task knows of its stored inputs."""

from __future__ import annotations

from typing import Any

import pytest

from unistream.base.ids import AttemptId, EdgeId, JobId, TaskManagerId, VertexId
from unistream.base.limits import MAX_WATERMARK
from unistream.model.deployment import ChannelDescriptor, GateDescriptor
from unistream.model.elements import EndOfData, EndOfPartition, Watermark
from unistream.worker.exchange import EndedPartitions, LocalInputChannel, StoredInputs


def channel(*, stored: bool = True, ended: bool = False) -> ChannelDescriptor:
    return ChannelDescriptor(
        producer=AttemptId(JobId("j"), VertexId("p"), 0, 0),
        edge=EdgeId("e"),
        subpartition=0,
        task_manager=TaskManagerId("tm"),
        address="at",
        stored=stored,
        ended=ended,
    )


class Deployment:
    """Of its fields only the gates matter here."""

    def __init__(self, *gates: GateDescriptor) -> None:
        self.gates = gates


@pytest.mark.parametrize(
    ("ends", "last"),
    [
        pytest.param([0], [False], id="it is not stored"),
        pytest.param([1, 2], [False, True], id="the last of two"),
        pytest.param([2, 0, 1], [False, False, True], id="in any order"),
        pytest.param([1, 2, 2], [False, True, False], id="it is reported once"),
    ],
)
def test_the_end_of_the_last_stored_channel_is_told(ends: list[int], last: list[bool]) -> None:
    second = GateDescriptor(input_index=1, channels=(channel(),))
    first = GateDescriptor(input_index=0, channels=(channel(stored=False), channel()))
    deployment: Any = Deployment(second, first)
    stored = StoredInputs(deployment)
    assert [stored.on_end_of_partition(number) for number in ends] == last


def test_of_an_ended_partition_only_the_end_is_left() -> None:
    woken: list[int] = []
    reader = LocalInputChannel(channel(ended=True), EndedPartitions())
    reader.open(lambda: woken.append(1))
    assert woken, "there is something to read at once"
    read = [reader.poll() for _ in range(4)]
    assert read == [Watermark(MAX_WATERMARK), EndOfData(True), EndOfPartition(), None]
    reader.close()
