"""Arrow's query engine, without what `pyarrow.acero` loads besides.

`pyarrow.acero` imports `pyarrow.dataset`, and that imports pandas if it is installed: 0.6 s for every worker
process. The classes themselves live in `pyarrow._acero`, which is private: this is the only module that
names it (contract: tests/contract/test_contract_acero.py); without it the public one is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

try:
    from pyarrow._acero import (
        AggregateNodeOptions,
        Declaration,
        ProjectNodeOptions,
        TableSourceNodeOptions,
    )
except ImportError:  # a pyarrow that has moved it
    from pyarrow.acero import (
        AggregateNodeOptions,
        Declaration,
        ProjectNodeOptions,
        TableSourceNodeOptions,
    )

__all__ = ["AggregateNodeOptions", "Declaration", "ProjectNodeOptions", "TableSourceNodeOptions", "group"]


def group(table: pa.Table, keys: Sequence[str], specs: Sequence[object]) -> pa.Table:
    """One row for each distinct value of `keys`, on the calling thread.

    Args:
        table: At least the named columns.
        keys: Columns of `table`.
        specs: (input columns, "hash_" function, its options or None, name of the output column) each.

    `Table.group_by` does the same, but loads `pyarrow.acero`.
    """
    source = Declaration("table_source", TableSourceNodeOptions(table))
    plan = Declaration("aggregate", AggregateNodeOptions(list(specs), keys=list(keys)), inputs=[source])
    return plan.to_table(use_threads=False)
