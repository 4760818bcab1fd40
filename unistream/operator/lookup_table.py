"""Rows of a dimension by their key: which of them match a fact, and in which pieces the matches leave.

A fact matches all rows with its key, as in SQL. Keeping one of them instead would need to know which came
last, and rows that several channels bring have no such order (`docs/decision/join-dimension-duplicates.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.limits import BATCH_ROWS_MAX
from unistream.model.columns.key_codes import KeyIndex
from unistream.model.key_groups import canonical_keys
from unistream.operator.common import empty_rows

_PRUNED_ROWS_MIN: Final = 8 * BATCH_ROWS_MAX  # of versions, below which the old ones are not looked for

Positions = npt.NDArray[np.int64]


class LookupTable:
    """Rows by key. Equal is what is equal after `key_by`: Arrow looks for bits, of which -0.0 and 0.0 have
    different ones, and so have two NaN.

    Args:
        schema: Of the rows.
        keys: Columns of the key, at least one.
        latest_by: Only rows with the largest value of this column are kept, of each key; all rows that have
            it. Null is the least. None: all rows are kept.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], latest_by: str | None = None) -> None:
        self._schema = schema
        self._keys = list(keys)
        self._latest_by = latest_by
        self._parts: list[pa.RecordBatch] = []
        self._added = self._kept = 0
        self._rows: pa.RecordBatch | None = None
        self._index: _PositionsByKey | None = None

    def add(self, records: pa.RecordBatch) -> None:
        self._parts.append(canonical_keys(records, self._keys))
        self._rows = self._index = None
        self._added += records.num_rows
        if self._latest_by is not None and self._added > max(_PRUNED_ROWS_MIN, self._kept):
            self.rows()

    def rows(self) -> pa.RecordBatch:
        """All that are kept."""
        if self._rows is None:
            rows = self._together()
            self._rows = rows if self._latest_by is None else self._latest(rows, self._latest_by)
            self._parts = [self._rows]
            self._added, self._kept = 0, self._rows.num_rows
        return self._rows

    def matches(self, keys: Sequence[pa.Array], *, outer: bool) -> Iterator[tuple[Positions, pa.Array]]:
        """Pairs of equal keys: positions in `keys`, ascending, and in `rows()`; in pieces of at most
        BATCH_ROWS_MAX, or as many as there are keys.

        Args:
            keys: The columns of the other rows' keys, in the order of this table's.
            outer: A key that has no row is in a pair with null.

        Raises:
            TypeError: the type of a column and of this table's never have equal values.
        """
        if self._index is None:
            self._index = _PositionsByKey(self._index_of(self.rows()))
        names = [str(number) for number in range(len(keys))]
        wanted = canonical_keys(pa.RecordBatch.from_arrays(list(keys), names), names)
        return self._index.matches(wanted.columns, outer=outer)

    def _together(self) -> pa.RecordBatch:
        table = pa.Table.from_batches(self._parts, schema=self._schema).combine_chunks()
        return table.to_batches()[0] if table.num_rows else empty_rows(self._schema)

    def _latest(self, rows: pa.RecordBatch, column: str) -> pa.RecordBatch:
        if not rows.num_rows:
            return rows
        keyed = rows.filter(self._index_of(rows).codes.is_valid())
        codes = self._index_of(keyed).codes.to_numpy()
        ranks = version_ranks(keyed.column(column))
        newest = np.zeros(int(codes.max()) + 1 if len(codes) else 0, np.int64)
        np.maximum.at(newest, codes, ranks)
        return keyed.filter(pa.array(ranks == newest[codes]))

    def _index_of(self, rows: pa.RecordBatch) -> KeyIndex:
        return KeyIndex([rows.column(key) for key in self._keys])


def version_ranks(versions: pa.Array) -> npt.NDArray[np.int64]:
    """Larger numbers for larger values, equal ones for equal values. Null is the least, NaN the largest.

    >>> version_ranks(pa.array([20, None, 10, 20])).tolist()
    [2, 0, 1, 2]

    Raises:
        pa.ArrowNotImplementedError: values of this type have no order.
    """
    if pa.types.is_dictionary(versions.type):
        versions = versions.dictionary_decode()
    ranks: npt.NDArray[np.int64] = pc.rank(versions, tiebreaker="dense").to_numpy().astype(np.int64)
    ranks[versions.is_null().to_numpy(zero_copy_only=False)] = 0
    return ranks


class _PositionsByKey:
    """Positions of rows by the number of their key."""

    def __init__(self, keys: KeyIndex) -> None:
        self._keys = keys
        valid = keys.codes.is_valid().to_numpy(zero_copy_only=False)
        codes = keys.codes.fill_null(0).to_numpy()
        places = np.flatnonzero(valid)
        order = np.argsort(codes[places], kind="stable")
        self._rows = places[order]  # those of a key together
        self._counts = np.bincount(codes[places], minlength=keys.count)
        self._starts = np.cumsum(self._counts) - self._counts

    def matches(self, columns: Sequence[pa.Array], *, outer: bool) -> Iterator[tuple[Positions, pa.Array]]:
        codes = self._keys.find(columns)
        if self._keys.is_unique:
            yield from self._single(codes, outer=outer)
            return
        known = codes.is_valid().to_numpy(zero_copy_only=False)
        numbers = codes.fill_null(0).to_numpy()
        counts = np.where(known, self._counts[numbers], int(outer))
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        size = max(BATCH_ROWS_MAX, len(codes))
        for start in range(0, total, size):
            pairs = np.arange(start, min(start + size, total))
            facts = np.searchsorted(ends, pairs, side="right")
            matched = known[facts]
            first = self._starts[numbers[facts]] - (ends - counts)[facts]
            rows = self._rows[np.where(matched, first + pairs, 0)]
            yield facts, pa.array(rows, mask=~matched)

    def _single(self, codes: pa.Int32Array, *, outer: bool) -> Iterator[tuple[Positions, pa.Array]]:
        """Each key has one row at most."""
        known = codes.is_valid().to_numpy(zero_copy_only=False)
        facts = np.arange(len(codes)) if outer else np.flatnonzero(known)
        if len(facts):
            yield facts, pa.array(self._rows).take(codes if outer else codes.drop_null())
