"""Connectors for people: which there are, and what their sources and sinks take.

What a user writes is found by its name, so a list imports no connector of ours, and one whose libraries are
missing is listed, too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import msgspec

from unistream.base.errors import ConfigError
from unistream.base.plugins import load
from unistream.connector.catalogue import (
    BUILT_IN,
    ENTRY_POINT_GROUP,
    FORMER_CATALOGUE,
    ConnectorInfo,
    declared,
)

_OURS: Final = "unistream"
_ARGUMENT: Final = re.compile(r"(\w+(?:, \w+)*): (.*)")
_LITERAL: Final = re.compile(r"``([^`]*)``")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedConnector:
    """A connector that is here. `package`: name and version of what brings it; `problem`: why what it
    declares cannot be read, then `info` is empty."""

    name: str
    info: ConnectorInfo
    package: str
    problem: str = ""


class ConnectorOption(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of a source or sink. `default`: as Python writes it; None: it is required."""

    name: str
    default: str | None
    meaning: str


class ConnectorPart(msgspec.Struct, frozen=True, kw_only=True):
    """The source or the sink of a connector. `problem`: why its arguments are not known."""

    kind: str
    name: str
    summary: str = ""
    options: tuple[ConnectorOption, ...] = ()
    problem: str = ""


def connectors() -> list[ListedConnector]:
    """All connectors, by name. A built-in name cannot be taken by an installed package."""
    ours = [
        ListedConnector(name=name, info=info, package=_OURS)
        for name, info in BUILT_IN.items()
        if info.source or info.sink
    ]
    groups = (ENTRY_POINT_GROUP, FORMER_CATALOGUE)  # what the second says of a connector counts
    theirs = [_declared(point) for group in groups for point in entry_points(group=group)]
    found = {one.name: one for one in (*theirs, *ours)}
    return [found[name] for name in sorted(found)]


def connector(name: str) -> ListedConnector:
    """Raises ConfigError: there is none of that name."""
    known = {one.name: one for one in connectors()}
    if name not in known:
        raise ConfigError(
            f"there is no connector {name!r}; there are {', '.join(known)} (others come with packages that "
            f"declare the entry point group {ENTRY_POINT_GROUP!r})"
        )
    return known[name]


def parts(found: ListedConnector) -> list[ConnectorPart]:
    """The source and the sink of a connector, with their arguments."""
    places = {"source": found.info.source, "sink": found.info.sink}
    return [_part(found, kind, place) for kind, place in places.items() if place]


def _declared(point: EntryPoint) -> ListedConnector:
    package = "" if point.dist is None else f"{point.dist.name} {point.dist.version}"
    try:
        return ListedConnector(name=point.name, info=declared(point.name, point.value), package=package)
    except ConfigError as error:
        info = ConnectorInfo(summary="")
        return ListedConnector(name=point.name, info=info, package=package, problem=str(error))


def _part(found: ListedConnector, kind: str, place: str) -> ConnectorPart:
    name = place.partition(":")[2]
    try:
        made = load(found.name, place)
    except ConfigError as error:
        cure = f": pip install 'unistream[{found.info.extra}]'" if found.info.extra else ""
        return ConnectorPart(kind=kind, name=name, problem=f"{error}{cure}")
    text = inspect.getdoc(made) or ""
    meanings = dict(described_arguments(text))
    assert callable(made)
    options = tuple(
        ConnectorOption(
            name=argument.name,
            default=None if argument.default is argument.empty else repr(argument.default),
            meaning=meanings.get(argument.name, ""),
        )
        for argument in inspect.signature(made).parameters.values()
        if argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
    )
    return ConnectorPart(
        kind=kind, name=name, summary=" ".join(text.partition("\n\n")[0].split()), options=options
    )


def described_arguments(text: str) -> Iterator[tuple[str, str]]:
    r"""The arguments that a docstring describes below "Args:".

    >>> list(described_arguments("A sink.\n\nArgs:\n    path: A\n        folder.\n    n, m: Numbers.\n"))
    [('path', 'A folder.'), ('n', 'Numbers.'), ('m', 'Numbers.')]
    """
    names: list[str] = []
    words: list[str] = []
    for line in (*text.partition("Args:\n")[2].split("\n"), ""):
        begins = _ARGUMENT.fullmatch(line[4:]) if line.startswith("    ") and line[4:5] != " " else None
        if begins is None and line.startswith("        "):
            words.append(line.strip())
            continue
        meaning = _LITERAL.sub(r"\1", " ".join(words))
        yield from ((name, meaning) for name in names)
        if begins is None:
            return
        names, words = begins[1].split(", "), [begins[2]]
