"""ORC files: stripes as units, as row groups are those of Parquet.

Arrow reads their times in nanoseconds, and refuses those that these cannot hold (before 1677, after 2262); a
schema may declare a coarser unit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.orc as pa_orc

from unistream.connector.common import UnitRows


def orc_file(file: pa.NativeFile) -> pa_orc.ORCFile:
    """Raises pa.ArrowInvalid: it is no ORC file."""
    try:
        return pa_orc.ORCFile(file)
    except OSError as error:
        if error.errno is not None:
            raise  # of the storage; Arrow reports what is no such file as an OSError without a number
        raise pa.ArrowInvalid(str(error)) from error


def orc_schema(file: pa.NativeFile) -> pa.Schema:
    """The schema of the rows, without metadata. Raises pa.ArrowInvalid."""
    return orc_file(file).schema.remove_metadata()


def stripe_ranges(file: pa.NativeFile, split_bytes: int) -> list[tuple[int, int]]:
    """The ranges of adjacent stripes, each about `split_bytes` of the file. Raises pa.ArrowInvalid."""
    stripes = orc_file(file).nstripes
    parts = min(stripes, max(1, file.size() // split_bytes))
    bounds = [stripes * part // parts for part in range(parts + 1)] if parts else []
    return list(itertools.pairwise(bounds))


def as_declared(found: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The columns of a file, whose times may be read in the unit that is wanted."""
    fields = []
    for field in found:
        at = wanted.get_field_index(field.name)
        kind = wanted.field(at).type if at >= 0 else field.type
        if pa.types.is_timestamp(kind) and pa.types.is_timestamp(field.type):
            fields.append(field.with_type(pa.timestamp(kind.unit, field.type.tz)))
        else:
            fields.append(field)
    return pa.schema(fields)


def stripes(orc: pa_orc.ORCFile, numbers: Sequence[int], columns: Sequence[str]) -> Iterator[UnitRows]:
    """Yields the rows of these stripes. For Arrow a name with a dot is that of a field in a struct: then all
    columns are read."""
    chosen = None if any("." in name for name in columns) else list(columns)
    for number in numbers:
        table = pa.Table.from_batches([orc.read_stripe(number, columns=chosen)])
        yield UnitRows(table, number, 0, number + 1)
