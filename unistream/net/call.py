"""The consumer's side of one call to a producer: its two ends, and commands that wait to be sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyarrow import flight

from unistream.net import frames, wire
from unistream.net.peers import Alarms

FINISH_MS: Final = 2_000  # for the producer to end a stream that was read completely


class Call:
    """Used by one stream, under its lock, for one call after another."""

    def __init__(self) -> None:
        self._reader: flight.FlightStreamReader | None = None  # once the call was made
        self._writer: flight.FlightStreamWriter | None = None  # once it was answered
        self._unsent: list[frames.Command] = []  # until the producer has answered

    @property
    def is_silent(self) -> bool:
        """The producer has not answered."""
        return self._reader is not None and self._writer is None

    @property
    def is_answered(self) -> bool:
        return self._writer is not None

    def made(self, reader: flight.FlightStreamReader) -> None:
        self._reader = reader

    def answered(self, writer: flight.FlightStreamWriter) -> None:
        """The first answer: from now on writing does not block."""
        self._writer = writer
        unsent, self._unsent = self._unsent, []
        self.send(unsent)

    def send(self, commands: Sequence[frames.Command]) -> None:
        """Sends them now, or once the producer has answered."""
        if self._writer is None:
            if self._reader is not None:
                self._unsent += commands
            return
        try:
            for message in frames.encode_commands(commands):
                self._writer.write_metadata(message)
        except wire.WIRE_ERRORS:
            self._writer = None  # broken: the reading side reports the reason

    def break_off(self) -> None:
        """Fails the reader."""
        if self._reader is not None:
            self._reader.cancel()

    def ended(self) -> None:
        """Nothing is sent any more."""
        self._reader = self._writer = None
        self._unsent.clear()


def finish(writer: flight.FlightStreamWriter, reader: flight.FlightStreamReader, alarms: Alarms) -> None:
    """Closes the consumer's side after everything was read, and waits until the producer ends the call."""
    alarm = alarms.set(FINISH_MS, reader.cancel)
    try:
        writer.done_writing()
        while True:
            reader.read_chunk()
    except StopIteration:
        return
    except wire.WIRE_ERRORS:
        return  # everything was read
    finally:
        alarms.forget(alarm)


def close_quietly(writer: flight.FlightStreamWriter) -> None:
    """A writer that is not closed logs to stderr."""
    try:
        writer.close()
    except wire.WIRE_ERRORS:
        return
