"""Results of a format: the rows that it has read, and the records that it could not read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from unistream.connector.common.buffers import Int64s


@dataclass(frozen=True, slots=True)
class Decoded:
    """Attributes:
    records: The rows.
    rows: Of which records they are, in order.
    bad: Which records could not be read, in order.
    reasons: Why, as a clause, one for each.
    """

    records: pa.RecordBatch
    rows: Int64s
    bad: Int64s
    reasons: pa.Array[Any]

    @staticmethod
    def refused(schema: pa.Schema, bad: Int64s, reason: str) -> Decoded:
        """A result without rows; all of these are bad for one reason."""
        none = pa.RecordBatch.from_pylist([], schema)
        return Decoded(none, np.empty(0, np.int64), bad, pa.repeat(pa.scalar(reason), len(bad)))

    def at(self, rows: Int64s) -> Decoded:
        """The result of a selection of records, by the numbers that these have among all."""
        return Decoded(self.records, rows[self.rows], rows[self.bad], self.reasons)


def merged(schema: pa.Schema, parts: Sequence[Decoded]) -> Decoded:
    """Puts the results of different records together, in the order of the records."""
    if len(parts) == 1:
        return parts[0]
    bad, reasons = first_reasons([(part.bad, part.reasons) for part in parts])
    rows = np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)])
    records = pa.concat_batches([pa.RecordBatch.from_pylist([], schema), *(part.records for part in parts)])
    order = np.argsort(rows, kind="stable")  # several rows of a record stay in order
    return Decoded(records.take(pa.array(order)), rows[order], bad, reasons)


def first_reasons(parts: Sequence[tuple[Int64s, pa.Array[Any]]]) -> tuple[Int64s, pa.Array[Any]]:
    """Which records are bad, in order; of several reasons of one the first counts."""
    given = [(bad, reasons) for bad, reasons in parts if len(bad)]
    if len(given) == 1:
        return given[0]
    bad = np.concatenate([np.empty(0, np.int64), *(bad for bad, _ in given)])
    reasons = pa.concat_arrays(
        [pa.array([], pa.string()), *(reasons.cast(pa.string()) for _, reasons in given)]
    )
    rows, first = np.unique(bad, return_index=True)
    return rows, reasons.take(pa.array(first))
