"""Keyed streams, and windows over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Never, NoReturn

import pyarrow as pa

from unistream.api.columns import side_schemas
from unistream.api.commit_group import CommitGroup
from unistream.api.event_times import check_event_times
from unistream.api.graph import GraphBuilder, Port
from unistream.api.other_names import OF_A_KEYED_STREAM, OF_WINDOWS, no_such_method, of_stream_operator
from unistream.api.sinks import DataStreamSink
from unistream.api.stream import KEY_COLUMN, DataStream, check_all_named, check_process
from unistream.base.config import duration_text
from unistream.base.errors import ConfigError
from unistream.model.columns.given_schema import Returns, as_schema
from unistream.model.graph import Ship
from unistream.model.no_value import NoValue
from unistream.model.state import MapStateDescriptor, StateOptions
from unistream.operator.common import KeyRows, describe
from unistream.operator.process import (
    BroadcastProcessFunction,
    BroadcastProcessOperator,
    KeyedBatchFunction,
    KeyedBatchOperator,
    KeyedProcessFunction,
    KeyedProcessOperator,
)
from unistream.operator.window import (
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    AggregatePlan,
    LocalWindowAggregate,
    WindowAggregate,
    Windows,
)
from unistream.port.dead_letters import LETTER_SCHEMA, OnError
from unistream.port.sink import Sink
from unistream.port.source import DEAD_LETTERS_TAG, check_tag


class KeyedStream(NoValue):
    """Rows partitioned by key; state, timers and windows belong to a key.

    Attributes:
        schema: Columns of the rows, or None if they are not known.
        key_columns: Columns of the key, in order.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        ports: Sequence[Port],
        schema: pa.Schema | None,
        key_columns: tuple[str, ...],
    ) -> None:
        self._builder = builder
        self._ports = tuple(ports)
        self.schema = schema
        self.key_columns = key_columns

    def __repr__(self) -> str:
        columns = "columns known when it runs" if self.schema is None else describe(self.schema)
        return f"KeyedStream({columns}, by {', '.join(self.key_columns)})"

    def uid(self, uid: str) -> KeyedStream:
        """Sets the uid of the operator that computes the key, if `key_by` has a function.

        Raises:
            ConfigError: it has columns: then there is no operator.
        """
        self._computes_key("uid").uid(uid)
        return self

    def name(self, name: str) -> KeyedStream:
        """Sets the name of the operator that computes the key, with the same condition as `uid`."""
        self._computes_key("name").name(name)
        return self

    def _computes_key(self, setting: str) -> DataStream:
        operators = [self._builder.graph.nodes[port.node].operator for port in self._ports]
        if self.key_columns != (KEY_COLUMN,) or not any(isinstance(one, KeyRows) for one in operators):
            raise ConfigError(
                f"key_by is no operator and has no {setting}: call .{setting}(...) before it, for the "
                "operator that makes its rows, or after the one that follows, such as .process(...)"
            )
        return DataStream(self._builder, self._ports, self.schema)

    def window(self, windows: Windows) -> WindowedStream:
        """Divides event time, for instance by `TumblingEventTimeWindows.of("1 h")`.

        Raises:
            ConfigError: the rows have no event times.
        """
        if not isinstance(windows, Windows):
            raise ConfigError('window takes windows such as TumblingEventTimeWindows.of("1 h")')
        check_event_times(self._builder.graph, [port.node for port in self._ports], "window")
        return WindowedStream(self, windows)

    def process(
        self,
        function: KeyedProcessFunction,
        *,
        returns: Returns = None,
        side_outputs: Mapping[str, Returns] | None = None,
        on_error: OnError = "fail",
    ) -> DataStream:
        """Runs a function with keyed state and timers, row by row.

        Args:
            function: One object for all keys of a subtask; what belongs to a key is stored in its state.
            returns: Columns of the rows it emits; None: inferred from the first ones.
            side_outputs: The same for its side outputs, by tag.
            on_error: What to do with a row for which `process_element` fails: "fail" the job, "skip"
                (counted), or "dead-letter" (`DataStream.dead_letters_to`). State, timers and output are then
                as if it had not been called; what the function keeps in attributes of its own is not. Needs
                `returns`, and no aggregating state. A timer that fails always fails the job: it has no row.
        """
        if isinstance(function, BroadcastProcessFunction):
            raise ConfigError(
                "a BroadcastProcessFunction needs a second stream: keyed.connect(rules).process(…)"
            )
        if not isinstance(function, KeyedProcessFunction):
            raise ConfigError("process takes an object of a subclass of KeyedProcessFunction")
        schema, sides = as_schema(returns), side_schemas(side_outputs)
        check_process(on_error, schema)
        operator = KeyedProcessOperator(
            function,
            self.key_columns,
            returns=schema,
            side_outputs=sides,
            key_schema=self.key_schema(),
            on_error=on_error,
        )
        stream = self._then(f"process {type(function).__name__}", operator, self._ports, schema)
        if on_error == "dead-letter":
            self._builder.schemas[stream._ports[0].node, DEAD_LETTERS_TAG] = LETTER_SCHEMA
        return stream._with_side_outputs(sides, side_outputs)

    def process_batch(
        self,
        function: KeyedBatchFunction,
        *,
        returns: Returns = None,
        side_outputs: Mapping[str, Returns] | None = None,
    ) -> DataStream:
        """Runs a function with keyed state and timers batch by batch, the rows grouped by key, without Python
        calls per row or timer.

        Args:
            function: One object for all keys of a subtask; what belongs to a key is stored in its columns.
            returns: Columns of the batches it emits; None: those of the first one.
            side_outputs: Columns of its side outputs, by tag; None: any, also from batch to batch others.
        """
        if not isinstance(function, KeyedBatchFunction):
            raise ConfigError("process_batch takes an object of a subclass of KeyedBatchFunction")
        schema, sides = as_schema(returns), side_schemas(side_outputs)
        operator = KeyedBatchOperator(
            function, self.key_columns, returns=schema, side_outputs=sides, key_schema=self.key_schema()
        )
        stream = self._then(f"process_batch {type(function).__name__}", operator, self._ports, schema)
        return stream._with_side_outputs(sides, side_outputs)

    def connect(self, broadcast: DataStream, *states: MapStateDescriptor) -> BroadcastConnectedStream:
        """Connects a stream whose rows are sent to every subtask, such as rules.

        Args:
            broadcast: Its rows are the input of `process_broadcast_element`.
            states: Maps that it writes and the rows of this stream read.

        >>> import pyarrow as pa, unistream as us
        >>> env = us.Environment()
        >>> columns = {"kind": us.datagen.RandomInt(0, 2), "n": us.datagen.Sequential()}
        >>> source = us.DatagenSource(columns, rows=9)
        >>> rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rows")
        >>> rules = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "rules")
        >>> limits = us.MapStateDescriptor("limits", pa.int64(), key_type=pa.int64())
        >>> class Limited(us.BroadcastProcessFunction):
        ...     def process_broadcast_element(self, row, context, out):
        ...         context.broadcast_state(limits).put(row["kind"], row["n"])
        ...     def process_element(self, row, context, out):
        ...         if context.broadcast_state(limits).contains(row["kind"]):
        ...             out.emit(row)
        >>> limited = rows.key_by("kind").connect(rules, limits).process(Limited(), returns=rows.schema)
        >>> limited.schema.names
        ['kind', 'n']

        Raises:
            ConfigError: streams of two environments, or no map is declared.
        """
        return BroadcastConnectedStream(self, broadcast, states)

    def sink_to(
        self, sink: Sink, *, on_error: OnError = "fail", group: CommitGroup | None = None
    ) -> DataStreamSink:
        """Ends the stream in a sink as `DataStream.sink_to`; all rows of a key go to one subtask of the sink,
        in their order: of a sink with ``mode="upsert"`` and the same key the last one stays."""
        ports = [replace(port, ship=Ship.HASH, key_columns=self.key_columns) for port in self._ports]
        stream = DataStream(self._builder, ports, self.schema)
        return stream.sink_to(sink, on_error=on_error, group=group)

    def dead_letters_to(self, sink: Sink) -> DataStreamSink:
        """Sends rows for which the function of `key_by` has failed to a sink, as
        `DataStream.dead_letters_to`.

        Raises:
            ConfigError: it has no ``on_error="dead-letter"``.
        """
        return DataStream(self._builder, self._ports, self.schema).dead_letters_to(sink)

    def key_schema(self) -> pa.Schema | None:
        """Names and types of the key columns, if they are known."""
        if self.schema is None:
            return None
        return pa.schema([(key, self.schema.field(key).type) for key in self.key_columns])

    def _then(
        self, name: str, operator: object, ports: Sequence[Port], schema: pa.Schema | None
    ) -> DataStream:
        node = self._builder.add(
            name, operator, [ports], stateful=True, ship=Ship.HASH, key_columns=self.key_columns
        )
        return DataStream(self._builder, (Port(node.id),), schema)

    def why_no_value(self, operator: str) -> str:
        """See `unistream.model.no_value`."""
        return of_stream_operator(operator)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            no_such_method("a stream with a key", type(self), name, OF_A_KEYED_STREAM)


class BroadcastConnectedStream:
    """A keyed stream and a broadcast one, which one function reads."""

    def __init__(
        self, keyed: KeyedStream, broadcast: DataStream, states: Sequence[MapStateDescriptor]
    ) -> None:
        if not isinstance(broadcast, DataStream):
            raise ConfigError(f"connect takes a stream without a key, not {broadcast!r:.200}")
        keyed._builder.check_same(broadcast._builder)
        if not states or not all(isinstance(state, MapStateDescriptor) for state in states):
            raise ConfigError("connect needs the maps that are broadcast, each as a MapStateDescriptor")
        if any(state.options != StateOptions() for state in states):
            raise ConfigError("broadcast state takes no options: no ttl, no pickled, no renamed_from")
        self._keyed = keyed
        self._broadcast = broadcast
        self._states = tuple(states)

    def process(
        self,
        function: BroadcastProcessFunction,
        *,
        returns: Returns = None,
        side_outputs: Mapping[str, Returns] | None = None,
        on_error: OnError = "fail",
    ) -> DataStream:
        """Runs a function over both: its state and timers are keyed, its maps are equal in all subtasks.

        Args:
            function: One object for all keys of a subtask.
            returns: Columns of the rows it emits; None: inferred from the first ones.
            side_outputs: The same for its side outputs, by tag.
            on_error: As for `KeyedStream.process`, of rows of the keyed stream. A row of the broadcast one
                that fails always fails the job: all subtasks have it, and have to agree.
        """
        if not isinstance(function, BroadcastProcessFunction):
            raise ConfigError("process takes an object of a subclass of BroadcastProcessFunction")
        keyed = self._keyed
        schema, sides = as_schema(returns), side_schemas(side_outputs)
        check_process(on_error, schema)
        operator = BroadcastProcessOperator(
            function,
            keyed.key_columns,
            self._states,
            returns=schema,
            side_outputs=sides,
            key_schema=keyed.key_schema(),
            on_error=on_error,
        )
        node = keyed._builder.add(
            f"process {type(function).__name__}",
            operator,
            [
                [replace(port, ship=Ship.HASH) for port in keyed._ports],
                [replace(port, ship=Ship.BROADCAST) for port in self._broadcast._ports],
            ],
            stateful=True,
            key_columns=keyed.key_columns,
        )
        if on_error == "dead-letter":
            keyed._builder.schemas[node.id, DEAD_LETTERS_TAG] = LETTER_SCHEMA
        return DataStream(keyed._builder, (Port(node.id),), schema)._with_side_outputs(sides, side_outputs)


class WindowedStream(NoValue):
    """A keyed stream in windows of event time."""

    def __init__(self, keyed: KeyedStream, windows: Windows, late_tag: str | None = None) -> None:
        self._keyed = keyed
        self._windows = windows
        self._late_tag = late_tag

    def side_output_late_data(self, tag: str) -> WindowedStream:
        """Sends rows whose windows have fired to the side output `tag` of the result, unchanged; otherwise
        they are dropped and counted (`numLateRecordsDropped`). Turns the pre-aggregation off."""
        return WindowedStream(self._keyed, self._windows, check_tag(tag, "side_output_late_data"))

    def aggregate(self, *unnamed: Never, **aggregates: Aggregate) -> DataStream:
        """One row per key and window: the key's columns, `window_start` and `window_end` (timestamp[ms,
        UTC], the end is exclusive), and one column for each aggregate. Its event time is the end - 1 ms.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> columns = {"user": us.datagen.RandomInt(0, 9), "seen_at": us.datagen.Sequential()}
        >>> source = us.DatagenSource(columns, rows=9)
        >>> times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("seen_at")
        >>> clicks = env.from_source(source, times, "clicks")
        >>> hours = clicks.key_by("user").window(us.TumblingEventTimeWindows.of("1 h"))
        >>> hours.aggregate(clicks=us.count(), last=us.max("seen_at")).schema.names
        ['user', 'window_start', 'window_end', 'clicks', 'last']

        Raises:
            ConfigError: an unknown column, or one of a type that the aggregate does not take.
        """
        check_all_named("aggregate", unnamed, "aggregate(n=us.count())")
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise ConfigError(f"aggregate {name}: use us.count(), us.sum(column) or the like")
            if name in (WINDOW_START, WINDOW_END):
                raise ConfigError(f"aggregate {name}: the window has a column of that name; rename it")
        for name in (WINDOW_START, WINDOW_END):
            if name in self._keyed.key_columns:
                raise ConfigError(
                    f"the key column {name!r} has the name of a column that windows add; rename it before "
                    f"key_by: select(…, other_name={name!r})"
                )
        plan = AggregatePlan(self._keyed.key_columns, aggregates)
        known = self._keyed.schema
        schema = None if known is None else self._result(plan.check(known))
        raw = self._late_tag is not None
        ports = self._keyed._ports if raw else self._pre_aggregated(plan)
        operator = WindowAggregate(
            plan,
            self._windows,
            pre_aggregated=not raw,
            late_tag=self._late_tag,
            partials=None if known is None else plan.partial_schema(known),
        )
        name, uid_name = self._names()
        stream = self._keyed._then(name, operator, ports, schema)
        self._keyed._builder.graph.nodes[stream._ports[0].node].uid_name = uid_name
        if self._late_tag is not None:
            self._keyed._builder.schemas[stream._ports[0].node, self._late_tag] = self._keyed.schema
        return stream

    def _pre_aggregated(self, plan: AggregatePlan) -> list[Port]:
        """One operator for each input stream, chained to its producer."""
        builder = self._keyed._builder
        ports = []
        for port in self._keyed._ports:
            node = builder.add(
                "pre-aggregate", LocalWindowAggregate(plan, self._windows), [[Port(port.node, port.tag)]]
            )
            builder.follows[node.id] = port.node
            builder.schemas[node.id, None] = self._keyed.schema  # as lineage sees it
            ports.append(Port(node.id, partition=port.partition))
        return ports

    def _names(self) -> tuple[str, str]:
        """The second one is what operators without a uid are found by in older snapshots."""
        kind, size_ms = "sliding" if self._windows.overlap else "tumbling", self._windows.size_ms
        return f"{kind} window of {duration_text(size_ms)}", f"{kind} window of {size_ms} ms"

    def _result(self, aggregated: pa.Schema) -> pa.Schema:
        fields = [(field.name, field.type) for field in aggregated]
        time = pa.timestamp("ms", tz="UTC")
        keys = len(self._keyed.key_columns)
        return pa.schema([*fields[:keys], (WINDOW_START, time), (WINDOW_END, time), *fields[keys:]])

    def why_no_value(self, operator: str) -> str:
        """See `unistream.model.no_value`."""
        return of_stream_operator(operator)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            no_such_method("a stream in windows", type(self), name, OF_WINDOWS)
