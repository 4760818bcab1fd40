"""Turns the columns that a format gives into those that the rows have: types, missing fields, bad values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from unistream.connector.common.decoded import Decoded

Build: TypeAlias = Callable[[int, int], pa.Array]
"""The rows [low, high) of a column in its final type; raises if one of them cannot have it."""
NOT_BUILT: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError, TypeError, ValueError)


@dataclass(slots=True)
class RecordCells:
    """Rows that are made of `count` records, and those that are bad: record -> why."""

    schema: pa.Schema
    count: int
    bad: dict[int, str]

    def decoded(self, builds: Mapping[str, Build]) -> Decoded:
        """The rows whose records are good. `builds`: by column; one that is not in it is null."""
        columns = self.columns(builds)
        for field, column in zip(self.schema, columns, strict=True):
            if not field.nullable and column.null_count:
                for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                    self.bad.setdefault(row, f"field {field.name!r} is missing or null")
        nullable = pa.schema([field.with_nullable(True) for field in self.schema])
        records = pa.record_batch(columns, schema=nullable)
        bad = np.array(sorted(self.bad), np.int64)
        reasons = pa.array([self.bad[row] for row in bad.tolist()], pa.string())
        rows = np.arange(self.count)
        if len(bad):
            rows = np.delete(rows, bad)
            records = records.take(pa.array(rows))
        return Decoded(pa.record_batch(records.columns, schema=self.schema), rows, bad, reasons)

    def columns(self, builds: Mapping[str, Build]) -> list[pa.Array]:
        """The columns of all records, those that are bad too: null where there is no value."""
        return [
            self._built(field, builds[field.name])
            if field.name in builds
            else pa.nulls(self.count, field.type)
            for field in self.schema
        ]

    def _built(self, field: pa.Field, build: Build) -> pa.Array:
        """Builds one column, with nulls for values that it cannot have, whose rows are bad."""
        count = self.count
        try:
            return build(0, count)
        except NOT_BUILT:
            parts: list[pa.Array] = []
            self._halve(field, build, 0, count, parts)
            return pa.concat_arrays(parts) if parts else pa.nulls(0, field.type)

    def _halve(self, field: pa.Field, build: Build, low: int, high: int, parts: list[pa.Array]) -> None:
        if low == high:
            return
        try:
            parts.append(build(low, high))
        except NOT_BUILT as error:
            if high - low == 1:
                reason = str(error).splitlines()[0]
                self.bad.setdefault(low, f"field {field.name!r} is not a {field.type}: {reason}")
                parts.append(pa.nulls(1, field.type))
                return
            middle = (low + high) // 2
            self._halve(field, build, low, middle, parts)
            self._halve(field, build, middle, high, parts)
