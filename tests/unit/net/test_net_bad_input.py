"""A server survives whatever is sent to it, and runs none of it."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import flight

from unistream.base.errors import ConfigError, ProtocolError, Unreachable
from unistream.base.ids import AttemptId, EdgeId, JobId, TaskManagerId, VertexId
from unistream.base.limits import FRAME_BYTES_MAX
from unistream.model.codec import decode_for_job_manager, encode
from unistream.model.deployment import ChannelDescriptor
from unistream.model.messages import Ack, Heartbeat
from unistream.net import frames, wire
from unistream.net.client import FlightControlClient, FlightDataClient
from unistream.net.server import FlightServer
from unistream.port.transport import SubpartitionView

CALL = flight.FlightCallOptions(timeout=10)
HEAD = frames.encode_head(frames.StreamHead(EdgeId("e")))
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
CHANNEL = ChannelDescriptor(
    producer=AttemptId(JobId("j"), VertexId("v"), 0, 1),
    edge=EdgeId("e"),
    subpartition=0,
    task_manager=TaskManagerId("tm"),
    address="grpc+tcp://127.0.0.1:1",
)


class Nothing:
    """A worker that produces nothing."""

    def takes(self, job: JobId, token: str) -> bool:
        return True

    def open_subpartition(
        self, channel: ChannelDescriptor, listener: Callable[[], None]
    ) -> SubpartitionView | None:
        return None


def commands(*said: frames.Command) -> bytes:
    (message,) = frames.encode_commands(said)
    return message


def handle(body: bytes, caller: str = "", /) -> bytes:
    decode_for_job_manager(body)
    return encode(Ack())


@pytest.fixture(scope="module", params=["unix", "tcp"])
def server(request: pytest.FixtureRequest) -> Iterator[FlightServer]:
    server = FlightServer("127.0.0.1", control=handle, partitions=Nothing(), unix=request.param == "unix")
    yield server
    server.close()


@pytest.fixture
def raw(server: FlightServer) -> Iterator[flight.FlightClient]:
    """A peer that speaks Flight, but nothing of ours."""
    yield flight.FlightClient(server.address)
    check_survived(server)


def check_survived(server: FlightServer) -> None:
    """It answers a client of ours."""
    client = FlightControlClient(server.address)
    assert client.call(Heartbeat(task_manager=TaskManagerId("tm"))) == Ack(), "the server has not survived"
    client.close()


def send_control(raw: flight.FlightClient, body: bytes, action: str = wire.CONTROL_ACTION) -> None:
    list(raw.do_action(flight.Action(action, body), CALL))


def exchange(raw: flight.FlightClient, command: bytes, message: bytes) -> bytes:
    """The first answer."""
    writer, reader = raw.do_exchange(flight.FlightDescriptor.for_command(command), CALL)
    try:
        writer.write_metadata(message)
        return reader.read_chunk().app_metadata.to_pybytes()
    finally:
        reader.cancel()
        with pytest.raises(wire.WIRE_ERRORS):
            writer.close()


@FUZZ
@given(st.binary(max_size=200))
def test_random_control_messages_are_only_errors(raw: flight.FlightClient, body: bytes) -> None:
    with pytest.raises(flight.FlightServerError, match="not a control message"):
        send_control(raw, body)


@FUZZ
@given(st.binary(max_size=200), st.binary(max_size=20))
def test_random_exchanges_are_only_errors(raw: flight.FlightClient, command: bytes, message: bytes) -> None:
    with pytest.raises(flight.FlightServerError, match="channel"):
        exchange(raw, command, message)


@FUZZ
@given(st.binary(max_size=20))
def test_random_grants_are_only_errors(raw: flight.FlightClient, message: bytes) -> None:
    with pytest.raises((flight.FlightServerError, flight.FlightUnavailableError)):
        exchange(raw, HEAD, message)


def test_a_batch_instead_of_credits_is_refused(raw: flight.FlightClient) -> None:
    descriptor = flight.FlightDescriptor.for_command(HEAD)
    writer, reader = raw.do_exchange(descriptor, CALL)
    rows = pa.record_batch({"a": [1]})
    with pytest.raises(flight.FlightServerError, match="credits only"):  # noqa: PT012 - it may answer early
        writer.begin(rows.schema)
        writer.write_batch(rows)
        reader.read_chunk()
    with pytest.raises(wire.WIRE_ERRORS):
        writer.close()


@pytest.mark.parametrize(
    ("said", "error"),
    [
        pytest.param([frames.AddCredit(0, 1)], "channel 0 was never opened", id="credit for nothing"),
        pytest.param([frames.Close(7)], "channel 7 was never opened", id="closes nothing"),
        pytest.param(
            [frames.Open(0, 1, msgspec.structs.replace(CHANNEL, edge=EdgeId("other")))],
            "requested in a stream of edge e",
            id="another edge",
        ),
    ],
)
def test_commands_that_make_no_sense_are_refused(
    raw: flight.FlightClient, said: list[frames.Command], error: str
) -> None:
    with pytest.raises(flight.FlightServerError, match=error):
        exchange(raw, HEAD, commands(*said))


def test_what_is_not_there_is_answered_and_may_be_asked_for_again(raw: flight.FlightClient) -> None:
    writer, reader = raw.do_exchange(flight.FlightDescriptor.for_command(HEAD), CALL)
    for _ in range(2):
        writer.write_metadata(commands(frames.Open(3, 1, CHANNEL)))
        assert frames.decode_answers(reader.read_chunk().app_metadata) == [frames.Absent(3)]
    writer.close()


def test_an_exchange_that_names_a_path_is_refused(raw: flight.FlightClient) -> None:
    writer, reader = raw.do_exchange(flight.FlightDescriptor.for_path("etc", "passwd"), CALL)
    with pytest.raises(flight.FlightServerError, match="channel"):  # noqa: PT012 - it may answer early
        writer.write_metadata(commands(frames.Close(1)))
        reader.read_chunk()
    with pytest.raises(wire.WIRE_ERRORS):
        writer.close()


def test_an_unknown_action_is_refused(raw: flight.FlightClient) -> None:
    with pytest.raises(flight.FlightServerError, match="unknown action 'run'"):
        send_control(raw, b"", "run")


def test_a_control_message_above_the_limit_is_refused(raw: flight.FlightClient) -> None:
    with pytest.raises(flight.FlightServerError, match="limit"):
        send_control(raw, b"\0" * (FRAME_BYTES_MAX + 1))


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda raw: raw.do_get(flight.Ticket(b"x"), CALL).read_all(), id="do_get"),
        pytest.param(lambda raw: list(raw.list_flights(b"", CALL)), id="list_flights"),
        pytest.param(lambda raw: list(raw.list_actions(CALL)), id="list_actions"),
    ],
)
def test_what_flight_offers_beside_is_not_there(
    raw: flight.FlightClient, call: Callable[[flight.FlightClient], object]
) -> None:
    with pytest.raises((NotImplementedError, pa.ArrowNotImplementedError)):
        call(raw)


def test_a_pickle_is_not_executed(raw: flight.FlightClient) -> None:
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "executed"
        # What pickle.dumps makes of an object whose __reduce__ is (os.system, ("touch ...",)).
        pickled = b"cposix\nsystem\n(S'touch " + os.fsencode(canary) + b"'\ntR."
        with pytest.raises(flight.FlightServerError):
            send_control(raw, pickled)
        for command, message in ((pickled, commands(frames.Close(1))), (HEAD, pickled)):
            with pytest.raises((flight.FlightServerError, flight.FlightUnavailableError)):
                exchange(raw, command, message)
        assert not canary.exists()


def test_bytes_that_are_not_http2_do_no_harm(server: FlightServer) -> None:
    if server.address.startswith("grpc+unix://"):
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(server.address.removeprefix("grpc+unix://"))
    else:
        host, _, port = server.address.removeprefix("grpc+tcp://").rpartition(":")
        peer = socket.create_connection((host, int(port)))
    with peer:
        peer.settimeout(10)
        peer.sendall(b"GET / HTTP/1.1\r\n\r\n" + os.urandom(4096))
        while peer.recv(4096):  # gRPC answers with its settings, then ends the connection
            continue
    check_survived(server)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.77", ""])
def test_the_network_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a loopback address: .*needs a certificate$"):
        FlightServer(host, control=handle, partitions=None)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a Flight location"):
        FlightControlClient("nonsense")


def test_a_closed_control_client_reaches_nobody(server: FlightServer) -> None:
    client = FlightControlClient(server.address)
    client.close()
    with pytest.raises(Unreachable, match="closed"):
        client.call(Heartbeat(task_manager=TaskManagerId("tm")))


def test_a_stream_from_a_server_without_partitions_is_a_protocol_error() -> None:
    server = FlightServer("127.0.0.1", control=handle, partitions=None)
    client = FlightDataClient(500)
    errors: list[BaseException] = []

    class Sink:
        def on_element(self, element: object, size: int) -> None:
            errors.append(AssertionError(f"{element} arrived"))

        def on_need(self, size: int) -> None:
            errors.append(AssertionError(f"credit of {size} B is asked for"))

        def on_error(self, error: BaseException) -> None:
            errors.append(error)

    stream = client.gate().connect(channel(server.address), Sink(), 1)
    stream.end(10)
    client.close()
    server.close()
    assert [type(error) for error in errors] == [ProtocolError]
    assert "a process that produces nothing" in str(errors[0])


def test_nothing_of_a_server_is_left_after_close() -> None:
    server = FlightServer("127.0.0.1", control=handle, partitions=None)
    client = FlightControlClient(server.address)
    client.call(Heartbeat(task_manager=TaskManagerId("tm")))
    folder = Path(server.address.removeprefix("grpc+unix://")).parent
    assert folder.is_dir()
    server.close()
    server.close()
    client.close()
    assert not folder.exists()


def channel(address: str) -> ChannelDescriptor:
    return msgspec.structs.replace(CHANNEL, address=address)
