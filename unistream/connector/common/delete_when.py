"""Rows that delete the row of their key: which ones, by an expression of the user over their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.model.expression import Expression, as_arrow, check_types, readable, why_not

_COLUMN: Final = "holds"


def check_delete_when(delete_when: object, key: Sequence[str]) -> None:
    """Checks the argument `delete_when`; None: no row deletes. Raises ConfigError: there is no key, or it is
    no expression."""
    if delete_when is None:
        return
    if not key:
        raise ConfigError("delete_when needs mode='upsert' and a key")
    if not isinstance(delete_when, Expression | pc.Expression):
        raise ConfigError(
            f"delete_when is an expression such as us.col('kind') == 'delete', not {delete_when!r:.100}"
        )


def check_condition(delete_when: Expression | pc.Expression | None, schema: pa.Schema) -> None:
    """Raises ConfigError: it cannot be computed for rows of these columns, or is not true or false."""
    if delete_when is None:
        return
    rows = pa.RecordBatch.from_pylist([], schema=schema)
    try:
        check_types(delete_when, lambda part: values_of(part, rows).type)
        kind = values_of(delete_when, rows).type
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, TypeError) as error:
        raise ConfigError(
            f"delete_when={readable(delete_when)}: {why_not(error)}; columns here: {', '.join(schema.names)}"
        ) from error
    if not pa.types.is_boolean(kind):
        raise ConfigError(f"delete_when={readable(delete_when)} is {kind}, and has to be true or false")


def values_of(condition: Expression | pc.Expression, rows: pa.RecordBatch) -> pa.Array[Any]:
    """Computes an expression for each row. Raises as Arrow."""
    from pyarrow import acero  # late: it imports pandas, if that is installed

    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([rows]))),
            acero.Declaration("project", acero.ProjectNodeOptions([as_arrow(condition)], [_COLUMN])),
        ]
    )
    return plan.to_table(use_threads=False).column(0).combine_chunks()


def deletes(condition: Expression | pc.Expression, rows: pa.RecordBatch) -> pa.Array[Any]:
    """Computes for each row whether the condition holds; null is no. Raises as Arrow."""
    return pc.fill_null(values_of(condition, rows), fill_value=False)
