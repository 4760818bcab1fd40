"""Bytes that no client sends, from another host: by who shows nothing, and with the certificate of a worker.

Each `Sender` sends to one place, for ever; all that they send follows from a seed.
"""

from __future__ import annotations

import random
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyarrow import flight

from unistream.base.clock import SystemClock
from unistream.base.ids import AttemptId, EdgeId, JobId, TaskManagerId, VertexId
from unistream.client.remote.address import FixedAddress
from unistream.client.remote.joining import joined
from unistream.model import messages as msg
from unistream.model.codec import encode
from unistream.model.credentials import Credentials, PeerAddress, certified_name
from unistream.net import wire

ANSWER_S: Final = 0.2
"""How long an answer is waited for: most of this is answered by a closed connection, or not at all."""
BYTES_MAX: Final = 4096
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, 3.4
HELLO: Final = bytes.fromhex("16030100c8010000c40303")  # how a TLS ClientHello begins
REQUEST: Final = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n"
)

Exchanged = Callable[[random.Random], None]


def mutated(known: bytes, chance: random.Random) -> bytes:
    """Something close to what is known: with other bits, shorter, longer, with lengths that are none."""
    data = bytearray(known or b"\0")
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                del data[at : at + chance.randrange(1, 16)]
                data = data or bytearray(b"\0")
            case 2:
                data[at:at] = chance.randbytes(chance.randrange(1, 64))
            case 3:
                data[at : at + 4] = struct.pack(">I", chance.choice([0, 2**31 - 1, 2**31, 2**32 - 1]))
            case _:
                data[at:at] = data[at : at + chance.randrange(1, 128)] * chance.randrange(1, 8)
    return bytes(data)


def frame(chance: random.Random) -> bytes:
    """A frame of HTTP/2 (RFC 9113, 4.1) whose length, kind, flags and content are anything."""
    content = chance.randbytes(chance.randrange(256))
    length = len(content) if chance.random() < 0.7 else chance.randrange(2**24)
    stream = chance.choice([0, 1, 3, 2**31 - 1])
    return (
        struct.pack(">I", length)[1:]
        + bytes([chance.randrange(12), chance.randrange(256)])
        + struct.pack(">I", stream)
        + content
    )


def texts(chance: random.Random) -> bytes:
    """What a connection begins with."""
    frames = b"".join(frame(chance) for _ in range(chance.randrange(1, 8)))
    known = chance.choice([HELLO + chance.randbytes(200), REQUEST + b"{" * 40, PREFACE + frames, frames])
    return chance.choice([known, mutated(known, chance), chance.randbytes(chance.randrange(1, BYTES_MAX))])


@dataclass(frozen=True, slots=True)
class Plain:
    """To a port. `tls`: after a handshake; None: instead of one."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def __call__(self, chance: random.Random) -> None:
        with socket.create_connection((self.host, self.port), 20.0) as plain:
            plain.settimeout(ANSWER_S)
            if self.tls is None:
                _say(plain, texts(chance))
                return
            plain.settimeout(20.0)
            with self.tls.wrap_socket(plain) as spoken:
                spoken.settimeout(ANSWER_S)
                first = PREFACE + frame_of_settings() if chance.random() < 0.5 else b""
                _say(spoken, first + texts(chance))


def frame_of_settings() -> bytes:
    """The frame that has to come first: no settings."""
    return b"\0\0\0\x04\0\0\0\0\0"


def _say(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    while connection.recv(BYTES_MAX):
        pass


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of Flight with messages that are nearly right, as a worker that has joined."""

    address: PeerAddress
    own: Credentials

    def __call__(self, chance: random.Random) -> None:
        options = flight.FlightCallOptions(timeout=20.0)
        with flight.FlightClient(
            self.address.location,
            tls_root_certs=self.own.roots,
            cert_chain=self.own.certificate,
            private_key=self.own.key.reveal(),
            override_hostname=certified_name(self.address.name),
        ) as client:
            body = mutated(chance.choice(_known()), chance)
            if chance.random() < 0.5:
                kind = chance.choice([wire.CONTROL_ACTION, "", "x" * 300])
                list(client.do_action(flight.Action(kind, body), options))
            else:
                writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(body), options)
                with writer:
                    writer.write_metadata(body)
                    writer.done_writing()
                    reader.read_chunk()


def _known() -> list[bytes]:
    attempt = AttemptId(JobId("job"), VertexId("v"), 0, 1)
    me = TaskManagerId("tm-none")
    messages: list[Any] = [
        msg.Heartbeat(task_manager=me),
        msg.RegisterTaskManager(task_manager=me, address="grpc://x:1", slots=2**31, pid=1, host="x"),
        msg.TaskStateChanged(attempt=attempt, state="RUNNING"),
        msg.FetchArtifact(job=attempt.job, sha256="0" * 64),
        msg.CancelTask(attempt=attempt),
    ]
    return [*(encode(message) for message in messages), str(EdgeId("e")).encode()]


def frames(
    url: str, token: str, *, places: list[tuple[str, int]], addresses: list[str], seconds: float, seed: int
) -> dict[str, int]:
    """Sends to all places for so long: how often, by how it ended."""
    own = joined(FixedAddress(url), token, clock=SystemClock(), timeout_s=20.0)
    with tempfile.TemporaryDirectory() as folder:
        senders = list(_senders(places, [*addresses, own.control], own.credentials, Path(folder)))
    counts: Counter[str] = Counter()
    until, lock = time.monotonic() + seconds, threading.Lock()

    def send(name: str, sender: Exchanged, number: int) -> None:
        chance = random.Random(seed * 1000 + number)
        while time.monotonic() < until:
            try:
                sender(chance)
                ended = "answered"
            except (*wire.WIRE_ERRORS, EOFError) as error:
                ended = type(error).__name__
            with lock:
                counts[f"{name} {ended}"] += 1

    threads = [
        threading.Thread(target=send, args=(name, sender, number), daemon=True)
        for number, (name, sender) in enumerate(senders)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return dict(counts)


def _senders(
    places: list[tuple[str, int]], addresses: list[str], own: Credentials, folder: Path
) -> Iterator[tuple[str, Exchanged]]:
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
    worker = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    worker.check_hostname, worker.verify_mode = False, ssl.CERT_NONE
    worker.set_alpn_protocols(["h2"])
    chain = folder / "chain.pem"
    chain.write_text(own.key.reveal() + "\n" + own.certificate)
    worker.load_cert_chain(chain)
    for host, port in places:
        yield "bytes", Plain(host, port)
        yield "tls", Plain(host, port, nobody)
        yield "worker's tls", Plain(host, port, worker)
    for address in addresses:
        yield "calls", Calls(PeerAddress.parse(address), own)
