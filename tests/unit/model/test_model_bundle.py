"""Many messages in one request: how they are divided, and what each is answered."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.base.errors import ProtocolError
from unistream.base.ids import AttemptId, JobId, TaskManagerId, VertexId
from unistream.base.limits import BUNDLE_MESSAGES_MAX, FRAME_BYTES_MAX
from unistream.model import codec
from unistream.model import messages as msg
from unistream.model.bundle import ENVELOPE_BYTES, Parcel, answer_each, parcels

ATTEMPT = AttemptId(JobId("j"), VertexId("v"), 0, 0)


def ping(name: str) -> msg.Ping:
    return msg.Ping(task_manager=TaskManagerId(name))


def sizes(cut: list[Parcel[msg.Ping]]) -> list[int]:
    return [len(parcel.messages) for parcel in cut]


SIZE = len(codec.encode(ping("a")))
UNWRITABLE = ping("\udc80")


@pytest.mark.parametrize(
    ("names", "bytes_max", "count_max", "expected"),
    [
        pytest.param([], 1_000, 9, [], id="nothing"),
        pytest.param(["a"], 1_000, 9, [1], id="one"),
        pytest.param(["a"], 1, 9, [1], id="one that is too large is refused by its receiver"),
        pytest.param(["a", "b", "c"], 1_000, 9, [3], id="all together"),
        pytest.param(["a", "b", "c"], 1_000, 2, [2, 1], id="by number"),
        pytest.param(["a", "b", "c"], ENVELOPE_BYTES + 2 * SIZE, 9, [2, 1], id="by size, just"),
        pytest.param(["a", "b", "c"], ENVELOPE_BYTES + 2 * SIZE - 1, 9, [1, 1, 1], id="by size, not quite"),
        pytest.param(["a", "b" * 500, "c", "d"], 300, 9, [1, 1, 2], id="a large one goes alone"),
        pytest.param(["a", "\udc80", "c", "d"], 300, 9, [1, 1, 2], id="one that cannot be written does, too"),
        pytest.param(["b" * 500, "a"], 300, 9, [1, 1], id="it may be the first"),
        pytest.param(["a", "b" * 500], 300, 9, [1, 1], id="or the last"),
    ],
)
def test_they_are_divided_by_size_and_number(
    names: list[str], bytes_max: int, count_max: int, expected: list[int]
) -> None:
    messages = [ping(name) for name in names]
    cut = list(parcels(messages, bytes_max=bytes_max, count_max=count_max))
    assert sizes(cut) == expected
    assert [message for parcel in cut for message in parcel.messages] == messages
    for parcel in cut:
        assert isinstance(parcel.request, msg.Bundle) == (len(parcel.messages) > 1)


@given(st.lists(st.integers(0, 400), max_size=40), st.integers(100, 2_000), st.integers(1, 9))
def test_no_request_is_larger_than_it_may_be(lengths: list[int], bytes_max: int, count_max: int) -> None:
    messages = [ping("x" * length) for length in lengths]
    cut = list(parcels(messages, bytes_max=bytes_max, count_max=count_max))
    assert [message for parcel in cut for message in parcel.messages] == messages
    for parcel in cut:
        if len(parcel.messages) > 1:
            assert len(codec.encode(parcel.request)) <= bytes_max
            assert len(parcel.messages) <= count_max
    for before, after in pairwise(cut):  # none could have been joined
        together = sum(len(codec.encode(message)) for message in (*before.messages, after.messages[0]))
        assert together + ENVELOPE_BYTES > bytes_max or len(before.messages) == count_max


def receive(request: msg.Bundle | msg.Ping, act: Callable[[msg.ToTaskManager], msg.Answer]) -> msg.Answer:
    """By wire, as a worker does it."""
    message = codec.decode_for_task_manager(codec.encode(request))
    assert isinstance(message, msg.Bundle)
    answers = answer_each(message, lambda one: act(codec.decode_to_task_manager(one)))
    return codec.decode_answer(codec.encode(answers))


def outcome(message: msg.ToTaskManager) -> msg.Answer:
    assert isinstance(message, msg.Ping)
    match str(message.task_manager):
        case "refused":
            return msg.Refused(reason="no", fenced=True)
        case "unreadable":
            raise ProtocolError("what is this")
        case "breaks":
            raise LookupError("on purpose")
        case "artifact":
            return msg.Artifact(content=b"")
        case _:
            return msg.Ack()


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("a", msg.Ack()),
        ("refused", msg.Refused(reason="no", fenced=True)),
        ("unreadable", msg.Broken(reason="what is this")),
        ("breaks", msg.Broken(reason="LookupError: on purpose")),
        ("artifact", msg.Broken(reason="Artifact is not an answer to a message of a bundle")),
    ],
)
def test_each_has_its_own_answer_and_those_behind_it_are_acted_on(name: str, answer: msg.Answer) -> None:
    acted: list[msg.ToTaskManager] = []

    def act(message: msg.ToTaskManager) -> msg.Answer:
        acted.append(message)
        return outcome(message)

    messages = [ping("first"), ping(name), ping("last")]
    [parcel] = parcels(messages)
    assert parcel.answers(receive(parcel.request, act)) == (msg.Ack(), answer, msg.Ack())
    assert acted == messages


def test_bytes_that_are_no_message_cost_none_of_the_others() -> None:
    good = msgspec.Raw(codec.encode(ping("a")))
    cases = [b"\x80", codec.encode(msg.Ack()), codec.encode(msg.Bundle(messages=(good,)))]
    for bad in cases:
        answers = receive(msg.Bundle(messages=(good, msgspec.Raw(bad), good)), outcome)
        assert isinstance(answers, msg.Answers)
        first, middle, last = answers.answers
        assert (first, last) == (msg.Ack(), msg.Ack())
        assert isinstance(middle, msg.Broken)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(msg.Refused(reason="it ends"), (msg.Refused(reason="it ends"),) * 2, id="one for all"),
        pytest.param(msg.Ack(), (msg.Ack(), msg.Ack()), id="of a receiver that looks no closer"),
    ],
)
def test_an_answer_that_is_not_for_a_bundle_is_that_of_all(
    answer: msg.Answer, expected: tuple[msg.Answer, ...]
) -> None:
    [parcel] = parcels([ping("a"), ping("b")])
    assert parcel.answers(answer) == expected


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_or_too_many_answers_belong_to_nobody(count: int) -> None:
    [parcel] = parcels([ping("a"), ping("b")])
    with pytest.raises(ProtocolError, match=f"{count} answers to 2 messages"):
        parcel.answers(msg.Answers(answers=(msg.Ack(),) * count))


def test_only_reports_come_to_a_master_in_bundles() -> None:
    """A bundle of requests for artifacts would have the master hold them all at once."""
    report = msg.EndOfDataReached(attempt=ATTEMPT)
    assert codec.decode_task_report(codec.encode(report)) == report
    with pytest.raises(ProtocolError, match="not a control message"):
        codec.decode_task_report(codec.encode(msg.FetchArtifact(job=JobId("j"), sha256="0")))


def test_a_bundle_of_more_than_the_limit_is_refused() -> None:
    one = msgspec.Raw(codec.encode(ping("a")))
    full = msg.Bundle(messages=(one,) * BUNDLE_MESSAGES_MAX)
    assert codec.decode_for_task_manager(codec.encode(full)) is not None
    with pytest.raises(ProtocolError, match="not a control message"):
        codec.decode_for_task_manager(codec.encode(msg.Bundle(messages=(*full.messages, one))))
    with pytest.raises(ProtocolError, match="limit"):
        codec.decode_for_job_manager(bytes(FRAME_BYTES_MAX + 1))


def test_what_cannot_be_written_is_told_by_name() -> None:
    with pytest.raises(ProtocolError, match="Ping cannot be written"):
        codec.encode(UNWRITABLE)
