"""The wire format of a schema registry: each value begins with the number of its schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from unistream.connector.common import Decoded, Int64s, UnknownSchema, merged
from unistream.connector.kafka.record.records import Framed

PREFIX_BYTES = 5  # a zero byte, and the number
NOT_FRAMED = "it does not begin with a zero byte and the number of a schema, as a schema registry has it"


def unframed(framed: Framed) -> tuple[Framed, Int64s, Int64s]:
    """Values without their prefix, those records, and the numbers of their schemas. Records without a value,
    and those that have no prefix, are left out."""
    long = np.flatnonzero(framed.value_lengths >= PREFIX_BYTES)
    starts = framed.value_starts[long]
    bytes_ = [framed.data[starts + i].astype(np.int64) for i in range(PREFIX_BYTES)]
    numbers = (bytes_[1] << 24) | (bytes_[2] << 16) | (bytes_[3] << 8) | bytes_[4]
    good = bytes_[0] == 0
    rows = long[good]
    return shifted(framed.at(rows), PREFIX_BYTES), rows, numbers[good]


def shifted(framed: Framed, by: int | Int64s) -> Framed:
    """Values without so many bytes at their beginning."""
    return replace(framed, value_starts=framed.value_starts + by, value_lengths=framed.value_lengths - by)


def not_framed(framed: Framed, schema: pa.Schema, rows: Int64s) -> Decoded:
    """Records with a value that are not among `rows`."""
    others = np.setdiff1d(np.flatnonzero(framed.value_lengths >= 0), rows)
    return Decoded.refused(schema, others, NOT_FRAMED)


def by_schema(framed: Framed, schema: pa.Schema, decode: Callable[[int, Framed], Decoded]) -> Decoded:
    """Decodes the values of each schema together. `decode`: of a number, and of values of that schema without
    their prefix; it may raise UnknownSchema, then all of these are bad."""
    values, rows, numbers = unframed(framed)
    parts = [not_framed(framed, schema, rows)]
    for number in np.unique(numbers).tolist():
        of_it = np.flatnonzero(numbers == number)
        try:
            found = decode(number, values.at(of_it))
        except UnknownSchema as unknown:
            parts.append(Decoded.refused(schema, rows[of_it], str(unknown)))
        else:
            parts.append(found.at(rows[of_it]))
    return merged(schema, parts)
