"""Which channel a producer's stream serves next, and what wakes one that waits."""

from __future__ import annotations

import pytest

from unistream.base.errors import ProtocolError, Unreachable
from unistream.base.ids import AttemptId, EdgeId, JobId, TaskManagerId, VertexId
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import Element
from unistream.net import frames
from unistream.net.outbox import OutChannel, StreamOutbox

CHANNEL = ChannelDescriptor(
    producer=AttemptId(JobId("j"), VertexId("v"), 3, 1),
    edge=EdgeId("e"),
    subpartition=2,
    task_manager=TaskManagerId("tm"),
    address="grpc+tcp://127.0.0.1:1",
)


class View:
    def peek(self) -> Element | None:
        return None

    def poll(self) -> Element | None:
        return None

    def poll_urgent(self) -> None:
        return None

    def release(self, error: BaseException | None) -> None:
        """Nothing is held."""


def outbox(*credits: int) -> tuple[StreamOutbox, list[OutChannel]]:
    """With channels that are parked."""
    box = StreamOutbox()
    channels = [OutChannel(number, credit, CHANNEL) for number, credit in enumerate(credits)]
    for channel in channels:
        box.check_new(channel.number)
        channel.view = View()
        box.add(channel)
    assert box.take() == [frames.Accepted(n) for n in range(len(credits))]
    assert [box.take() for _ in channels] == channels
    return box, channels


def test_channels_are_served_in_turn_and_each_waits_once() -> None:
    box, (a, b) = outbox(1, 1)
    for channel in (a, b, a, a):
        box.wake(channel)
    assert box.take() is a
    box.wake(a)
    assert [box.take(), box.take()] == [b, a]


def test_answers_go_before_elements_and_together() -> None:
    box, (a,) = outbox(1)
    box.wake(a)
    box.answer(frames.Absent(5))
    box.answer(frames.Absent(6))
    assert box.take() == [frames.Absent(5), frames.Absent(6)]
    assert box.take() is a


def test_more_answers_than_a_message_holds_are_taken_in_parts() -> None:
    box = StreamOutbox()
    for number in range(frames.ANSWERS_MAX + 1):
        box.answer(frames.Absent(number))
    sizes = []
    for _ in range(2):
        taken = box.take()
        assert isinstance(taken, list)
        sizes.append(len(taken))
    assert sizes == [frames.ANSWERS_MAX, 1]


def test_a_grant_wakes_who_lacked_it_when_it_is_enough() -> None:
    box, (a, b) = outbox(10, 10)
    assert box.has_credit(b, 10)
    assert not box.has_credit(a, 30)
    box.grant(b.number, 100)  # it lacks nothing: it is not woken for it
    box.grant(a.number, 19)
    box.wake(b)
    box.grant(a.number, 1)
    assert [box.take(), box.take()] == [b, a]
    assert box.has_credit(a, 30)
    box.spend(a, 30)
    assert not box.has_credit(a, 1)


def test_a_channel_whose_view_is_being_opened_is_not_served() -> None:
    box = StreamOutbox()
    channel = OutChannel(0, 1, CHANNEL)
    box.check_new(0)
    box.wake(channel)  # by the partition, before `open_subpartition` has returned
    box.answer(frames.Absent(1))
    assert box.take() == [frames.Absent(1)]
    channel.view = View()
    box.add(channel)
    assert box.take() == [frames.Accepted(0)]
    assert box.take() is channel


def test_one_of_two_takes_a_channel_out() -> None:
    box, (a, b) = outbox(1, 1)
    assert box.drop(a.number) is a
    assert box.drop(a.number) is None
    assert not box.has(a)
    box.grant(a.number, 1)  # it crossed the end of the channel
    assert box.drop_all() == [b]
    assert box.drop_all() == []


@pytest.mark.parametrize("late", ["grant", "drop"])
def test_a_number_that_was_never_opened_is_a_protocol_error(late: str) -> None:
    box, _ = outbox(1)
    with pytest.raises(ProtocolError, match="channel 1 was never opened"):
        box.grant(1, 1) if late == "grant" else box.drop(1)


def test_a_number_in_use_and_one_channel_too_many_are_protocol_errors() -> None:
    box = StreamOutbox()
    for number in range(frames.CHANNELS_MAX):
        box.check_new(number)
        box.add(OutChannel(number, 1, CHANNEL))
    with pytest.raises(ProtocolError, match="channel 3 is open and was opened again"):
        box.check_new(3)
    with pytest.raises(ProtocolError, match=f"at most {frames.CHANNELS_MAX} open channels"):
        box.check_new(frames.CHANNELS_MAX)


def test_the_first_reason_to_stop_counts_and_nothing_is_done_after_it() -> None:
    box, (a,) = outbox(1)
    box.wake(a)
    closes = Unreachable("the server closes")
    box.stop(closes)
    box.stop(None)
    assert box.take() is None
    assert box.reason is closes
