"""What a target holds after commits, in plain Python."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Rule = Literal["append", "upsert", "overwrite"]
Place = Literal["column", "partition", "key"]


class Held(NamedTuple):
    """One row. `v`: what a reader finds, as `same` writes it."""

    id: int
    v: str
    n: int


Rows = frozenset[Held]


def same(value: Any) -> str:
    """A text that is equal for equal values only; a moment is the same in any zone."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC)
    return f"{type(value).__name__} {value!r}"


def held(found: Iterable[Mapping[str, Any]]) -> Rows:
    """Of rows that a reader has found. Each is there once."""
    listed = [Held(one["id"], same(one["v"]), one["n"]) for one in found]
    rows = frozenset(listed)
    assert len(rows) == len(listed), f"rows are there twice: {sorted(listed)}"
    return rows


def committed(before: Rows, rule: Rule, place: Place, new: Rows) -> Rows:
    """The rows after a commit of `new`."""
    values = {one.v for one in new}
    match rule:
        case "append":
            kept = before
        case "upsert" if place == "key":
            kept = frozenset(one for one in before if one.v not in values)
        case "upsert":
            ids = {one.id for one in new}
            kept = frozenset(one for one in before if one.id not in ids)
        case "overwrite" if place == "partition":
            kept = frozenset(one for one in before if one.v not in values)
        case "overwrite":
            kept = frozenset()
    return kept | new


def difference(found: Rows, expected: Sequence[Rows]) -> str:
    """For a message."""
    [first, *_] = expected
    return f"missing: {sorted(first - found)}, too many: {sorted(found - first)}"
