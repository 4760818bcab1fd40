"""Which connectors there are, for people: ours, and what installed packages declare.

A package declares each of its connectors in the entry-point group ``unistream.catalogue`` (name =
"module:object", a `ConnectorInfo`), next to the groups by which it is found when a job runs
(`unistream.connector.registry`, `unistream.connector.committers`). What a user writes is found by its name,
so a list imports no connector of ours, and one whose libraries are missing is listed, too.
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

ENTRY_POINT_GROUP: Final = "unistream.catalogue"

_OURS: Final = "unistream"
_ARGUMENT: Final = re.compile(r"(\w+(?:, \w+)*): (.*)")
_LITERAL: Final = re.compile(r"``([^`]*)``")


class ConnectorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a connector is.

    Attributes:
        summary: One line.
        source: "module:Class" of the source that users write; "": it has none.
        sink: The same of the sink.
        promise: What the sink does at restarts, such as "exactly once"; "": it has no sink.
        extra: Of pip, with the libraries that it needs; "": none.
        guide: Page or address of its documentation.
    """

    summary: str
    source: str = ""
    sink: str = ""
    promise: str = ""
    extra: str = ""
    guide: str = ""


BUILT_IN: Final = {
    "blackhole": ConnectorInfo(
        summary="Drops rows, and counts them.",
        sink="unistream.connector.blackhole:BlackholeSink",
        promise="nothing is kept",
        guide="docs/guide/sinks.md",
    ),
    "collect": ConnectorInfo(
        summary="A folder of Arrow files, for programs and tests.",
        sink="unistream.connector.collect:CollectSink",
        promise="exactly once",
        guide="docs/guide/sinks.md",
    ),
    "datagen": ConnectorInfo(
        summary="Rows that are generated, with or without an end.",
        source="unistream.connector.datagen:DatagenSource",
        guide="docs/guide/datastream.md",
    ),
    "delta": ConnectorInfo(
        summary="Delta tables: a version, or all that come; one commit for each checkpoint.",
        source="unistream.connector.delta:DeltaSource",
        sink="unistream.connector.delta:DeltaSink",
        promise="exactly once",
        extra="delta",
        guide="docs/guide/delta.md",
    ),
    "file": ConnectorInfo(
        summary="Folders of Parquet, JSON lines, CSV, ORC or Avro: what is there, or all that comes.",
        source="unistream.connector.file:FileSource",
        sink="unistream.connector.file:FileSink",
        promise="exactly once",
        guide="docs/guide/files.md",
    ),
    "hybrid": ConnectorInfo(
        summary="A bounded history, and then a live source.",
        source="unistream.connector.hybrid:HybridSource",
        guide="docs/guide/hybrid.md",
    ),
    "iceberg": ConnectorInfo(
        summary="Iceberg tables: a snapshot, or all that come; one snapshot for each checkpoint.",
        source="unistream.connector.iceberg:IcebergSource",
        sink="unistream.connector.iceberg:IcebergSink",
        promise="exactly once",
        extra="iceberg",
        guide="docs/guide/iceberg.md",
    ),
    "kafka": ConnectorInfo(
        summary="Topics: columns from JSON, Avro, Protobuf or bytes; records by transactions.",
        source="unistream.connector.kafka:KafkaSource",
        sink="unistream.connector.kafka:KafkaSink",
        promise="exactly once",
        extra="kafka",
        guide="docs/guide/kafka.md",
    ),
    "print": ConnectorInfo(
        summary="Rows on the standard output of the workers.",
        sink="unistream.connector.print_:PrintSink",
        promise="at least once",
        guide="docs/guide/sinks.md",
    ),
    "sql": ConnectorInfo(
        summary="Tables of PostgreSQL and SQLite: read once, or as they grow; appended, or replaced by key.",
        source="unistream.connector.sql:SqlSource",
        sink="unistream.connector.sql:SqlSink",
        promise="exactly once",
        extra="postgres",
        guide="docs/guide/sql-source.md",
    ),
    "static": ConnectorInfo(
        summary="A table of the program.",
        source="unistream.connector.static:StaticSource",
        guide="docs/guide/datastream.md",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A connector that is here. `package`: name and version of what brings it; `problem`: why what it
    declares cannot be read, then `info` is empty."""

    name: str
    info: ConnectorInfo
    package: str
    problem: str = ""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of a source or sink. `default`: as Python writes it; None: it is required."""

    name: str
    default: str | None
    meaning: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The source or the sink of a connector. `problem`: why its arguments are not known."""

    kind: str
    name: str
    summary: str = ""
    options: tuple[Option, ...] = ()
    problem: str = ""


def connectors() -> list[Found]:
    """All of them, by name. A built-in name cannot be taken by an installed package."""
    ours = [Found(name=name, info=info, package=_OURS) for name, info in BUILT_IN.items()]
    theirs = [_declared(point) for point in entry_points(group=ENTRY_POINT_GROUP)]
    found = {one.name: one for one in (*theirs, *ours)}
    return [found[name] for name in sorted(found)]


def connector(name: str) -> Found:
    """Raises ConfigError: there is none of that name."""
    known = {one.name: one for one in connectors()}
    if name not in known:
        raise ConfigError(
            f"there is no connector {name!r}; there are {', '.join(known)} (others come with packages that "
            f"declare the entry point group {ENTRY_POINT_GROUP!r})"
        )
    return known[name]


def parts(found: Found) -> list[Part]:
    """Its source and its sink, with their arguments."""
    places = {"source": found.info.source, "sink": found.info.sink}
    return [_part(found, kind, place) for kind, place in places.items() if place]


def _declared(point: EntryPoint) -> Found:
    package = "" if point.dist is None else f"{point.dist.name} {point.dist.version}"
    try:
        info, problem = load(point.name, point.value), f"{point.value} is no ConnectorInfo"
    except ConfigError as error:
        info, problem = None, str(error)
    if isinstance(info, ConnectorInfo):
        return Found(name=point.name, info=info, package=package)
    return Found(name=point.name, info=ConnectorInfo(summary=""), package=package, problem=problem)


def _part(found: Found, kind: str, place: str) -> Part:
    name = place.partition(":")[2]
    try:
        made = load(found.name, place)
    except ConfigError as error:
        cure = f": pip install 'unistream[{found.info.extra}]'" if found.info.extra else ""
        return Part(kind=kind, name=name, problem=f"{error}{cure}")
    text = inspect.getdoc(made) or ""
    meanings = dict(described_arguments(text))
    assert callable(made)
    options = tuple(
        Option(
            name=argument.name,
            default=None if argument.default is argument.empty else repr(argument.default),
            meaning=meanings.get(argument.name, ""),
        )
        for argument in inspect.signature(made).parameters.values()
        if argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
    )
    return Part(kind=kind, name=name, summary=" ".join(text.partition("\n\n")[0].split()), options=options)


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
