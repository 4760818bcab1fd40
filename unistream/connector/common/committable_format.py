"""How sinks read their committables back from a snapshot."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

from unistream.base.errors import CorruptSnapshot


class Formatted(Protocol):
    """A committable that says which format it has."""

    @property
    def format(self) -> int: ...


F = TypeVar("F", bound=Formatted)


def decode_formatted(decoder: msgspec.msgpack.Decoder[F], content: bytes, *, sink: str, expected: int) -> F:
    """Raises CorruptSnapshot for anything else, or another format than `expected`."""
    try:
        committable = decoder.decode(content)
    except msgspec.MsgspecError as error:
        raise CorruptSnapshot(f"a committable of a {sink} sink is unreadable: {error}") from error
    if committable.format != expected:
        raise CorruptSnapshot(
            f"a committable of a {sink} sink has format {committable.format}, this version reads {expected}"
        )
    return committable
