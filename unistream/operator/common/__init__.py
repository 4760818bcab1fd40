"""What all operators share: their base, expressions, functions per row, event time, Acero calls.

May import: `port`, `model`, `base`. Start with `base`.
"""

from __future__ import annotations

from unistream.operator.common.acero import group
from unistream.operator.common.base import BaseOperator, ForwardsColumns, function_name
from unistream.operator.common.event_time import AssignTimestampsAndWatermarks, timestamps_of
from unistream.operator.common.expressions import (
    Projection,
    check_comparisons,
    check_expressions,
    conform,
    conformed,
    describe,
    empty_rows,
    expression_columns,
    without_dictionaries,
)
from unistream.operator.common.functions import (
    check_callable,
    check_defined,
    check_methods,
    check_returned_nothing,
)
from unistream.operator.common.given_batches import addresses, owned, owned_array
from unistream.operator.common.keyed_columns import (
    GroupsOf,
    KeyedAppendingColumn,
    KeyedColumn,
    KeyedListColumn,
    KeyedMapColumn,
    places_of,
)
from unistream.operator.common.row_errors import RowErrors, check_on_error, decoded_row, encoded_row
from unistream.operator.common.row_operator import ForwardsRows, RowOperator, computes_anything
from unistream.operator.common.row_positions import positions
from unistream.operator.common.row_schema import CurrentRow, Row, RowSchema, TakenRows, table_of
from unistream.operator.common.rows import (
    FilterFunction,
    FilterRows,
    FlatMapFunction,
    FlatMapRows,
    KeyRows,
    MapFunction,
    MapRows,
)
