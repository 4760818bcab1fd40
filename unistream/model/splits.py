"""Results of split discovery, as passed between the master and a connector."""

from __future__ import annotations

import re

import msgspec

from unistream.model.messages import Split


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts numbers inside a text by value.

    >>> sorted(["t-10", "t-9", "s-1"], key=natural_key)
    ['s-1', 't-9', 't-10']
    """
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text) if part
    )


class KnownSplits(msgspec.Struct, frozen=True, kw_only=True):
    """Results of all discoveries of a job so far.

    Attributes:
        ids: Of all splits ever found; of a source with a position, only those that are not with a reader for
            good.
        origin: The connector's identity of what is read (the id of a Kafka topic), because another one may
            have the same name later. Empty: not known.
        origins: The same of a source that reads several things: name -> identity.
        position: Of the last discovery (see `FoundSplits`). Empty: it had none.
    """

    ids: frozenset[str]
    origin: str = ""
    origins: dict[str, str] = {}
    position: str = ""


class FoundSplits(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one discovery.

    Attributes:
        splits: At least all new ones, each at its start position.
        origin, origins: See `KnownSplits`.
        position: Where the next discovery continues (the next version of a table), for the connector only. It
            then returns splits that are new since this one, so that a job need not remember the ids of those
            that were read. Empty: the connector compares ids.
    """

    splits: tuple[Split, ...]
    origin: str = ""
    origins: dict[str, str] = {}
    position: str = ""
