"""What a consumer has of one call to a producer: its two ends, and what waits to be said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyarrow import flight

from unistream.net import frames, wire
from unistream.net.peers import Alarms

FINISH_MS: Final = 2_000  # for the producer's end of a stream that was read to its end


class Call:
    """For one stream, under its lock, but for `finish`. It may be used for one call after another."""

    def __init__(self) -> None:
        self._reader: flight.FlightStreamReader | None = None  # of a call that was made
        self._writer: flight.FlightStreamWriter | None = None  # of a call that was answered
        self._unsaid: list[frames.Command] = []  # for the producer, when it has answered

    @property
    def is_silent(self) -> bool:
        """It was made, and the producer has not answered."""
        return self._reader is not None and self._writer is None

    @property
    def is_answered(self) -> bool:
        return self._writer is not None

    def made(self, reader: flight.FlightStreamReader) -> None:
        self._reader = reader

    def answered(self, writer: flight.FlightStreamWriter) -> None:
        """For the first time: the producer is there, so that writing takes no time."""
        self._writer = writer
        unsaid, self._unsaid = self._unsaid, []
        self.say(unsaid)

    def say(self, commands: Sequence[frames.Command]) -> None:
        """Now, or when the producer has answered."""
        if self._writer is None:
            if self._reader is not None:
                self._unsaid += commands
            return
        try:
            for message in frames.encode_commands(commands):
                self._writer.write_metadata(message)
        except wire.WIRE_ERRORS:
            self._writer = None  # broken: the reading side says so, with the reason

    def break_off(self) -> None:
        """Whoever reads is woken by an error."""
        if self._reader is not None:
            self._reader.cancel()

    def ended(self) -> None:
        """Nothing is said any more."""
        self._reader = self._writer = None
        self._unsaid.clear()


def finish(writer: flight.FlightStreamWriter, reader: flight.FlightStreamReader, alarms: Alarms) -> None:
    """Tells the producer that everything was read, and waits for its end of the call."""
    alarm = alarms.set(FINISH_MS, reader.cancel)
    try:
        writer.done_writing()
        while True:
            reader.read_chunk()
    except StopIteration:
        return
    except wire.WIRE_ERRORS:
        return  # everything was read; the producer learns the rest from its side
    finally:
        alarms.forget(alarm)


def close_quietly(writer: flight.FlightStreamWriter) -> None:
    """Explicitly, since a writer that is merely dropped complains on stderr."""
    try:
        writer.close()
    except wire.WIRE_ERRORS:
        return
