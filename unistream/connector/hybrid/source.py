"""A bounded history and then a live source, as one source (FLIP-150)."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

import msgspec
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.connector.hybrid.discovery import HybridOptions, positioned_discovery, recorded_discovery
from unistream.connector.hybrid.history import HistorySource
from unistream.connector.hybrid.letters import own_letters, read_letters
from unistream.connector.hybrid.reader import HybridReader, Switch
from unistream.model.columns.event_time import is_event_time
from unistream.model.graph import SourceInfo
from unistream.model.lineage import LineageDataset
from unistream.model.time_range import moment_ms
from unistream.port.dead_letters import LetterRows
from unistream.port.lineage import NamesDatasets
from unistream.port.projection import ReadsColumns
from unistream.port.source import SendsDeadLetters, Source, timed

SwitchKind: TypeAlias = Literal["fixed", "last-event-time", "recorded-positions"]


class HybridSource:
    """The rows of `history`, and when all subtasks have read all of them, the rows of `live`.

    So no live row of a key comes before its rows in the history. The watermark goes on over the switch: a
    part of the history that is not read yet holds it back, the live source does not. If `live` is bounded, so
    is this source.

    Args:
        history: Any bounded source, such as a `FileSource`.
        live: Any source, such as a `KafkaSource`. It begins where its own configuration says
            (`starting_offsets`), at the positions that it has when the job starts: what arrives while the
            history is read comes after it. The system has to keep the rows for so long, or the job fails.
        switch: "fixed": both sources are read as they are configured. "last-event-time": rows of `live` up to
            the last event time in `history` are dropped. "recorded-positions": `live` begins where the table
            `history` ends: a job has written the table from it, and its `DeltaSink` has recorded with each
            commit how far it had read.
        fence: A time (`datetime`, without a zone in UTC; or ms since 1970): rows of `history` at this time
            or later and rows of `live` before it are dropped, so that no event comes from both.
        timestamp_column: The column of the event times, for "last-event-time" and `fence`.

    The columns of both have the same names and types. Their order, and whether they may be null, can differ:
    rows have the order of `live`. Event times for watermarks need a timestamp column in the
    `WatermarkStrategy`; without one only rows of a live source that has times (Kafka) have some.

    While it reads its history, `execution.checkpointing.interval-during-backlog` applies.

    Raises:
        ConfigError: an argument is wrong; at `from_source`: `history` is unbounded, or the columns differ;
            when the job starts: as the two sources.

    >>> import pyarrow as pa
    >>> import unistream as us
    >>> history = us.StaticSource(pa.table({"id": [1, 2], "seen_at": [10, 20]}))
    >>> live = us.StaticSource(pa.table({"id": [2, 3], "seen_at": [20, 30]}))
    >>> us.HybridSource(history, live, fence=20, timestamp_column="seen_at").schema.names
    ['id', 'seen_at']
    """

    def __init__(
        self,
        history: Source,
        live: Source,
        *,
        switch: SwitchKind = "fixed",
        fence: datetime | int | None = None,
        timestamp_column: str | None = None,
    ) -> None:
        for name, source in (("history", history), ("live", live)):
            if not callable(getattr(source, "create_reader", None)):
                raise ConfigError(
                    f"HybridSource: {name} must be a source such as us.FileSource(…), not {source!r:.200}"
                )
        if switch not in get_args(SwitchKind):
            known = ", ".join(get_args(SwitchKind))
            raise ConfigError(f"HybridSource: switch must be one of {known}, not {switch!r}")
        derived = switch == "last-event-time"
        if derived and fence is not None:
            raise ConfigError('HybridSource: fence and switch="last-event-time" exclude each other; omit one')
        if switch == "recorded-positions" and fence is not None:
            raise ConfigError(
                'HybridSource: fence and switch="recorded-positions" exclude each other: the positions say '
                "exactly where the history ends; omit one"
            )
        if (derived or fence is not None) != (timestamp_column is not None):
            raise ConfigError(
                'HybridSource: timestamp_column goes with fence or switch="last-event-time", '
                "so give both or neither"
            )
        self._history = history if timestamp_column is None else timed(history, timestamp_column)
        self._live = live if timestamp_column is None else timed(live, timestamp_column)
        self._switch = Switch(column=timestamp_column, fence=None if fence is None else _fence_ms(fence))
        self._at_positions = switch == "recorded-positions"
        self._schema: pa.Schema | None = None

    @property
    def name(self) -> str:
        return f"{self._history.name}, then {self._live.name}"

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            schema = _common_schema(self._history, self._live)
            column = self._switch.column
            if column is not None and column not in schema.names:
                raise ConfigError(
                    f"HybridSource: no timestamp_column {column!r} among {', '.join(schema.names)}"
                )
            if column is not None and not is_event_time(schema.field(column).type):
                raise ConfigError(
                    f"HybridSource: timestamp_column {column!r} is {schema.field(column).type}; it must be "
                    "int64 milliseconds, a timestamp or a date"
                )
            self._schema = schema
        return self._schema

    @property
    def dead_letter_schema(self) -> pa.Schema | None:
        """The schema of the side output "dead-letters" of the source that has one; None: there is none.

        Raises:
            ConfigError: both have one, with other columns.
        """
        found = [
            source.dead_letter_schema
            for source in (self._history, self._live)
            if isinstance(source, SendsDeadLetters) and source.dead_letter_schema is not None
        ]
        if len(found) == 2 and not found[0].equals(found[1]):
            raise ConfigError(
                f"HybridSource: the dead letters of history ({_columns(found[0])}) and live "
                f"({_columns(found[1])}) have other columns; handle those of one of them otherwise"
            )
        return found[0] if found else None

    def lineage_datasets(self) -> list[LineageDataset]:
        """See `unistream.port.lineage`: of both sources."""
        parts = (self._history, self._live)
        return [one for part in parts if isinstance(part, NamesDatasets) for one in part.lineage_datasets()]

    def info(self) -> SourceInfo:
        history, live = self._history.info(), self._live.info()
        if not history.bounded:
            raise ConfigError(
                f"HybridSource: history ({self._history.name}) is unbounded, so live would never be read; "
                "use a bounded source"
            )
        if history.phases or live.phases:
            raise ConfigError("HybridSource: neither history nor live may be a HybridSource itself")
        if self._at_positions:
            recorded_discovery(history).close()
            positioned_discovery(live).close()
        options: dict[str, object] = msgspec.to_builtins(
            HybridOptions(
                fence=self._switch.fence,
                fence_column=self._switch.column or "",
                at_positions=self._at_positions,
            )
        )
        return SourceInfo(
            connector="hybrid",
            options=options,
            bounded=live.bounded,
            pull=False,
            discovery_interval_ms=live.discovery_interval_ms,
            phases=(history, live),
        )

    @property
    def history(self) -> Source:
        """The history alone, all of it, whatever the fence: see `unistream.port.source.WithHistory`."""
        schema = self.schema
        return self._history if self._history.schema.equals(schema) else HistorySource(self._history, schema)

    def reading(self, columns: frozenset[str]) -> HybridSource:
        """See `unistream.port.projection`."""
        if not isinstance(self._history, ReadsColumns) or not isinstance(self._live, ReadsColumns):
            return self
        needed = columns if self._switch.column is None else columns | {self._switch.column}
        found = copy.copy(self)
        found._schema = None
        found._history, found._live = self._history.reading(needed), self._live.reading(needed)
        return found

    def timed_by(self, column: str) -> HybridSource:
        """See `unistream.port.source.ChecksEventTimes`: both of its sources."""
        found = copy.copy(self)
        found._history, found._live = timed(self._history, column), timed(self._live, column)
        return found

    def own_letters(self, letters: pa.Table) -> pa.Array[Any]:
        """See `unistream.port.dead_letters.ReadsLetters`."""
        return own_letters(letters, self._sources)

    def read_letters(self, letters: pa.Table) -> LetterRows:
        """See `unistream.port.dead_letters.ReadsLetters`."""
        return read_letters(letters, self._sources, self.schema, self._switch)

    @property
    def _sources(self) -> dict[str, Source]:
        return {"history": self._history, "live": self._live}

    def create_reader(self) -> HybridReader:
        return HybridReader(
            (self._history, self._live),
            self.schema,
            self._switch,
            history_pulls=self._history.info().pull,
        )


def _fence_ms(fence: datetime | int) -> int:
    if isinstance(fence, datetime):
        return moment_ms(fence)
    if type(fence) is not int:
        raise ConfigError(f"HybridSource: fence must be a datetime or milliseconds since 1970, not {fence!r}")
    return fence


def _common_schema(history: Source, live: Source) -> pa.Schema:
    """The schema of the rows, in the order of `live`; a column may be null if it may in one of them."""
    first, second = history.schema, live.schema
    for schema, name in ((first, "history"), (second, "live")):
        if len(set(schema.names)) != len(schema):
            raise ConfigError(f"HybridSource: {name} has columns of the same name: {_columns(schema)}")
    problems = [f"{name!r} is only in history" for name in first.names if name not in second.names]
    problems += [f"{name!r} is only in live" for name in second.names if name not in first.names]
    problems += [
        f"{field.name!r} is {first.field(field.name).type} in history and {field.type} in live"
        for field in second
        if field.name in first.names and first.field(field.name).type != field.type
    ]
    if problems:
        raise ConfigError(
            f"HybridSource: history ({history.name}) and live ({live.name}) must have the same columns: "
            f"{'; '.join(problems)}"
        )
    return pa.schema(
        [field.with_nullable(field.nullable or first.field(field.name).nullable) for field in second]
    )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
