"""Which columns of the rows of a file are in it, and which are in the names of its folders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from unistream.base.errors import ConfigError, UserCodeError
from unistream.connector.common import may_be_selected, untimed
from unistream.connector.file.format import FileSpec
from unistream.connector.file.partition_columns import Folders, check_not_in_file, constants


class FileColumns:
    """Separates the columns that one file has from those in the names of its folders.

    Args:
        path: Of the file.
        spec: Of the source.

    Raises:
        ConfigError: the name of a folder does not fit its column.
        UserCodeError: it has no event time.

    Attributes:
        in_file: How to read what is in the file: at least one column, by which its rows are counted.
        known: Columns of the folders: arrays of their one value.
    """

    def __init__(self, path: str, spec: FileSpec) -> None:
        self._path = path
        self._spec = spec
        self.known = constants(path, Folders(spec.given).values(path), spec.schema)
        self.in_file = self._in_file() if self.known else spec
        self._check_times()

    def _in_file(self) -> FileSpec:
        spec = self._spec
        fields = [field for field in spec.schema if field.name not in self.known]
        if not fields:
            named = Folders(spec.given).values(self._path)
            fields = [field for field in spec.full or () if field.name not in named][:1]
        if not fields:
            raise ConfigError(
                f"file {self._path}: all columns are those of its folders, and rows are counted by a column "
                "of the file; name one in schema="
            )
        used = tuple(field.name for field in fields if field.name in spec.names) or (fields[0].name,)
        times = tuple(name for name in spec.times if name not in self.known)
        return replace(spec, schema=pa.schema(fields), used=used, times=times)

    def _check_times(self) -> None:
        times = {name: value for name, value in self.known.items() if name in self._spec.times}
        if times:
            for reason in untimed(pa.record_batch(times), list(times)).values():
                raise UserCodeError(f"file {self._path}, in the name of its folder: {reason}")

    def check_not_in_file(self, names: Iterable[str]) -> None:
        """Raises ConfigError: a column is in the file and in the names of its folders."""
        check_not_in_file(self._path, self.known, names)

    def are_needed(self) -> bool:
        """Whether rows of the file may be selected. False: none is."""
        return may_be_selected(self._spec.selection, self._spec.schema, self.known)

    def with_known(self, schema: pa.Schema) -> pa.Schema:
        """Columns of the file, and those of its folders."""
        return pa.schema([*schema, *(pa.field(name, value.type) for name, value in self.known.items())])

    def rows(self, table: pa.Table) -> pa.Table:
        """All columns that are returned. `table`: rows of the file."""
        if not self.known:
            return table
        fields = [self._spec.schema.field(name) for name in self._spec.names]
        columns: list[Any] = [
            repeated(self.known[field.name], table.num_rows)
            if field.name in self.known
            else table.column(field.name)
            for field in fields
        ]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def repeated(value: pa.Array[Any], rows: int) -> pa.Array[Any]:
    """The one value in each row."""
    if pa.types.is_dictionary(value.type):
        return pa.DictionaryArray.from_arrays(repeated(value.indices, rows), value.dictionary)
    return pa.repeat(value[0], rows)
