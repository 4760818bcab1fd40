"""Dead letters of sources: records that a source of the pipeline reads again, as it is configured now."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.core.graph import uid_of
from unistream.model.stream_graph import StreamGraph, StreamNode
from unistream.operator.common import encoded_row
from unistream.operator.replayed import REPLAYED_COLUMNS
from unistream.port.dead_letters import ReadsLetters
from unistream.port.operator import SourceOperatorSpec


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """What came of records.

    Attributes:
        letters: Those that are rows now, as letters of an operator.
        unread: Id and reason of each of the others.
    """

    letters: pa.Table
    unread: tuple[tuple[str, str], ...]


def source_named(graph: StreamGraph, name: str) -> StreamNode | None:
    """The source of that uid or name; None: there is none that reads letters."""
    for node, _ in _sources(graph):
        if name in (uid_of(node), node.name):
            return node
    return None


def owner(graph: StreamGraph, records: pa.Table) -> StreamNode:
    """The source that has sent all of these records. Raises ConfigError: none has, or it is not known."""
    found = [(node, pc.sum(source.own_letters(records)).as_py() or 0) for node, source in _sources(graph)]
    owners = [(node, own) for node, own in found if own]
    if not owners:
        of = records["topic" if "topic" in records.schema.names else "path"][0].as_py()
        raise ConfigError(
            f"no source of the pipeline reads {of!r}, which these letters are of, with all of their columns: "
            "topic, partition, offset, timestamp, reason, raw, key and headers of Kafka's records; path, "
            "line, byte, reason and raw of lines"
        )
    if len(owners) > 1 or owners[0][1] < records.num_rows:
        names = ", ".join(repr(str(uid_of(node))) for node, _ in owners)
        raise ConfigError(f"not all of the letters are of one source ({names}); give one by --operator")
    return owners[0][0]


def own(node: StreamNode, records: pa.Table) -> pa.Array:
    """Which of the records the source may have sent."""
    return _reader(node).own_letters(records)


def read_again(node: StreamNode, rows: pa.Table, records: pa.Table) -> ReadAgain:
    """`rows`: the records as letters; one for each. Raises ConfigError, Unreachable: see `ReadsLetters`."""
    found = _reader(node).read_letters(records)
    ids = rows["letter"].to_pylist()
    good = [at for at, of_letter in enumerate(found.rows) if of_letter is not None]
    columns = {
        "letter": [ids[at] for at in good],
        "row_ipc": [encoded_row(one) for one in found.rows if one is not None],
        "event_time": [found.times[at] for at in good],
        "attempt": [1] * len(good),
    }
    arrays = [pa.array(columns[field.name], field.type) for field in REPLAYED_COLUMNS]
    unread = tuple((ids[at], found.reasons[at]) for at in sorted(found.reasons))
    return ReadAgain(pa.Table.from_arrays(arrays, schema=REPLAYED_COLUMNS), unread)


def _sources(graph: StreamGraph) -> list[tuple[StreamNode, ReadsLetters]]:
    return [
        (node, node.operator.source)
        for node in graph.nodes
        if isinstance(node.operator, SourceOperatorSpec) and isinstance(node.operator.source, ReadsLetters)
    ]


def _reader(node: StreamNode) -> ReadsLetters:
    spec = node.operator
    assert isinstance(spec, SourceOperatorSpec), "it is one of `_sources`"
    assert isinstance(spec.source, ReadsLetters), "it is one of `_sources`"
    return spec.source
