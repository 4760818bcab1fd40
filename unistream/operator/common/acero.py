"""Arrow's query engine, without the other imports of `pyarrow.acero`.

`pyarrow.acero` imports `pyarrow.dataset`, and that imports pandas if it is installed: 0.6 s for every worker
process. The classes are in the private module `pyarrow._acero`, which only this module uses (contract:
tests/contract/test_contract_acero.py); without it the public one is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

try:
    import pyarrow._acero as _engine
except ImportError:  # another version of pyarrow
    import pyarrow.acero as _engine

engine: Any = _engine


def group(table: pa.Table, keys: Sequence[str], specs: Sequence[Sequence[Any]]) -> pa.Table:
    """One row for each distinct value of `keys`, on the calling thread. (`Table.group_by` does the same, but
    loads `pyarrow.acero`.)

    Args:
        table: At least the named columns.
        keys: Columns of `table`.
        specs: (input columns, "hash_" function, its options or None, name of the output column) each.
    """
    referring = [(_references(columns), *rest) for columns, *rest in specs]
    return run_plan("aggregate", engine.AggregateNodeOptions(referring, keys=_references(keys)), table)


def _references(names: Sequence[str]) -> list[Any]:
    """References to columns: Arrow takes a text that begins with a dot for a path."""
    return [pc.field(name) if name.startswith(".") else name for name in names]


def run_plan(kind: str, options: Any, table: pa.Table) -> pa.Table:
    """One node over the rows of `table`, on the calling thread."""
    source = engine.Declaration("table_source", engine.TableSourceNodeOptions(table))
    return engine.Declaration(kind, options, inputs=[source]).to_table(use_threads=False)
