"""Shared by the streams of one process: connections to other processes, and a timer thread.

A worker whose tasks read those of many others has hundreds of streams. A connection and a timer for each
would cost more than the streams themselves, in file descriptors first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyarrow import flight

from unistream.base.clock import Clock
from unistream.base.errors import ConfigError
from unistream.model.credentials import Credentials, PeerAddress, certified_name
from unistream.net import wire
from unistream.net.address import UNIX_SCHEME, is_of_peer
from unistream.net.after_fork import use_grpc

_LOG: Final = logging.getLogger("unistream.net")

CLOSE_JOIN_S: Final = 2.0  # a cancelled read returns at once; this is for a thread inside a sink
CONNECTIONS_MAX: Final = 4  # Flink's taskmanager.network.max-num-tcp-connections is 1; gRPC's are slower


@dataclass(slots=True)
class _SharedClient:
    client: flight.FlightClient
    users: int = 0


class Connections:
    """The connections to other processes: at most `CONNECTIONS_MAX` to each peer, each for as long as it has
    a user. Thread-safe."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self._open: dict[str, list[_SharedClient]] = {}

    def take(self, address: str) -> flight.FlightClient:
        """A connection for one stream, until `give_back`. It connects when it is used.

        Raises:
            ConfigError: not a Flight location.
        """
        with self._lock:
            there = self._open.get(address, [])
            if len(there) < CONNECTIONS_MAX:
                there = [*there, _SharedClient(connect(address, self._credentials))]
                self._open[address] = there
            chosen = min(there, key=lambda connection: connection.users)
            chosen.users += 1
            return chosen.client

    def give_back(self, address: str, client: flight.FlightClient, *, is_broken: bool = False) -> None:
        """`is_broken`: no answer; the next stream reconnects at once, without gRPC's backoff."""
        with self._lock:
            there = self._open.get(address, [])
            for connection in there:
                if connection.client is client:
                    connection.users -= 1
                    if is_broken or not connection.users:
                        there.remove(connection)
                    break
            if not there:
                self._open.pop(address, None)

    @property
    def count(self) -> int:
        """Open connections, to all peers."""
        with self._lock:
            return sum(map(len, self._open.values()))


def connect(address: str, credentials: Credentials | None = None) -> flight.FlightClient:
    """A new connection.

    Args:
        address: A `model.credentials.PeerAddress`.
        credentials: What this process shows to a peer on another host; None: it knows no other host.

    Raises:
        ConfigError: not a Flight location, or a process in which there can be none; or one that asks for
            credentials, or shows none.
    """
    use_grpc()
    peer = PeerAddress.parse(address)
    if bool(peer.name) != (credentials is not None) and not address.startswith(UNIX_SCHEME):
        raise ConfigError(
            f"{address} wants a certificate of its cluster, and this process has none: give a worker a token "
            "with --join, which 'unistream cluster token' makes"
            if peer.name
            else f"{address} is not encrypted, and this process speaks to its own cluster alone"
        )
    try:
        if peer.socket and is_of_peer(peer.socket):
            return flight.FlightClient(UNIX_SCHEME + peer.socket)
        if credentials is None or not peer.name:
            return flight.FlightClient(peer.location)
        return flight.FlightClient(
            peer.location,
            tls_root_certs=credentials.roots,
            cert_chain=credentials.certificate,
            private_key=credentials.key.reveal(),
            override_hostname=certified_name(peer.name),  # whom to find there, at whatever address
        )
    except wire.WIRE_ERRORS as error:
        raise ConfigError(f"{address!r} is not a Flight location: {error}") from error


class Alarm:
    """One alarm of `Alarms` whose time changes. For one caller at a time.

    Args:
        call: Handles what is due; may be called early.
    """

    def __init__(self, alarms: Alarms, clock: Clock, call: Callable[[], None]) -> None:
        self._alarms = alarms
        self._clock = clock
        self._call = call
        self._set: tuple[int, int] | None = None  # its time and number

    def set(self, at_ms: int | None) -> None:
        """Calls not later than `at_ms` (monotonic); None: not at all."""
        now_ms = self._clock.monotonic_ms()
        if self._set is not None:
            if at_ms is not None and now_ms < self._set[0] <= at_ms:
                return
            self._alarms.forget(self._set[1])
            self._set = None
        if at_ms is not None:
            self._set = (at_ms, self._alarms.set(max(0, at_ms - now_ms), self._call))


class Alarms:
    """Calls alarms that are not canceled in time, on one thread, which starts with the first. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._next = 0
        self._set: dict[int, tuple[int, Callable[[], None]]] = {}
        self._earliest_ms: int | None = None  # that the thread waits for
        self._thread: threading.Thread | None = None
        self._closed = False

    def set(self, delay_ms: int, call: Callable[[], None]) -> int:
        """`call` must not block. Returns its number, for `forget`."""
        at_ms = self._clock.monotonic_ms() + delay_ms
        with self._changed:
            self._next += 1
            self._set[self._next] = (at_ms, call)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="flight-alarms", daemon=True)
                self._thread.start()
            if self._earliest_ms is None or at_ms < self._earliest_ms:
                self._changed.notify()
            return self._next

    def forget(self, number: int) -> None:
        """Cancels an alarm; ignored if it was called already."""
        with self._changed:
            self._set.pop(number, None)

    def close(self) -> None:
        """Nothing is called any more; waits for a call in progress, CLOSE_JOIN_S at most."""
        with self._changed:
            self._closed = True
            self._set.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_JOIN_S)

    def _run(self) -> None:
        while (due := self._await_due()) is not None:
            for call in due:
                try:
                    call()
                except Exception:  # one stream's failure must not keep the alarms of the others
                    _LOG.exception("event=alarm_failed")

    def _await_due(self) -> list[Callable[[], None]] | None:
        """Waits for alarms that are due; None: closed."""
        with self._changed:
            while not self._closed:
                now_ms = self._clock.monotonic_ms()
                due = [number for number, (at_ms, _) in self._set.items() if at_ms <= now_ms]
                if due:
                    return [self._set.pop(number)[1] for number in due]
                self._earliest_ms = min((at_ms for at_ms, _ in self._set.values()), default=None)
                wait_s = None if self._earliest_ms is None else (self._earliest_ms - now_ms) / 1000
                self._changed.wait(wait_s)
            return None
