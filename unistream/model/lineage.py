"""What a pipeline reads and writes outside of itself, for catalogues: Flink's lineage graph (FLIP-314).

Data sets are named as OpenLineage names them (https://openlineage.io/docs/spec/naming): a namespace, which is
the system, and a name in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from unistream.base.ids import OperatorUid

_WITH_KEYS: Final = ("s3", "s3a", "gs")  # stores whose names are keys, without a first slash
_LOCAL: Final = "file"


@dataclass(frozen=True, slots=True)
class LineageDataset:
    """A topic, a table, a folder of files.

    Attributes:
        namespace: The system, such as ``kafka://broker:9092`` or ``s3://bucket``; ``file``: this machine.
        name: In it.
        format: Of the data, such as ``parquet`` or ``delta``; empty: not known.

    >>> LineageDataset("kafka://broker:9092", "orders", "json").uri
    'kafka://broker:9092/orders'
    """

    namespace: str
    name: str
    format: str = ""

    @property
    def uri(self) -> str:
        if self.namespace == _LOCAL:
            return f"file://{self.name}"
        return f"{self.namespace.rstrip('/')}/{self.name.lstrip('/')}"


SourceColumn: TypeAlias = tuple[OperatorUid, str]
"""(uid of a source, its column)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLineage:
    """A source, and what it reads.

    Attributes:
        uid: Of the operator; made from its name if the user gave none.
        bounded: It ends by itself.
        schema: Of its rows; None: what it reads is not there now.
        datasets: Empty: it does not read from outside, or does not say.
    """

    uid: OperatorUid
    name: str
    bounded: bool
    schema: pa.Schema | None
    datasets: tuple[LineageDataset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLineage:
    """A sink, what it writes, and from which sources that comes.

    Attributes:
        has_uid: The user gave it one; otherwise `uid` changes with the pipeline.
        schema: Of the rows; None: a function before it does not declare what it returns.
        sources: Uids of all sources upstream, in the order of the pipeline.
        columns: Column of the rows -> columns of sources that its values are made of. Without those that came
            through a function of the user, of which nobody knows.
        dead_letters_of: The source or operator whose dead letters it writes; None: it writes rows.
        side_output_of: (uid, tag): the operator whose side output it writes; None: it writes another stream.
        operators: Names of those between the sources and it, in the order of the pipeline.
    """

    uid: OperatorUid
    name: str
    has_uid: bool
    schema: pa.Schema | None
    datasets: tuple[LineageDataset, ...]
    sources: tuple[OperatorUid, ...]
    columns: Mapping[str, frozenset[SourceColumn]] = field(default_factory=dict)
    dead_letters_of: OperatorUid | None = None
    side_output_of: tuple[OperatorUid, str] | None = None
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LineageGraph:
    """The ends of a pipeline."""

    sources: tuple[SourceLineage, ...]
    sinks: tuple[SinkLineage, ...]

    def source(self, uid: OperatorUid) -> SourceLineage:
        """The source with that uid. Raises KeyError."""
        for source in self.sources:
            if source.uid == uid:
                return source
        raise KeyError(uid)


def dataset_at(url: str, format: str = "") -> LineageDataset:
    """The data set at a path or URL; without the user and password that may be in it.

    >>> dataset_at("s3://lake/orders", "delta").name, dataset_at("/lake/orders").namespace
    ('orders', 'file')
    >>> dataset_at("hdfs://user:secret@node:8020/lake/orders").uri
    'hdfs://node:8020/lake/orders'
    """
    if "://" not in url:
        return LineageDataset(_LOCAL, url, format)
    parts = urlsplit(url)
    name = unquote(parts.path).rstrip("/") or "/"
    if parts.scheme in ("file", "local"):
        return LineageDataset(_LOCAL, name, format)
    user, at, host = parts.netloc.rpartition("@")
    place = f"{user}{at}{host}" if ":" not in user else host  # abfss://container@account has no password
    return LineageDataset(
        f"{parts.scheme}://{place}", name.lstrip("/") if parts.scheme in _WITH_KEYS else name, format
    )


def topic_at(servers: str, topic: str, format: str = "") -> LineageDataset:
    """A topic of Kafka; the cluster is named by the first of its servers.

    >>> topic_at("b1:9092,b2:9092", "orders").namespace
    'kafka://b1:9092'
    """
    return LineageDataset(f"kafka://{servers.partition(',')[0].strip()}", topic, format)
