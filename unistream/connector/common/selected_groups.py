"""Which row groups of a Parquet file may have rows that are selected, by the statistics in its footer; and
which files, by columns that are the same in all their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from unistream.base.parquet_files import parquet_format
from unistream.port.projection import Selection

_KNOWN_BY_STATISTICS: Final = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_date,
    pa.types.is_timestamp,
)
"""Types whose least and greatest value bound all others that are not null."""


def selected_groups(
    file: pa.NativeFile,
    groups: Sequence[int],
    *,
    begun: bool,
    found: pa.Schema,
    selection: Selection | None,
    schema: pa.Schema,
    constants: Mapping[str, pa.Scalar] | None = None,
) -> list[int]:
    """Selects those of `groups` that may have selected rows.

    All of them if a column of the selection is missing, or has another type in the file: then its values are
    converted when they are read, and statistics are of others. Or if one may have floats, also in a struct or
    a dictionary: Arrow leaves out groups whose NaN are selected (26.0: where all numbers are 5, ``x != 5`` is
    taken for false).

    Args:
        file: Its footer is read.
        groups: Numbers of row groups.
        begun: Rows of the first one were returned already. It stays, since a position counts its rows.
        found: Columns of the file.
        selection: None: all rows are selected.
        schema: Columns of the rows.
        constants: Columns of the selection that have the same value in all rows, whatever the file has.
    """
    constants = constants or {}
    if selection is None or not all(
        _is_comparable(name, found, schema, constants) for name in selection.columns
    ):
        return list(groups)
    known = [pc.field(name) == value for name, value in constants.items()]
    fragment = parquet_format().make_fragment(
        file, partition_expression=reduce(and_, known) if known else None
    )
    parts = fragment.split_by_row_group(selection.expression, schema)
    selected = {group.id for part in parts for group in part.row_groups}
    return [group for i, group in enumerate(groups) if group in selected or (begun and i == 0)]


def may_be_selected(
    selection: Selection | None, schema: pa.Schema, constants: Mapping[str, pa.Array[Any]]
) -> bool:
    """False: no row with these values is selected, whatever its other columns have.

    Args:
        selection: None: all rows are selected.
        schema: Columns of the rows.
        constants: Arrays of one value. Floats are not looked at, as in `selected_groups`.

    >>> schema = pa.schema([("day", pa.int64()), ("n", pa.int64())])
    >>> selection = Selection((pc.field("day") == 5) & (pc.field("n") > 3), ("day", "n"))
    >>> [may_be_selected(selection, schema, {"day": pa.array([day])}) for day in (5, 6)]
    [True, False]
    """
    known = [
        pc.field(name) == value[0] if value[0].is_valid else pc.field(name).is_null()
        for name, value in constants.items()
        if any(is_known(value.type) for is_known in _KNOWN_BY_STATISTICS)
    ]
    if selection is None or not known or not set(selection.columns) <= set(schema.names):
        return True
    rows = ds.FileSystemDataset.from_paths(
        ["rows"],
        schema=schema,
        format=ds.CsvFileFormat(),
        filesystem=LocalFileSystem(),
        partitions=[reduce(and_, known)],
    )
    return next(iter(rows.get_fragments(filter=selection.expression)), None) is not None


def _is_comparable(name: str, found: pa.Schema, schema: pa.Schema, constants: Mapping[str, Any]) -> bool:
    if schema.get_field_index(name) < 0:
        return False
    kind = schema.field(name).type
    if not any(is_known(kind) for is_known in _KNOWN_BY_STATISTICS):
        return False
    if name in constants:
        return bool(constants[name].is_valid)
    at = found.get_field_index(name)  # -1: there is none, or there are several
    return at >= 0 and bool(found.field(at).type.equals(kind))
