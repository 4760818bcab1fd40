"""Delta tables, read without the threads that abort a process.

Arrow opens the files itself: through deltalake's file system its threads call Python, also while a process
ends, which aborts it (apache/arrow#34314, seen at the end of 2 of 6 short programs).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow.dataset import Dataset
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem


def dataset_of(uri: str) -> Dataset:
    """The table as it is now; `uri`: its folder."""
    return DeltaTable(uri).to_pyarrow_dataset(filesystem=SubTreeFileSystem(uri, LocalFileSystem()))


def read_table(uri: str, columns: Sequence[str] | None = None, rows: pc.Expression | None = None) -> pa.Table:
    """The table as it is now; `columns`, `rows`: only these."""
    return dataset_of(uri).to_table(columns=None if columns is None else list(columns), filter=rows)
