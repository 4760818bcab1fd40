"""Which connectors there are: ours, in one table, and what installed packages declare.

A package declares each of its connectors in the entry-point group ``unistream.connectors`` (name =
"module:object", a `ConnectorInfo`). What is named here is imported at its first use, and nothing else can be
loaded by its name; a name of ours cannot be taken by a package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

import msgspec

from unistream.base.errors import ConfigError
from unistream.base.plugins import installed, load
from unistream.model.graph import SourceInfo
from unistream.port.sink import Committer
from unistream.port.source import SplitDiscovery

ENTRY_POINT_GROUP: Final = "unistream.connectors"
FORMER_COMMITTERS: Final = "unistream.committers"
"""The group of packages that declare a committer by its function alone."""
FORMER_CATALOGUE: Final = "unistream.catalogue"
"""The group of packages whose `ConnectorInfo` stands apart from the function that makes the discovery."""
STORED_AS: Final = {"files": "file"}
"""Names under which snapshots store the committables of a connector, where they are not its own."""

DiscoveryFactory = Callable[[SourceInfo], SplitDiscovery]
CommitterFactory = Callable[[Sequence[bytes]], Committer]


class ConnectorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a connector is.

    Attributes:
        summary: One line.
        source: "module:Class" of the source that users write; "": it has none.
        sink: The same of the sink.
        promise: What the sink does at restarts, such as "exactly once"; "": it has no sink.
        extra: Of pip, with the libraries that it needs; "": none.
        guide: Page or address of its documentation.
        discovery: "module:function" that makes the discovery of splits from a `SourceInfo`, for masters: they
            run no code of a user, and find it by `SourceInfo.connector`; "": it has no source.
        committer: "module:function" that makes the committer from committables alone: for
            `unistream savepoint finalize`, without the pipeline. It takes credentials from the environment,
            because snapshots store none. "": it needs the pipeline.
        checks_rows: Its sink can say which rows its target would refuse (`on_error` of `sink_to`).
        joins_groups: Its sink can be in a `CommitGroup`.
    """

    summary: str
    source: str = ""
    sink: str = ""
    promise: str = ""
    extra: str = ""
    guide: str = ""
    discovery: str = ""
    committer: str = ""
    checks_rows: bool = False
    joins_groups: bool = False


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
        committer="unistream.connector.collect:committer_of",
    ),
    "datagen": ConnectorInfo(
        summary="Rows that are generated, with or without an end.",
        source="unistream.connector.datagen:DatagenSource",
        guide="docs/guide/datastream.md",
        discovery="unistream.connector.datagen:create_discovery",
    ),
    "delta": ConnectorInfo(
        summary="Delta tables: a version, or all that come; one commit for each checkpoint.",
        source="unistream.connector.delta:DeltaSource",
        sink="unistream.connector.delta:DeltaSink",
        promise="exactly once",
        extra="delta",
        guide="docs/guide/delta.md",
        discovery="unistream.connector.delta:create_discovery",
        committer="unistream.connector.delta:committer_of",
        checks_rows=True,
        joins_groups=True,
    ),
    "file": ConnectorInfo(
        summary="Folders of Parquet, JSON lines, CSV, ORC or Avro: what is there, or all that comes.",
        source="unistream.connector.file:FileSource",
        sink="unistream.connector.file:FileSink",
        promise="exactly once",
        guide="docs/guide/files.md",
        discovery="unistream.connector.file:create_discovery",
        committer="unistream.connector.file:committer_of",
        checks_rows=True,
    ),
    "group": ConnectorInfo(
        summary="Sinks whose rows of a checkpoint become visible together.",
        committer="unistream.connector.group:committer_of",
    ),
    "hybrid": ConnectorInfo(
        summary="A bounded history, and then a live source.",
        source="unistream.connector.hybrid:HybridSource",
        guide="docs/guide/hybrid.md",
        discovery="unistream.connector.hybrid:create_discovery",
    ),
    "iceberg": ConnectorInfo(
        summary="Iceberg tables: a snapshot, or all that come; one snapshot for each checkpoint.",
        source="unistream.connector.iceberg:IcebergSource",
        sink="unistream.connector.iceberg:IcebergSink",
        promise="exactly once",
        extra="iceberg",
        guide="docs/guide/iceberg.md",
        discovery="unistream.connector.iceberg:create_discovery",
        committer="unistream.connector.iceberg:committer_of",
        checks_rows=True,
        joins_groups=True,
    ),
    "kafka": ConnectorInfo(
        summary="Topics: columns from JSON, Avro, Protobuf or bytes; records by transactions.",
        source="unistream.connector.kafka:KafkaSource",
        sink="unistream.connector.kafka:KafkaSink",
        promise="exactly once",
        extra="kafka",
        guide="docs/guide/kafka.md",
        discovery="unistream.connector.kafka:create_discovery",
        committer="unistream.connector.kafka.sink.sink_committer:committer_of",
        checks_rows=True,
    ),
    "polling": ConnectorInfo(
        summary="A source of your own: a class that is asked for rows behind a position.",
        source="unistream.connector.simple:PollingSource",
        guide="docs/guide/connectors.md",
        discovery="unistream.connector.simple:create_discovery",
    ),
    "print": ConnectorInfo(
        summary="Rows on the standard output of the workers.",
        sink="unistream.connector.print_:PrintSink",
        promise="at least once",
        guide="docs/guide/sinks.md",
    ),
    "simple": ConnectorInfo(
        summary="A sink of your own: a class that is given rows.",
        sink="unistream.connector.simple:SimpleSink",
        promise="at least once",
        guide="docs/guide/connectors.md",
    ),
    "sql": ConnectorInfo(
        summary="Tables of PostgreSQL and SQLite: read once, or as they grow; appended, or replaced by key.",
        source="unistream.connector.sql:SqlSource",
        sink="unistream.connector.sql:SqlSink",
        promise="exactly once",
        extra="postgres",
        guide="docs/guide/sql-source.md",
        discovery="unistream.connector.sql:create_discovery",
        committer="unistream.connector.sql:committer_of",
        checks_rows=True,
        joins_groups=True,
    ),
    "static": ConnectorInfo(
        summary="A table of the program.",
        source="unistream.connector.static:StaticSource",
        guide="docs/guide/datastream.md",
        discovery="unistream.connector.static:create_discovery",
    ),
}


def declared(name: str, target: str) -> ConnectorInfo:
    """What an installed package says of its connector: a `ConnectorInfo`, or only the function that makes the
    discovery of its source. Raises ConfigError."""
    found = load(name, target)
    if isinstance(found, ConnectorInfo):
        return found
    if callable(found):
        return ConnectorInfo(summary="", discovery=target)
    raise ConfigError(f"{target} is no ConnectorInfo")


def create_discovery(info: SourceInfo) -> SplitDiscovery:
    """The discovery that lists the splits of `info`.

    Raises:
        ConfigError: no connector of that name is installed, it cannot be imported, or it refuses the
            options.
    """
    found = _info(info.connector)
    if found is None:
        names = sorted({name for name, one in BUILT_IN.items() if one.discovery} | _theirs())
        raise ConfigError(
            f"unknown connector {info.connector!r}; known are {', '.join(names)} "
            f"(others come with packages that declare the entry point group {ENTRY_POINT_GROUP!r})"
        )
    if not found.discovery:
        raise ConfigError(f"connector {info.connector!r} has no source: its ConnectorInfo names no discovery")
    return cast(DiscoveryFactory, load(info.connector, found.discovery))(info)


def committer_of(connector: str, committables: Sequence[bytes]) -> Committer:
    """The committer, not open, of `committables` (at least one). `connector`: see
    `unistream.port.sink.RecoverableCommitter`.

    Raises:
        ConfigError: no connector of that name is installed, or it cannot be imported.
        CorruptSnapshot: a committable cannot be read.
    """
    found = _info(STORED_AS.get(connector, connector))
    if found is None:
        names = sorted({name for name, one in BUILT_IN.items() if one.committer} | _theirs())
        raise ConfigError(
            f"the committer of connector {connector!r} is not installed; installed are {', '.join(names)} "
            f"(packages add others in the entry point group {ENTRY_POINT_GROUP!r})"
        )
    if not found.committer:
        raise ConfigError(
            f"connector {connector!r} declares no committer that is made without the pipeline: its "
            "ConnectorInfo names none"
        )
    return cast(CommitterFactory, load(connector, found.committer))(committables)


def sinks_that(can: Callable[[ConnectorInfo], bool]) -> str:
    """Names the sinks of ours whose `ConnectorInfo` says that they can do something, for a message.

    >>> sinks_that(lambda one: one.joins_groups)
    'DeltaSink, IcebergSink and SqlSink'
    """
    *names, last = [info.sink.partition(":")[2] for info in BUILT_IN.values() if can(info)]
    return f"{', '.join(names)} and {last}"


def _info(name: str) -> ConnectorInfo | None:
    if name in BUILT_IN:
        return BUILT_IN[name]
    target, committer = installed(ENTRY_POINT_GROUP).get(name), installed(FORMER_COMMITTERS).get(name)
    found = None if target is None else declared(name, target)
    if committer is None or (found is not None and found.committer):
        return found
    return msgspec.structs.replace(found or ConnectorInfo(summary=""), committer=committer)


def _theirs() -> set[str]:
    """The names that installed packages declare."""
    return {*installed(ENTRY_POINT_GROUP), *installed(FORMER_COMMITTERS)} - {*BUILT_IN}
