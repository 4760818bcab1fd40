"""Cases, as read from files of any shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

NAME_FIELDS: Final = ("name", "case", "phase", "scenario", "id", "key", "reason")
NAME_CHARS_MAX: Final = 120


class SkipCase(Exception):
    """The case, or a part of it, is not compared, by design.

    Attributes:
        reason: Why.
        shown_by: ``file::test`` of ours that show what the case says; none: it cannot apply.
    """

    def __init__(self, reason: str, *shown_by: str) -> None:
        super().__init__(f"{reason}; shown by {', '.join(shown_by)}" if shown_by else reason)
        self.reason = reason
        self.shown_by = shown_by


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of Flink and that of our machine; equal, or the case failed."""

    expected: object
    actual: object


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `run` plays it on our machine; it may raise `SkipCase`, any other error is a failure."""

    name: str
    run: Callable[[], Comparison]


@dataclass(frozen=True, slots=True)
class Shape:
    """How cases of one shape are read.

    Attributes:
        section: Their key in the file.
        fields: Fields of a case, which distinguish sections of one name. ``a.b``: entries of list a have b.
            Empty: `read` takes the whole section.
        read: Cases of one entry (or of the whole section), given the name of the entry and the section.
    """

    section: str
    fields: frozenset[str]
    read: Callable[[str, Any, Any], Iterator[Case]]

    def fits(self, value: object) -> bool:
        """Whether it reads that entry."""
        return isinstance(value, dict) and all(_has(value, field) for field in self.fields)


def _has(value: Json, field: str) -> bool:
    outer, _, inner = field.partition(".")
    if outer not in value:
        return False
    items = value[outer]
    return not inner or (isinstance(items, list) and all(isinstance(i, dict) and inner in i for i in items))


def entry(section: str, *fields: str, play: Callable[[Json], Comparison]) -> Shape:
    """A shape of which each entry is one case."""

    def read(name: str, value: Json, _section: Any) -> Iterator[Case]:
        yield Case(name, lambda: play(value))

    return Shape(section, frozenset(fields), read)


def skipped(name: str, why: SkipCase) -> Case:
    """A case that is only listed."""

    def run() -> Comparison:
        raise why

    return Case(name, run)


def name_of(value: object, number: int) -> str:
    """The name of an entry: its own, else its values."""
    if isinstance(value, dict):
        for key in NAME_FIELDS:
            if isinstance(value.get(key), str):
                return str(value[key])
        scalars = {k: v for k, v in value.items() if isinstance(v, str | int | float | bool)}
        if scalars:
            return ", ".join(f"{k}={v}" for k, v in scalars.items())[:NAME_CHARS_MAX]
    return value[:NAME_CHARS_MAX] if isinstance(value, str) else f"#{number}"


def shown(value: object) -> str:
    """As JSON where it can be, for people."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return repr(value)
