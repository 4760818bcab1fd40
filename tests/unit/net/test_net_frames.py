"""What the two ends of a shared stream say to each other, without a stream."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.base.errors import ConfigError, PartitionLost, ProtocolError, UnistreamError, Unreachable
from unistream.base.ids import AttemptId, EdgeId, JobId, PartitionId, SubtaskId, TaskManagerId, VertexId
from unistream.base.limits import FRAME_BYTES_MAX
from unistream.model.deployment import ChannelDescriptor
from unistream.net import frames
from unistream.net.wire import BATCH_COST_MIN, CREDITS_MAX, ERROR_TEXT_MAX

EDGE = EdgeId("e")
CHANNEL = ChannelDescriptor(
    producer=AttemptId(JobId("j"), VertexId("v"), 3, 1),
    edge=EDGE,
    subpartition=2,
    task_manager=TaskManagerId("tm"),
    address="grpc+tcp://127.0.0.1:1",
)
LOST = PartitionId(SubtaskId(VertexId("v"), 7), EDGE)
ANSWERS: list[frames.Answer] = [
    frames.Accepted(3),
    frames.Absent(3),
    frames.Need(3, 70_000),
    frames.Sent(frames.NUMBER_MAX - 1, b"event"),
    frames.ChannelFailed(0, frames.ExchangeFailure(frames.FailureKind.LOST, "gone", LOST)),
    frames.StreamEnded(frames.ExchangeFailure(frames.FailureKind.UNREACHABLE, "the server closes")),
]


def buffer(value: object) -> pa.Buffer:
    return pa.py_buffer(msgspec.msgpack.encode(value))


# --- the head of a stream -------------------------------------------------------------------------


def test_a_head_comes_back_as_it_was() -> None:
    for head in (frames.StreamHead(EDGE), frames.StreamHead(EDGE, "of the job")):
        assert frames.decode_head(frames.encode_head(head)) == head


@given(st.none() | st.binary(max_size=300))
def test_random_bytes_are_no_head(data: bytes | None) -> None:
    with pytest.raises(ProtocolError, match="channels"):
        frames.decode_head(data)


@pytest.mark.parametrize("data", [b"\x81\xa4edge\xa2\xff\xfe", b"\x91\xa2\xff\xfe", b"\x91" * 250])
def test_text_that_is_no_utf8_and_nesting_are_no_head(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="channels"):
        frames.decode_head(data)


def test_a_head_of_unlimited_size_is_not_even_parsed() -> None:
    with pytest.raises(ProtocolError, match="at most"):
        frames.decode_head(frames.encode_head(frames.StreamHead(EDGE)) + b" " * frames.HEAD_BYTES_MAX)


# --- commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("credit", [1, 8, CREDITS_MAX])
def test_commands_come_back_as_they_were(credit: int) -> None:
    sent: list[frames.Command] = [
        frames.Open(0, credit, CHANNEL),
        frames.AddCredit(1, credit),
        frames.Close(2),
    ]
    (message,) = frames.encode_commands(sent)
    assert frames.decode_commands(pa.py_buffer(message)) == sent


def test_many_commands_travel_in_several_messages() -> None:
    sent: list[frames.Command] = [frames.Close(n) for n in range(2 * frames.COMMANDS_MAX + 1)]
    messages = [frames.decode_commands(pa.py_buffer(m)) for m in frames.encode_commands(sent)]
    assert [len(message) for message in messages] == [frames.COMMANDS_MAX, frames.COMMANDS_MAX, 1]
    assert [command for message in messages for command in message] == sent
    assert list(frames.encode_commands([])) == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="a message without metadata"),
        pytest.param(pa.py_buffer(b""), id="empty"),
        pytest.param(buffer([]), id="no command"),
        pytest.param(pa.py_buffer(b"\x91\x93\x01\x01\xa2\xff\xfe"), id="text that is no UTF-8"),
        pytest.param(pa.py_buffer(b"\x91" * 100_000), id="nested without end"),
        pytest.param(buffer([[2, 1]] * (frames.COMMANDS_MAX + 1)), id="more than a message holds"),
        pytest.param(buffer([2, 1]), id="a command outside of a list"),
        pytest.param(buffer([[9, 1]]), id="an unknown command"),
        pytest.param(buffer([[1, 1, 0]]), id="a grant of nothing"),
        pytest.param(buffer([[1, 1, -1]]), id="a negative grant"),
        pytest.param(buffer([[1, 1, CREDITS_MAX + 1]]), id="absurdly many"),
        pytest.param(buffer([[1, 1, "x"]]), id="text"),
        pytest.param(buffer([[1, -1, 1]]), id="a negative channel"),
        pytest.param(buffer([[1, frames.NUMBER_MAX, 1]]), id="a channel beyond all"),
        pytest.param(buffer([[0, 1, 1]]), id="opens without a channel"),
        pytest.param(buffer([[0, 1, 1, {"edge": "e"}]]), id="opens half a channel"),
    ],
)
def test_other_commands_are_refused(data: pa.Buffer | None) -> None:
    with pytest.raises(ProtocolError, match="a consumer"):
        frames.decode_commands(data)


# --- answers and labels ---------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_answer_comes_back_as_it_was(answer: frames.Answer) -> None:
    sent = [answer, *ANSWERS]
    assert frames.decode_answers(pa.py_buffer(frames.encode_answers(sent))) == sent


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="a message without metadata"),
        pytest.param(pa.py_buffer(b"accepted"), id="no msgpack"),
        pytest.param(buffer([]), id="no answer"),
        pytest.param(buffer([[0, 1]] * (frames.ANSWERS_MAX + 1)), id="more than a message holds"),
        pytest.param(buffer([[9, 1]]), id="an unknown answer"),
        pytest.param(buffer([[0]]), id="about no channel"),
        pytest.param(buffer([[2, 1, 0]]), id="needs nothing"),
        pytest.param(buffer([[2, 1, FRAME_BYTES_MAX + BATCH_COST_MIN + 1]]), id="needs more than a message"),
        pytest.param(buffer([[4, 1, [9, "x", None]]]), id="an unknown class of error"),
    ],
)
def test_other_answers_are_refused(data: pa.Buffer | None) -> None:
    with pytest.raises(ProtocolError, match="a producer"):
        frames.decode_answers(data)


@given(st.binary(max_size=60))
def test_random_bytes_are_an_answer_or_an_error(data: bytes) -> None:
    try:
        answers = frames.decode_answers(pa.py_buffer(data))
    except ProtocolError:
        return
    assert frames.decode_answers(pa.py_buffer(frames.encode_answers(answers))) == answers


@given(
    st.integers(0, frames.NUMBER_MAX - 1),
    st.integers(1, FRAME_BYTES_MAX + BATCH_COST_MIN),
    st.integers(0, FRAME_BYTES_MAX),
)
def test_a_label_comes_back_as_it_was_and_aligns_the_rows(number: int, cost: int, size: int) -> None:
    label = frames.encode_label(number, cost, size)
    assert frames.decode_label(pa.py_buffer(label)) == (number, cost)
    header = 3 + 8 * 40
    varint = max(1, -(-size.bit_length() // 7))
    assert (header + 2 + len(label) + 2 + varint) % 8 == 0


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="none"),
        pytest.param(buffer(5), id="a cost alone"),
        pytest.param(buffer([1, 0, b""]), id="costs nothing"),
        pytest.param(buffer([1, FRAME_BYTES_MAX + BATCH_COST_MIN + 1, b""]), id="more than a message"),
        pytest.param(buffer([-1, 5, b""]), id="a negative channel"),
        pytest.param(buffer([1, 5, b"x" * 8]), id="filled up too much"),
    ],
)
def test_other_labels_are_refused(data: pa.Buffer | None) -> None:
    with pytest.raises(ProtocolError, match="batch"):
        frames.decode_label(data)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "arrives_as"),
    [
        (ProtocolError("bad frame"), ProtocolError),
        (Unreachable("not there"), Unreachable),
        (PartitionLost("damaged", LOST), PartitionLost),
        (ConfigError("its own"), ProtocolError),
        (KeyError("its own"), ProtocolError),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__),
)
def test_an_error_keeps_its_class_and_text(error: Exception, arrives_as: type[UnistreamError]) -> None:
    arrived = frames.error_of(frames.failure_of(error), "channel x")
    assert type(arrived) is arrives_as
    assert str(arrived).startswith("channel x: ")
    assert str(error.args[0]) in str(arrived)
    if isinstance(arrived, PartitionLost):
        assert arrived.partition == LOST


def test_a_long_error_is_cut() -> None:
    assert len(frames.failure_of(Unreachable("x" * 10_000)).text) == ERROR_TEXT_MAX


def test_what_is_lost_without_a_name_is_a_protocol_error() -> None:
    failure = frames.ExchangeFailure(frames.FailureKind.LOST, "gone")
    assert type(frames.error_of(failure, "channel x")) is ProtocolError
