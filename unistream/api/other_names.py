"""Methods that other systems have, by the name that they have there: what to write here.

Somebody who comes from Spark, Flink or a DataFrame types their names, and Python's error says only that there
is no such method.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final, NoReturn

_WINDOW: Final = "key_by('shop').window(us.TumblingEventTimeWindows.of('1 min')).aggregate(n=us.count())"
_BY_KEY: Final = f"{_WINDOW}; without windows, key_by(…).process(…)"
_SINK: Final = "sink_to(us.DeltaSink('lake/orders'))"
_ROWS: Final = "execute_and_collect() for all rows, take(20) or show() for the first"

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


def no_such_method(what: str, owner: type, name: str, hints: Mapping[str, str]) -> NoReturn:
    """Raises AttributeError, which says what to write.

    >>> no_such_method("a stream", str, "where", OF_A_STREAM)
    Traceback (most recent call last):
    AttributeError: a stream has no 'where': write filter(us.col('n') > 3)
    """
    close = difflib.get_close_matches(name, [one for one in dir(owner) if not one.startswith("_")], n=1)
    hint = hints.get(name) or (f"{close[0]}, perhaps" if close and not name.startswith("_") else "")
    raise AttributeError(f"{what} has no {name!r}" + (f": write {hint}" if hint else ""))
