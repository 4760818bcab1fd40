"""The consumer's end of a shared stream: channels of one gate and one edge, from one process, on one thread.

The thread connects, opens the channels, reads, and delivers to their sinks. Each channel is requested, ends
and fails on its own (`net.in_channel`).

Messages that still arrive for a removed channel are ignored. The stream ends with its last channel: if that
was complete the consumer closes its side and waits for the producer, otherwise it cancels the call. A later
channel gets a new stream.

Only the stream's thread reads; a thread that grants or closes writes, under the lock. Such a write is short,
since the producer always reads. Before the producer's first answer only the stream's thread writes, because
connecting may take long.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable

from pyarrow import flight

from unistream.base.clock import Clock
from unistream.base.config import WORKER_HOST
from unistream.base.errors import NothingListens, ProtocolError, UnistreamError, Unreachable
from unistream.model.codec import decode_event
from unistream.model.credentials import TLS, shown_address
from unistream.model.deployment import ChannelDescriptor
from unistream.model.elements import Element, EndOfPartition
from unistream.net import frames, wire
from unistream.net.call import Call, close_quietly, finish
from unistream.net.in_channel import EXPECTED, READING, InChannel, State
from unistream.net.peers import Alarm, Alarms, Connections
from unistream.port.transport import InputSink


class IncomingStream:
    """See the module.

    Args:
        timeout_ms: How long a channel is requested.
        ended: Called at the end of its thread.
    """

    def __init__(
        self,
        head: frames.StreamHead,
        address: str,
        *,
        timeout_ms: int,
        clock: Clock,
        connections: Connections,
        alarms: Alarms,
        ended: Callable[[IncomingStream], None],
    ) -> None:
        self._head = head
        self._address = address
        self._where = f"the stream of edge {head.edge} from {shown_address(address)}"
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._connections = connections
        self._alarms = alarms
        self._ended = ended
        self._changed = threading.Condition(threading.Lock())  # guards all below and the channels' state
        self._channels: dict[int, InChannel] = {}
        self._numbers = itertools.count()
        self._known = 0  # numbers in use so far
        self._is_over = False
        self._current = Call()
        self._alarm = Alarm(alarms, clock, self._on_alarm)
        self._thread = threading.Thread(target=self._run, name=f"flight-in-{head.edge}", daemon=True)

    # --- by the owners of channels ----------------------------------------------------------------

    def join(self, descriptor: ChannelDescriptor, sink: InputSink, credit: int) -> InChannel | None:
        """Adds a channel. None: the stream has ended."""
        now_ms = self._clock.monotonic_ms()
        with self._changed:
            if self._is_over:
                return None
            channel = InChannel(
                self,
                next(self._numbers),
                descriptor,
                sink,
                credit=credit,
                now_ms=now_ms,
                timeout_ms=self._timeout_ms,
            )
            self._known = channel.number + 1
            self._channels[channel.number] = channel
            if self._current.is_answered:
                self._current.send([channel.request(now_ms)])
                self._alarm.set(channel.answer_by_ms)
            self._changed.notify()
            return channel

    def start(self) -> None:
        """Starts the stream's thread, after the first `join`."""
        self._thread.start()

    def grant(self, channel: InChannel, size: int) -> None:
        with self._changed:
            channel.credit.grant(size)
            self._send_credit(channel)

    def leave(self, channel: InChannel) -> None:
        with self._changed:
            if self._is_here(channel) and channel.state is not State.DONE:
                self._remove(channel)
                self._break_off_if_over()

    def close(self) -> None:
        """Closes all channels. Does not wait."""
        with self._changed:
            given_up = [c for c in self._channels.values() if c.state is not State.DONE]
            self._forget(given_up)
            if given_up or not self._known:
                self._break_off_if_over()

    def end(self, patience_s: float) -> None:
        """Waits until no sink is called any more, after `close`, at most twice `patience_s`."""
        if self._thread is threading.current_thread() or self._thread.ident is None:
            return
        self._thread.join(patience_s)
        if self._thread.is_alive():  # complete, but the producer does not end its side
            with self._changed:
                self._current.break_off()
            self._thread.join(patience_s)

    # --- under the lock ---------------------------------------------------------------------------

    def _is_here(self, channel: InChannel) -> bool:
        return self._channels.get(channel.number) is channel

    def _remove(self, channel: InChannel) -> None:
        """Removes it, and closes it at the producer."""
        del self._channels[channel.number]
        self._is_over = not self._channels
        if channel.state is not State.WAITING:
            self._current.send([frames.Close(channel.number)])

    def _forget(self, channels: Iterable[InChannel]) -> None:
        """Removes them, without closing them at the producer."""
        for channel in channels:
            del self._channels[channel.number]
        self._is_over = not self._channels

    def _break_off_if_over(self) -> None:
        if self._is_over:
            self._changed.notify()
            self._current.break_off()

    def _take_due(self, now_ms: int) -> list[frames.Command]:
        """Requests of the channels that are due; they are REQUESTED from now on."""
        waiting = [c for c in self._channels.values() if c.state is State.WAITING]
        commands: list[frames.Command] = [c.request(now_ms) for c in waiting if c.request_at_ms <= now_ms]
        self._set_alarm()
        return commands

    def _request_due(self, now_ms: int) -> None:
        if self._current.is_answered:
            self._current.send(self._take_due(now_ms))
        else:
            self._set_alarm()

    def _send_credit(self, channel: InChannel) -> None:
        if channel.state is State.OPEN and self._is_here(channel):
            due = channel.credit.take_due()
            if due:
                self._current.send([frames.AddCredit(channel.number, due)])

    def _set_alarm(self) -> None:
        """Sets the alarm for the first request that is due, or unanswered."""
        times = [c.answer_by_ms for c in self._channels.values() if c.state is State.REQUESTED]
        if self._current.is_answered:
            times += [c.request_at_ms for c in self._channels.values() if c.state is State.WAITING]
        self._alarm.set(min(times, default=None))

    def _on_alarm(self) -> None:
        """Gives up channels whose producer did not answer in time, and requests those that are due; on the
        alarms' thread."""
        now_ms = self._clock.monotonic_ms()
        with self._changed:
            requested = [c for c in self._channels.values() if c.state is State.REQUESTED]
            late = [c for c in requested if c.answer_by_ms <= now_ms]
            for channel in late:
                self._remove(channel)
            self._break_off_if_over()
            if late and self._current.is_silent:
                self._current.break_off()  # no answer at all: later channels are requested in a new call
            self._request_due(now_ms)
        for channel in late:
            channel.sink.on_error(channel.lost(f"did not answer within {self._timeout_ms} ms"))

    # --- the stream's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._await_due():
                try:
                    self._call()
                except Exception as error:
                    self._on_broken(error)
        finally:
            with self._changed:
                self._alarm.set(None)
            self._ended(self)

    def _await_due(self) -> bool:
        """Waits until a request is due. False: the stream has ended."""
        with self._changed:
            while not self._is_over:
                now_ms = self._clock.monotonic_ms()
                at_ms = min(channel.request_at_ms for channel in self._channels.values())
                if at_ms <= now_ms:
                    return True
                self._changed.wait((at_ms - now_ms) / 1000)
            return False

    def _call(self) -> None:
        """One call to the producer; returns when the stream has ended."""
        descriptor = flight.FlightDescriptor.for_command(frames.encode_head(self._head))
        options = flight.FlightCallOptions(read_options=wire.READ_OPTIONS)
        client = self._connections.take(self._address)
        writer = reader = None
        is_broken = False
        try:
            writer, reader = client.do_exchange(descriptor, options)
            with self._changed:
                if self._is_over:
                    return
                self._current.made(reader)
                commands = self._take_due(self._clock.monotonic_ms())
            for message in frames.encode_commands(commands):
                writer.write_metadata(message)
            self._receive(writer, reader)
        except flight.FlightUnavailableError as error:
            is_broken = error.extra_info != wire.OWN_ERROR
            raise
        finally:
            with self._changed:
                self._current.ended()
            if reader is not None:
                reader.cancel()
            if writer is not None:
                close_quietly(writer)
            self._connections.give_back(self._address, client, is_broken=is_broken)

    def _receive(self, writer: flight.FlightStreamWriter, reader: flight.FlightStreamReader) -> None:
        is_answered = False
        while not self._is_over:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                raise Unreachable(f"{self._where} ended without EndOfPartition") from None
            if not is_answered:
                is_answered = True
                self._on_first_answer(writer)
            if chunk.data is not None:
                self._on_batch(chunk)
            else:
                for answer in frames.decode_answers(chunk.app_metadata):
                    self._on_answer(answer)
            del chunk  # frees its memory before the next one
        with self._changed:
            self._current.ended()
        finish(writer, reader, self._alarms)

    def _on_first_answer(self, writer: flight.FlightStreamWriter) -> None:
        with self._changed:
            self._current.answered(writer)
            self._request_due(self._clock.monotonic_ms())

    def _on_answer(self, answer: frames.Answer) -> None:
        if isinstance(answer, frames.StreamEnded):
            raise _ProducerEnded(frames.error_of(answer.failure, self._where))
        with self._changed:
            channel = self._find(answer.number, EXPECTED[type(answer)])
        if channel is None:
            return
        match answer:
            case frames.Sent(_, data):
                self._on_event(channel, data)
            case frames.Need(_, cost):
                self._on_need(channel, cost)
            case frames.Accepted():
                with self._changed:
                    channel.state = State.OPEN
                    self._send_credit(channel)
            case frames.Absent():
                self._on_absent(channel)
            case frames.ChannelFailed(_, failure):
                self._fail(channel, frames.error_of(failure, f"{channel}"))

    def _find(self, number: int, states: frozenset[State]) -> InChannel | None:
        """The channel of a message; the caller holds the lock. None: it was removed, and the message is
        ignored. Raises ProtocolError: it was never opened, or takes no such message now."""
        if number >= self._known:
            raise ProtocolError(
                f"{self._where} received a message for channel {number}, which was never opened"
            )
        channel = self._channels.get(number)
        if channel is not None and channel.state not in states:
            raise ProtocolError(f"{channel} received a message while it was {channel.state.name}")
        return channel

    def _on_batch(self, chunk: flight.FlightStreamChunk) -> None:
        number, cost = frames.decode_label(chunk.app_metadata)
        if chunk.data.nbytes > 2 * cost:  # twice: the two sides may count padding and bitmaps differently
            raise ProtocolError(f"{self._where} sent {chunk.data.nbytes} B but declared {cost} B")
        with self._changed:
            channel = self._find(number, READING)
            if channel is None:
                return
            try:
                channel.credit.arrived(cost)
            except ProtocolError as error:
                raise ProtocolError(f"{channel}: {error}") from None
        self._deliver(channel, wire.from_wire(chunk.data), cost)

    def _on_event(self, channel: InChannel, data: bytes) -> None:
        event = decode_event(data)
        if not isinstance(event, EndOfPartition):
            self._deliver(channel, event, 0)
            return
        with self._changed:
            if not self._is_here(channel):
                return
            channel.state = State.DONE  # complete, even if its owner closes it now
        self._deliver(channel, event, 0)
        with self._changed:
            if self._is_here(channel):  # its sink has not failed
                self._remove(channel)

    def _deliver(self, channel: InChannel, element: Element, cost: int) -> None:
        try:
            channel.sink.on_element(element, cost)
        except Exception as error:  # errors of a sink fail its channel
            self._fail(channel, error)

    def _on_need(self, channel: InChannel, size: int) -> None:
        """The producer waits: for a grant that is held back, or for one by the sink."""
        with self._changed:
            is_granted = channel.credit.need(size)
            self._send_credit(channel)
        if not is_granted:
            channel.sink.on_need(size)

    def _on_absent(self, channel: InChannel) -> None:
        with self._changed:
            if channel.postpone(self._clock.monotonic_ms()):
                self._alarm.set(channel.request_at_ms)
                return
        self._fail(channel, channel.lost(f"did not appear within {self._timeout_ms} ms"))

    def _fail(self, channel: InChannel, error: Exception) -> None:
        """Fails one channel; the others continue."""
        with self._changed:
            if not self._is_here(channel):
                return
            self._remove(channel)
        channel.sink.on_error(error)

    def _on_broken(self, error: Exception) -> None:
        """The call broke. Channels that were not open are requested again later, the others fail."""
        may_pass = isinstance(error, flight.FlightUnavailableError | flight.FlightCancelledError) or (
            isinstance(error, _ProducerEnded) and isinstance(error.reason, Unreachable)
        )
        reason = self._reason(error)
        failed: list[tuple[InChannel, Exception]] = []
        with self._changed:
            now_ms = self._clock.monotonic_ms()
            for channel in self._channels.values():
                if channel.state is State.OPEN or not may_pass:
                    failed.append((channel, reason))
                elif not channel.postpone(now_ms):
                    why = f"did not appear within {self._timeout_ms} ms: {reason}{self._hint(reason)}"
                    failed.append((channel, channel.lost(why)))
            self._forget(channel for channel, _ in failed)
        for channel, channel_error in failed:
            channel.sink.on_error(channel_error)

    def _hint(self, reason: Exception) -> str:
        is_far = isinstance(reason, NothingListens) and self._address.startswith(TLS)
        return f"; {WORKER_HOST.key} says where other workers reach that one" if is_far else ""

    def _reason(self, error: Exception) -> UnistreamError | Exception:
        if isinstance(error, _ProducerEnded):
            return error.reason
        return wire.from_peer(error, self._where) if isinstance(error, wire.WIRE_ERRORS) else error


class _ProducerEnded(Exception):
    """The producer has sent `StreamEnded`."""

    def __init__(self, reason: UnistreamError) -> None:
        super().__init__(str(reason))
        self.reason = reason
