"""How far a source was read, as a sink records it with a commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from unistream.base.errors import UNDECODABLE, ConfigError
from unistream.base.ids import OperatorUid

POSITIONS_MAX: Final = 4_096
"""How many positions of one source are recorded. They are in every commit and in the message that orders it,
with some 20 B each."""


class SourcePositions(msgspec.Struct, frozen=True, kw_only=True):
    """The positions of one source at a checkpoint. A table that has them with a commit contains every row
    before them that the job has read, and no row behind them.

    Attributes:
        uid: Of the source, in the job that wrote the table.
        connector: Name in the registry ("kafka").
        name: What is read, by its name (a topic).
        origin: The connector's identity of it (the id of the topic), since another one may have the same
            name. Empty: not known.
        offsets: Partition -> the next record to read.
    """

    uid: OperatorUid
    connector: str
    name: str
    origin: str = ""
    offsets: dict[str, int]


_DECODER: Final = msgspec.json.Decoder(tuple[SourcePositions, ...])


def encode_positions(positions: Sequence[SourcePositions]) -> str:
    """The positions as JSON, for the metadata of a commit.

    >>> encode_positions([SourcePositions(uid="in", connector="kafka", name="t", offsets={"0": 7})])
    '[{"uid":"in","connector":"kafka","name":"t","origin":"","offsets":{"0":7}}]'
    """
    return msgspec.json.encode(positions).decode()


def decode_positions(text: str, where: str) -> tuple[SourcePositions, ...]:
    """`where`: what has it, for the error. Raises ConfigError."""
    try:
        return _DECODER.decode(text)
    except UNDECODABLE as error:
        raise ConfigError(f"{where}: its positions of sources are unreadable: {error}") from error
