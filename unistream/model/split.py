"""A part of a source, as messages and snapshots contain it."""

from __future__ import annotations

import msgspec


class Split(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a source (a Kafka partition, a row group). `data` belongs to the connector and holds the
    position to start from; a reader's snapshot is a list of splits with newer positions. `min_timestamp`: a
    lower bound of the event times of its rows (ms), if one is known; MAX_WATERMARK: it has no rows. `phase`:
    see `SourceInfo.phases`. `size`: bytes to read, so it has an end, and is not idle before; 0: not known.
    `rows`: those behind its position, or some more; None: not known. `recorded`: partition and offset that a
    sink records with its commits; None: its source has none (`SourceInfo.recorded_as`)."""

    id: str
    data: bytes
    min_timestamp: int | None = None
    phase: int = 0
    size: int = 0
    recorded: tuple[str, int] | None = None
    rows: int | None = None
