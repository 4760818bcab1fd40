"""Results of split discovery, as passed between the master and a connector."""

from __future__ import annotations

import re
from collections.abc import Iterable

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


class Unread(msgspec.Struct, frozen=True):
    """How much is in some splits; None: not known of all of them."""

    rows: int | None = 0
    size: int | None = 0

    def __add__(self, other: Unread) -> Unread:
        """
        >>> Unread(2, 5) + Unread(3, None)
        Unread(rows=5, size=None)
        """
        return Unread(_sum(self.rows, other.rows), _sum(self.size, other.size))


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


class UnreadSum:
    """The sum of what is unread in splits that come and go.

    >>> total = UnreadSum([Split(id="a", data=b"", rows=2, size=5), Split(id="b", data=b"", rows=3)])
    >>> total.unread, total.without(Split(id="b", data=b"", rows=3)), total.unread
    (Unread(rows=5, size=None), None, Unread(rows=2, size=5))
    """

    def __init__(self, splits: Iterable[Split] = ()) -> None:
        given = list(splits)
        rows = [split.rows for split in given if split.rows is not None]
        sizes = [split.size for split in given if split.size]
        self._rows, self._unknown_rows = sum(rows), len(given) - len(rows)
        self._size, self._unknown_sizes = sum(sizes), len(given) - len(sizes)

    def without(self, split: Split) -> None:
        """One of them is gone."""
        self._rows -= split.rows or 0
        self._unknown_rows -= split.rows is None
        self._size -= split.size
        self._unknown_sizes -= not split.size

    @property
    def unread(self) -> Unread:
        return Unread(None if self._unknown_rows else self._rows, None if self._unknown_sizes else self._size)


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
