"""Names that other systems have, of methods and of functions of the package: what to write here.

Somebody who comes from Spark, Flink or a DataFrame types their names, and Python's error says only that there
is no such name.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final, NoReturn

_WINDOW: Final = "key_by('shop').window(us.TumblingEventTimeWindows.of('1 min')).aggregate(n=us.count())"
_BY_KEY: Final = f"{_WINDOW}; without windows, key_by(…).process(…)"
_SINK: Final = "sink_to(us.DeltaSink('lake/orders'))"
_OVER_ROWS: Final = "a process function that keeps what it needs in its state: key_by('shop').process(…)"
_ROWS: Final = "execute_and_collect() for all rows, take(20) or show() for the first"

_CHOICE: Final = "us.when(us.col('n') > 3, 'many').otherwise('few')"
_TUMBLING: Final = "us.TumblingEventTimeWindows.of('1 min')"
_SLIDING: Final = "us.SlidingEventTimeWindows.of('1 h', '5 min')"
_FUNCTION: Final = "map_batches(function), or map(function) by row"

_ANY_FOLD: Final = (
    "countDistinct count_distinct approx_count_distinct nunique first last first_value last_value std stddev "
    "var variance median percentile_approx quantile collect_list collect_set row_number rank lag lead"
)
_ENVIRONMENTS: Final = (
    "StreamExecutionEnvironment StreamTableEnvironment TableEnvironment SparkSession StreamingContext "
    "Dataflow"
)

OF_THE_PACKAGE: Final = {
    **dict.fromkeys(("avg", "average", "Avg", "AVG"), "us.mean('amount')"),
    **dict.fromkeys(("Count", "size", "nrows"), "us.count()"),
    **dict.fromkeys(_ANY_FOLD.split(), _OVER_ROWS),
    **dict.fromkeys(("column", "Column", "field", "ref", "Col"), "us.col('amount')"),
    **dict.fromkeys(("literal", "Lit", "constant"), "us.lit(3)"),
    **dict.fromkeys(
        ("F", "functions"), "us.col, us.count, us.sum, …: all functions are in the package itself"
    ),
    **dict.fromkeys(("expr", "call_sql"), "it in Python: us.col('n') * 2"),
    **dict.fromkeys(("udf", "pandas_udf", "udaf"), _FUNCTION),
    **dict.fromkeys(("case", "iff", "ifelse", "if_else", "if_then_else"), _CHOICE),
    **dict.fromkeys(("concat_ws", "concat_str"), "us.concat(us.col('a'), '-', us.col('b'))"),
    "coalesce": "us.col('a').coalesce(us.col('b'))",
    **dict.fromkeys(("date_trunc", "trunc"), "us.col('at').floor_to('day')"),
    **dict.fromkeys(("to_timestamp", "to_date"), "us.col('at').cast(pa.timestamp('ms', 'UTC'))"),
    **dict.fromkeys(_ENVIRONMENTS.split(), "us.Environment()"),
    **dict.fromkeys(("DataFrame", "Stream", "Table"), "us.Environment().from_collection([{'n': 1}])"),
    **dict.fromkeys(
        ("read_parquet", "read_csv", "read_json"), "env.from_source(us.FileSource('lake/orders'), …)"
    ),
    "read_delta": "env.from_source(us.DeltaSource('lake/orders'), …)",
    "readStream": "env.from_source(us.KafkaSource(…), …)",
    **dict.fromkeys(("window", "Tumble", "TumbleWindow", "TumblingWindow", "TumblingWindows"), _TUMBLING),
    "TumblingProcessingTimeWindows": f"{_TUMBLING}: windows are of event time",
    **dict.fromkeys(("Slide", "SlidingWindow", "SlidingWindows", "HoppingWindow", "HopWindow"), _SLIDING),
    "SlidingProcessingTimeWindows": f"{_SLIDING}: windows are of event time",
    **dict.fromkeys(
        ("EventTimeSessionWindows", "SessionWindow", "SessionWindows", "session_window"),
        "a process function with timers, key_by('shop').process(…): there are no session windows",
    ),
    **dict.fromkeys(("Time", "Duration"), "durations as texts, such as '1 min'"),
    **dict.fromkeys(
        ("MapFunction", "FilterFunction", "FlatMapFunction", "RichMapFunction"), "a plain function"
    ),
    "CoProcessFunction": "us.BroadcastProcessFunction, or union of the two streams",
    "JoinFunction": "stream.join(dimension, on='shop')",
}
OF_A_STREAM: Final = {
    "where": "filter(us.col('n') > 3)",
    "withColumn": "with_columns(double=us.col('n') * 2)",
    "withColumns": "with_columns(double=us.col('n') * 2)",
    "with_column": "with_columns(double=us.col('n') * 2)",
    "withColumnRenamed": "select(new_name='old_name', …)",
    "rename": "select(new_name='old_name', …)",
    "drop": "select('a', 'b'), the columns that stay",
    "withWatermark": "a us.WatermarkStrategy in from_source, or assign_timestamps_and_watermarks",
    "groupBy": _BY_KEY,
    "group_by": _BY_KEY,
    "groupby": _BY_KEY,
    "keyBy": "key_by('shop')",
    "window": _WINDOW,
    "aggregate": _WINDOW,
    "agg": _WINDOW,
    "sum": _WINDOW,
    "count": _WINDOW,
    "reduce": _BY_KEY,
    "distinct": "key_by(…).process(…) with a value state",
    "dropDuplicates": "key_by(…).process(…) with a value state",
    "flatMap": "flat_map(function)",
    "mapInArrow": "map_batches(function)",
    "mapInPandas": "map_batches(function)",
    "apply": "map_batches(function)",
    "unionAll": "union(other)",
    "getSideOutput": "get_side_output('tag')",
    "writeStream": _SINK,
    "write": _SINK,
    "foreachBatch": f"{_SINK}, or a us.TwoPhaseCommitSink of one's own",
    "add_sink": _SINK,
    "addSink": _SINK,
    "sinkTo": _SINK,
    "collect": _ROWS,
    "execute": f"{_ROWS}; env.execute() runs the pipeline",
    "execute_and_fetch": _ROWS,
    "toPandas": "to_dataframe(), or execute_and_collect().to_pandas()",
    "to_pandas": "to_dataframe(), or execute_and_collect().to_pandas()",
    "head": "take(20)",
    "columns": "schema.names",
    "dtypes": "schema",
    "printSchema": "schema",
    "setParallelism": "set_parallelism(2)",
    "repartition": "set_parallelism(2), or rebalance()",
}
OF_A_KEYED_STREAM: Final = {
    **dict.fromkeys(("sum", "count", "min", "max", "aggregate", "agg", "reduce", "mean", "avg"), _BY_KEY),
    "key_by": "key_by once, with all of its columns: key_by('shop', 'day')",
    "map": "process(…) of a us.KeyedProcessFunction, or map before key_by",
    "filter": "filter before key_by",
    "select": "select before key_by",
}
OF_WINDOWS: Final = {
    **{
        name: f"aggregate(n=us.{function})"
        for name, function in (
            ("sum", "sum('amount')"),
            ("min", "min('amount')"),
            ("max", "max('amount')"),
            ("mean", "mean('amount')"),
            ("avg", "mean('amount')"),
            ("count", "count()"),
        )
    },
    "agg": "aggregate(n=us.count())",
    "reduce": "aggregate(n=us.sum('amount')), or key_by(…).process(…)",
    "apply": "aggregate(n=us.count()), or key_by(…).process(…)",
    "allowedLateness": "side_output_late_data('late'), and a larger out-of-orderness of the watermarks",
    "allowed_lateness": "side_output_late_data('late'), and a larger out-of-orderness of the watermarks",
}

_PARTS: Final = (
    "write select('a') for columns, filter(us.col('n') > 3) for rows, us.col('a') in an expression, take(3) "
    "for the first rows"
)
_EACH_ROW: Final = (
    "write execute_and_collect() for the rows of a stream that ends, map(function) to call a function with "
    "each row"
)
_OPERATORS: Final = {
    **dict.fromkeys(("__getitem__", "__delitem__"), _PARTS),
    "__setitem__": "write with_columns(double=us.col('n') * 2) for a column more",
    **dict.fromkeys(("__iter__", "__next__", "__reversed__", "__contains__"), _EACH_ROW),
    "__len__": f"{_EACH_ROW}; counts of an endless one are windows: {_WINDOW}",
}


def of_stream_operator(operator: str) -> str:
    """What to write in place of an operator of Python, such as ``"__getitem__"``, next to a stream."""
    return _OPERATORS.get(operator) or (
        "it is a stream, and no value: what follows it is a method, such as union(other) or filter(…), and "
        "what is computed of its columns, with_columns(double=us.col('n') * 2)"
    )


def no_such_method(what: str, owner: type, name: str, hints: Mapping[str, str]) -> NoReturn:
    """Raises AttributeError, which says what to write.

    >>> no_such_method("a stream", str, "where", OF_A_STREAM)
    Traceback (most recent call last):
    AttributeError: a stream has no 'where': write filter(us.col('n') > 3)
    """
    close = difflib.get_close_matches(name, [one for one in dir(owner) if not one.startswith("_")], n=1)
    hint = hints.get(name) or (f"{close[0]}, perhaps" if close and not name.startswith("_") else "")
    raise AttributeError(f"{what} has no {name!r}" + (f": write {hint}" if hint else ""))
