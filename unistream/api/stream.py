"""A stream of rows, and what can be done with it. Names are those of Flink's DataStream API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Never, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from unistream.api.columns import side_schemas
from unistream.api.commit_group import CommitGroup, check_member
from unistream.api.described import is_described
from unistream.api.functions import When
from unistream.api.graph import GraphBuilder, Port, check_columns, check_names, check_timestamp_column
from unistream.api.joins import join_schema
from unistream.api.other_names import OF_A_STREAM, no_such_method, of_stream_operator
from unistream.api.projection import shown_expression
from unistream.api.results import ResultMethods
from unistream.api.sinks import DataStreamSink, check_sends_dead_letters, check_sink, sink_used
from unistream.base.errors import ConfigError
from unistream.connector.catalogue import sinks_that
from unistream.model.columns.column_names import refused_keys
from unistream.model.columns.given_schema import Returns, as_schema
from unistream.model.expression import Expression, as_arrow, readable
from unistream.model.graph import Ship
from unistream.model.key_groups import key_groups
from unistream.model.no_value import NoValue
from unistream.model.stream_graph import StreamNode
from unistream.model.watermarks import WatermarkStrategy
from unistream.operator import common
from unistream.operator.common import FilterFunction, FlatMapFunction, MapFunction, Row
from unistream.operator.join import BroadcastLookupJoin, JoinKind
from unistream.operator.process import ProcessFunction, ProcessOperator
from unistream.operator.sink import CheckedRows
from unistream.operator.stateless import (
    BatchFunction,
    FilterBatches,
    MapBatches,
    MaskFunction,
    Project,
    SideSplit,
)
from unistream.port.dead_letters import LETTER_SCHEMA, OnError
from unistream.port.sink import ChecksRows, Sink
from unistream.port.source import DEAD_LETTERS_TAG, check_tag

if TYPE_CHECKING:
    from unistream.api.keyed import KeyedStream

KEY_COLUMN = "key"


class DataStream(ResultMethods, NoValue):
    """Rows of one schema, with event times.

    Transformations return a new stream; settings (`uid`, `name`, `set_parallelism`, …) apply to the operator
    that produces this stream, and return it.

    Attributes:
        schema: Columns of the rows, or None after a function that does not declare what it returns.
    """

    def __init__(self, builder: GraphBuilder, ports: Sequence[Port], schema: pa.Schema | None) -> None:
        self._builder = builder
        self._ports = tuple(ports)
        self.schema = schema
        if schema is not None:
            check_names(schema.names, repr(builder.graph.nodes[ports[0].node].name) if ports else "a stream")
            for port in ports:
                builder.schemas.setdefault((port.node, port.tag), schema)

    # --- rows in batches -------------------------------------------------------------------------

    def map_batches(
        self,
        function: BatchFunction,
        *,
        returns: Returns = None,
        timestamp_column: str | None = None,
        on_error: OnError = "fail",
        row_wise: bool = False,
    ) -> DataStream:
        """Calls `function` with each `pyarrow.RecordBatch`; the fastest way to run Python.

        Row i of the result has the event time of row i, so the number of rows must not change, unless there
        is a `timestamp_column`.

        Args:
            function: n rows in, m rows out.
            timestamp_column: Column of the result with the event times; then m may differ from n.
            returns: Schema of the result; None: that of the first result.
            on_error: What to do with the rows of a batch for which `function` fails: "fail" the job, "skip"
                (counted), or "dead-letter" (`dead_letters_to`).
            row_wise: The result for a row does not depend on the rows around it. Then `function` is called
                again with parts of a batch that failed, until the rows that fail are apart; otherwise all
                rows of the batch have failed.
        """
        schema = as_schema(returns)
        if timestamp_column is not None:
            check_columns(schema, [timestamp_column], "map_batches")
        common.check_on_error(on_error, "map_batches")
        operator = MapBatches(
            function,
            returns=schema,
            timestamp_column=timestamp_column,
            on_error=on_error,
            row_wise=row_wise,
        )
        return self._then(_named("map_batches", function), operator, schema, on_error=on_error)

    def filter_batches(
        self, function: MaskFunction, *, on_error: OnError = "fail", row_wise: bool = False
    ) -> DataStream:
        """Keeps rows where the boolean array that `function` returns for a batch is true. `on_error`,
        `row_wise`: see `map_batches`."""
        common.check_on_error(on_error, "filter_batches")
        operator = FilterBatches(function, on_error=on_error, row_wise=row_wise)
        return self._then(_named("filter_batches", function), operator, self.schema, on_error=on_error)

    def select(self, *columns: str, on_error: OnError = "fail", **computed: str | Expression) -> DataStream:
        """Keeps only these columns, in this order; a keyword renames a column or computes one.

        `on_error`: of rows for which an expression fails, such as a cast of a text that is no number: "fail"
        the job, "skip" (counted), or "dead-letter" (`dead_letters_to`). So no column of the result can be
        called ``on_error``.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=3)
        >>> numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers")
        >>> numbers.select("n", double=us.col("n") * 2).schema.names
        ['n', 'double']

        Raises:
            ConfigError: an unknown column, or an expression that does not fit its types.
        """
        _check_names_given("select", columns)
        twice = [name for name in columns if columns.count(name) > 1 or name in computed]
        if twice:
            raise ConfigError(
                f"select: column {twice[0]!r} is named twice; rename one: other_name={twice[0]!r}"
            )
        every = {**{name: name for name in columns}, **computed}
        return self._project("select", every, keep=False, on_error=on_error)

    def with_columns(
        self, *unnamed: Never, on_error: OnError = "fail", **computed: str | Expression
    ) -> DataStream:
        """Adds these columns, or replaces those of the same name. `on_error`: see `select`."""
        check_all_named("with_columns", unnamed, "with_columns(double=us.col('n') * 2)")
        return self._project("with_columns", computed, keep=True, on_error=on_error)

    def _project(
        self, what: str, columns: dict[str, str | Expression], *, keep: bool, on_error: OnError
    ) -> DataStream:
        common.check_on_error(on_error, what)
        if not columns:
            raise ConfigError(f"{what} needs at least one column")
        for name, column in columns.items():
            if isinstance(column, When):
                raise ConfigError(f"{what}: {name}: end us.when(…) by .otherwise(…); None is null")
            if isinstance(column, NoValue) and not isinstance(column, Expression):
                raise ConfigError(f"{what}: {name} is {column!s:.200}: {column.why_no_value('')}")
            if not isinstance(column, str | Expression | pc.Expression):
                raise ConfigError(f"{what}: {name} is {column!r:.200}; use us.col(...) or us.lit(...)")
            if not isinstance(column, str):
                common.check_comparisons(column, what)
        schema = None
        if self.schema is not None:
            check_columns(self.schema, [c for c in columns.values() if isinstance(c, str)], what)
            computed = {n: c for n, c in columns.items() if not isinstance(c, str)}
            computed_schema = common.check_expressions(self.schema, computed, what)
            types_before = {field.name: field.type for field in self.schema}
            types = {
                n: types_before[c] if isinstance(c, str) else computed_schema.field(n).type
                for n, c in columns.items()
            }
            schema = pa.schema(list((types_before | types if keep else types).items()))
        plain = {name: as_arrow(column) for name, column in columns.items()}
        operator = Project(plain, keep=keep, on_error=on_error)
        computations = [f"{n} = {readable(c)}" for n, c in columns.items() if not isinstance(c, str)]
        shown = shown_expression(f"computes {', '.join(computations)}") if computations else ""
        return self._then(what, operator, schema, on_error=on_error, expression=shown)

    # --- rows one by one -------------------------------------------------------------------------

    def map(
        self, function: MapFunction, *, returns: Returns = None, on_error: OnError = "fail"
    ) -> DataStream:
        """One dict in, one dict out. A Python call per row: prefer `with_columns` or `map_batches`.

        Args:
            function: Row (column -> value) in, row out.
            returns: Columns of the result; None: inferred from the first rows.
            on_error: What to do with a row for which `function` raises, or returns what does not fit: "fail"
                the job, "skip" (counted), or "dead-letter" (`dead_letters_to`). The function is called once
                for each row.

        >>> import pyarrow as pa, unistream as us
        >>> env = us.Environment()
        >>> texts = env.from_collection([{"fare": "7"}, {"fare": "free"}])
        >>> fares = texts.map(
        ...     lambda row: {"fare": int(row["fare"])}, returns={"fare": pa.int64()}, on_error="dead-letter"
        ... )
        >>> fares.get_side_output("dead-letters").schema.names[:3]
        ['letter', 'row', 'row_ipc']
        """
        schema = as_schema(returns)
        common.check_on_error(on_error, "map")
        operator = common.MapRows(function, returns=schema, on_error=on_error)
        return self._then(_named("map", function), operator, schema, on_error=on_error)

    def flat_map(
        self, function: FlatMapFunction, *, returns: Returns = None, on_error: OnError = "fail"
    ) -> DataStream:
        """One dict in, any number of dicts out, with the same event time. `on_error`: see `map`; of a row
        that fails nothing is emitted, also what was yielded before."""
        schema = as_schema(returns)
        common.check_on_error(on_error, "flat_map")
        operator = common.FlatMapRows(function, returns=schema, on_error=on_error)
        return self._then(_named("flat_map", function), operator, schema, on_error=on_error)

    def filter(self, predicate: Expression | FilterFunction, *, on_error: OnError = "fail") -> DataStream:
        """Keeps rows for which an expression or a function of the row is true (null counts as false).
        `on_error`: of rows for which it fails, see `map`.

        Raises:
            ConfigError: an unknown column, or an expression that is not boolean.
        """
        common.check_on_error(on_error, "filter")
        if isinstance(predicate, Expression | pc.Expression):
            self._check_predicate(predicate, "filter")
            operator = FilterBatches(as_arrow(predicate), on_error=on_error)
            shown = shown_expression(f"keeps {readable(predicate)}")
            return self._then("filter", operator, self.schema, on_error=on_error, expression=shown)
        if isinstance(predicate, str):
            raise ConfigError(
                f"filter takes an expression such as us.col('n') > 3, or a function of the row, not the text "
                f"{predicate!r:.200}"
            )
        rows = common.FilterRows(predicate, on_error=on_error)
        return self._then(_named("filter", predicate), rows, self.schema, on_error=on_error)

    def side_output(
        self,
        tag: str,
        predicate: Expression | MaskFunction,
        *,
        on_error: OnError = "fail",
        row_wise: bool = False,
    ) -> DataStream:
        """Moves rows for which `predicate` (an expression, or a function from batch to boolean array) is true
        to the side output `tag`; this stream keeps the others. `on_error`, `row_wise` (of a function): of
        rows for which it fails, see `map_batches`.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=3)
        >>> numbers = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers")
        >>> small = numbers.side_output("large", us.col("n") > 1)
        >>> small.get_side_output("large").schema.names
        ['n']
        """
        check_tag(tag, "side_output")
        shown = ""
        if isinstance(predicate, Expression | pc.Expression):
            self._check_predicate(predicate, "side_output")
            shown = shown_expression(f"moves {readable(predicate)}")
        common.check_on_error(on_error, "side_output")
        operator = SideSplit(tag, as_arrow(predicate), on_error=on_error, row_wise=row_wise)
        stream = self._then(f"split {tag}", operator, self.schema, on_error=on_error, expression=shown)
        self._builder.schemas[stream._ports[0].node, tag] = self.schema
        return stream

    def get_side_output(self, tag: str) -> DataStream:
        """Rows that the operator of this stream has sent to its side output `tag`.

        Raises:
            ConfigError: it has no such side output. A process function that declares none (`side_outputs=`)
                may have any.
        """
        if tag != DEAD_LETTERS_TAG:
            check_tag(tag, "get_side_output")
        node = self._node("get_side_output")
        self._builder.check_side_output(node, tag)
        schema = self._builder.schemas.get((node.id, tag))
        return DataStream(self._builder, (Port(node.id, tag),), schema)

    def _with_side_outputs(
        self, schemas: Mapping[str, pa.Schema], declared: Mapping[str, Returns] | None
    ) -> DataStream:
        """`declared`: as the user has; its columns may not be known."""
        (port,) = self._ports
        self._builder.schemas.update({(port.node, tag): schemas.get(tag) for tag in declared or ()})
        return self

    def dead_letters_to(self, sink: Sink) -> DataStreamSink:
        """Writes rows that this operator cannot process, or records that this source cannot decode, to
        `sink`, with the reason, exactly once like the rows. If the operator has a uid, the sink's is that one
        with ``-dead-letters`` appended.

        Raises:
            ConfigError: the operator, or the source, is not configured to send dead letters.
        """
        node = self._node("dead_letters_to")
        check_sends_dead_letters(self._builder, node)
        written = self.get_side_output(DEAD_LETTERS_TAG).sink_to(sink).name(f"{node.name} dead letters")
        return written if node.uid is None else written.uid(f"{node.uid}-{DEAD_LETTERS_TAG}")

    # --- time ------------------------------------------------------------------------------------

    def assign_timestamps_and_watermarks(
        self, strategy: WatermarkStrategy, *, on_error: OnError = "fail"
    ) -> DataStream:
        """Assigns event times and watermarks; those that the stream already has are replaced. `on_error`: of
        rows without an event time, or with one that is out of range, see `map`.

        Behind a bounded source that reads its splits in turn (files, unless they are `in_order`) there is no
        watermark before the end, because here it is not known which rows are still to come. Pass the strategy
        to `Environment.from_source` where the column is there already.
        """
        common.check_on_error(on_error, "assign_timestamps_and_watermarks")
        operator = common.AssignTimestampsAndWatermarks(
            strategy, only_at_end=self._builder.reads_splits_in_turn(self._ports), on_error=on_error
        )
        column = strategy.timestamp_column or ""
        check_timestamp_column(self.schema, column, "assign_timestamps_and_watermarks")
        return self._then("timestamps and watermarks", operator, self.schema, on_error=on_error)

    # --- several streams -------------------------------------------------------------------------

    def union(self, *others: DataStream) -> DataStream:
        """Rows of this and the other streams, in any order.

        Raises:
            ConfigError: their columns differ.
        """
        for other in others:
            self._check_stream("union", other, "union(one, other)")
            mine, theirs = self.schema, other.schema
            if mine is None or theirs is None:
                continue
            if (mine.names, mine.types) != (theirs.names, theirs.types):
                raise ConfigError(
                    "union needs streams with the same columns in the same order, not "
                    f"({common.describe(mine)}) and ({common.describe(theirs)})"
                )
        ports = [port for stream in (self, *others) for port in stream._ports]
        return DataStream(self._builder, ports, self.schema)

    def join(
        self,
        dimension: DataStream,
        on: str | Sequence[str] | Mapping[str, str],
        *,
        how: Literal["inner", "left"] = "inner",
        latest_by: str | None = None,
    ) -> DataStream:
        """Adds the columns of a bounded stream to each row with an equal key; as in SQL a row leaves once for
        each row of `dimension` with its key.

        A row waits until `dimension` has ended, so the result does not depend on which is read faster. Every
        subtask holds all of `dimension`.

        Args:
            dimension: A bounded stream without watermarks, or one that
                `execution.batch.offload-bounded-regions` runs before this stream.
            on: Key column(s) that both have, or columns of this stream -> columns of `dimension`.
            how: ``"inner"`` drops rows without a match, ``"left"`` keeps them with nulls.
            latest_by: A column of `dimension` with the version of a row, such as the time of its last change:
                of each key only the rows with the largest value count (several, if they are equal). Null is
                the least.

        >>> import unistream as us
        >>> env = us.Environment()
        >>> rows = env.from_collection([{"carrier": "AA", "delay": 5}], name="rows")
        >>> names = [{"carrier": "AA", "name": "American", "since": 1934}]
        >>> named = rows.join(env.from_collection(names, name="names"), on="carrier", latest_by="since")
        >>> named.schema.names
        ['carrier', 'delay', 'name', 'since']

        Raises:
            ConfigError: key columns that are unknown or of different types, columns of the same name on both
                sides, or a dimension that never ends or has watermarks.
        """
        self._check_stream("join", dimension, "join(dimension, on='shop')")
        if how not in {kind.value for kind in JoinKind}:
            raise ConfigError(f"join: how={how!r} is not 'inner' or 'left'")
        pairs = _pairs(on)
        self._builder.check_complete_before_time(dimension._ports, "join")
        held = tuple(replace(port, ship=Ship.BROADCAST) for port in dimension._ports)
        if dimension.schema is None and is_described():
            unknown = self._builder.add(f"{how} join", None, [self._ports, held], stateful=True)
            return DataStream(self._builder, (Port(unknown.id),), None)
        schema, dimension_schema = join_schema(self.schema, dimension.schema, pairs, latest_by)
        operator = BroadcastLookupJoin(
            pairs, dimension_schema, JoinKind(how), facts=self.schema, latest_by=latest_by
        )
        node = self._builder.add(f"{how} join", operator, [self._ports, held], stateful=True)
        return DataStream(self._builder, (Port(node.id),), schema)

    def process(
        self,
        function: ProcessFunction,
        *,
        returns: Returns = None,
        side_outputs: Mapping[str, Returns] | None = None,
        on_error: OnError = "fail",
    ) -> DataStream:
        """Runs a function row by row that may keep lists in checkpoints; for keyed state see `key_by`.

        Args:
            function: Each subtask has a copy.
            returns: Columns of the rows it emits; None: inferred from the first ones.
            side_outputs: The same for its side outputs, by tag.
            on_error: See `map`. A call that fails emits nothing and changes no list; what the function keeps
                in attributes of its own stays as the call has left it. `returns` is needed then.
        """
        if not isinstance(function, ProcessFunction):
            raise ConfigError(
                "process of a stream without keys takes an object of a subclass of ProcessFunction"
            )
        schema = as_schema(returns)
        sides = side_schemas(side_outputs)
        check_process(on_error, schema)
        operator = ProcessOperator(function, returns=schema, side_outputs=sides, on_error=on_error)
        name = f"process {type(function).__name__}"
        stream = self._then(name, operator, schema, stateful=True, on_error=on_error)
        return stream._with_side_outputs(sides, side_outputs)

    def key_by(
        self,
        *columns: str | Callable[[Row], Any],
        returns: pa.DataType | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream:
        """Sends rows with equal values in `columns` to the same subtask.

        A function of the row may be given instead of columns; it adds a column `key` of type `returns`.
        `on_error`: of rows for which it fails, see `map`; letters go to `KeyedStream.dead_letters_to`.

        Equal are: -0.0 and 0.0 (after `key_by` there is only 0.0); NaN and NaN, whatever their bits; null and
        null, which is a key like any other; texts with the same code points; values with and without a
        dictionary. Nothing is rounded, stripped or converted: times of different units or zones, or 1 and
        1.0, are never equal; cast them first. Decimals, bytes, lists and structs cannot be a key.

        Raises:
            ConfigError: an unknown column, or one of a type that cannot be a key.
        """
        from unistream.api.keyed import KeyedStream

        if len(columns) == 1 and callable(columns[0]):
            if returns is None:
                raise ConfigError("key_by with a function needs the type of the key: returns=pa.string()")
            if self.schema is not None and KEY_COLUMN in self.schema.names:
                raise ConfigError(
                    f"key_by: a function adds its key as a column {KEY_COLUMN!r}, which the rows have; "
                    "rename theirs before, or key_by the column"
                )
            schema = None if self.schema is None else self.schema.append(pa.field(KEY_COLUMN, returns))
            common.check_on_error(on_error, "key_by")
            operator = common.KeyRows(columns[0], KEY_COLUMN, returns, on_error=on_error)
            keyed = self._then(_named("key", columns[0]), operator, schema, on_error=on_error)
            return KeyedStream(self._builder, keyed._ports, schema, (KEY_COLUMN,))
        _check_names_given("key_by", columns)
        names = tuple(column for column in columns if isinstance(column, str))
        if not names:
            raise ConfigError("key_by takes the names of one or more columns, or one function")
        if on_error != "fail":
            raise ConfigError("key_by: on_error is for a function of the row; columns of a key cannot fail")
        why = refused_keys(names)
        if why is not None:
            raise ConfigError(f"key_by: the key has {why}")
        check_columns(self.schema, names, "key_by")
        if self.schema is not None:
            key_groups(common.empty_rows(self.schema), names, 1)
        return KeyedStream(self._builder, self._ports, self.schema, names)

    # --- ends ------------------------------------------------------------------------------------

    def sink_to(
        self, sink: Sink, *, on_error: OnError = "fail", group: CommitGroup | None = None
    ) -> DataStreamSink:
        """Writes the rows.

        Args:
            sink: Where to.
            on_error: What to do with a row that the target would refuse, as far as the sink knows that before
                it is written (`unistream.port.sink.ChecksRows`): "fail" the job, as the target says; "skip"
                (counted); or "dead-letter" (`DataStreamSink.dead_letters_to`).
            group: Its rows become visible together with those of the other sinks of the group.

        Raises:
            ConfigError: the sink cannot take these columns, or it has several committers and needs one, or
                it cannot say which rows its target would refuse, or it cannot be in a group.
        """
        given, sink = sink, sink_used(sink)
        if group is not None:
            check_member(group, given)
            group = group if sink is given else None  # what replaces a sink commits by itself
        check_sink(sink, self.schema)
        common.check_on_error(on_error, "sink_to")
        if on_error == "fail":
            return DataStreamSink(self._builder, self._ports, sink, group=group)
        if not isinstance(sink, ChecksRows):
            raise ConfigError(
                f"sink_to: sink {sink.name!r} cannot say which rows its target would refuse, so it has no "
                f"on_error={on_error!r}; {sinks_that(lambda one: one.checks_rows)} can"
            )
        operator = CheckedRows(sink, on_error=on_error)
        checked = self._then(f"{sink.name} rows", operator, self.schema, on_error=on_error)
        return DataStreamSink(self._builder, checked._ports, sink, checked=(checked, operator), group=group)

    def print(self, prefix: str = "") -> DataStreamSink:
        """Prints rows as ``column=value, …``, after `prefix` and, if the sink has several subtasks, ``N> ``.

        On the target "local" the process that started the job prints them; on Spark they are in the worker's
        log.
        """
        from unistream.connector.print_ import PrintSink

        return self.sink_to(PrintSink(prefix))

    # --- helpers ---------------------------------------------------------------------------------

    def why_no_value(self, operator: str) -> str:
        """See `unistream.model.no_value`."""
        return of_stream_operator(operator)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            schema = self.__dict__.get("schema")
            columns = (
                {} if schema is None else dict.fromkeys(schema.names, f"us.col({name!r}) for the column")
            )
            no_such_method("a stream", type(self), name, {**columns, **OF_A_STREAM})

    def _then(
        self,
        name: str,
        operator: object,
        schema: pa.Schema | None,
        *,
        stateful: bool = False,
        on_error: OnError = "fail",
        expression: str = "",
    ) -> DataStream:
        node = self._builder.add(name, operator, [self._ports], stateful=stateful)
        node.expression = expression
        if on_error == "dead-letter":
            self._builder.schemas[node.id, DEAD_LETTERS_TAG] = LETTER_SCHEMA
        return DataStream(self._builder, (Port(node.id),), schema)

    def _through(self, ports: Sequence[Port]) -> DataStream:
        return DataStream(self._builder, ports, self.schema)

    def _check_stream(self, what: str, other: object, write: str) -> None:
        if not isinstance(other, DataStream):
            raise ConfigError(f"{what} takes streams without a key, not {other!r:.200}: write {write}")
        self._builder.check_same(other._builder)

    def _node(self, what: str) -> StreamNode:
        if len(self._ports) != 1 or not self._ports[0].is_plain:
            raise ConfigError(f"{what}: this stream is a union or an exchange, not an operator")
        return self._builder.graph.nodes[self._ports[0].node]

    def _check_predicate(self, predicate: Expression | pc.Expression, what: str) -> None:
        common.check_comparisons(predicate, what)
        if self.schema is None:
            return
        data_type = common.check_expressions(self.schema, {"predicate": predicate}, what).field(0).type
        if not pa.types.is_boolean(data_type):
            raise ConfigError(f"{what}: {readable(predicate)} is {data_type}, not a boolean")


def check_process(on_error: OnError, returns: pa.Schema | None) -> None:
    """Raises ConfigError unless a process function can have it."""
    common.check_on_error(on_error, "process")
    if on_error != "fail" and returns is None:
        raise ConfigError(
            f"process: on_error={on_error!r} needs returns=, the columns that the function emits, so that a "
            "row that does not match them fails in its own call"
        )


def check_all_named(what: str, unnamed: Sequence[object], write: str) -> None:
    """Raises ConfigError if a column of the result has no name."""
    if unnamed:
        raise ConfigError(f"{what}: {unnamed[0]!s:.200} needs a name, as a keyword: write {write}")


def _check_names_given(what: str, columns: Sequence[object]) -> None:
    for column in columns:
        if isinstance(column, str):
            continue
        if isinstance(column, Expression | pc.Expression):
            named = "select(name=…)" if what == "select" else "with_columns(name=…), then key_by('name')"
            why = f"{column!s:.200} is an expression: give the name of a column, or name it in {named}"
        elif isinstance(column, list | tuple):
            why = f"it takes names one by one: {what}({', '.join(map(repr, column)):.200})"
        else:
            why = f"it takes names of columns, not {column!r:.200}"
        raise ConfigError(f"{what}: {why}")


def _pairs(on: str | Sequence[str] | Mapping[str, str]) -> list[tuple[str, str]]:
    if isinstance(on, str):
        return [(on, on)]
    return list(on.items()) if isinstance(on, Mapping) else [(name, name) for name in on]


def _named(what: str, function: object) -> str:
    return f"{what} {getattr(function, '__name__', type(function).__name__)}"
