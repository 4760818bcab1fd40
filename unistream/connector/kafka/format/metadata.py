"""Columns of what Kafka says of a record: where it is, when it was written, its headers, its raw bytes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from unistream.connector.common import binary_array
from unistream.connector.common.machine_code import loops
from unistream.connector.kafka.format.layout import HEADERS_TYPE
from unistream.connector.kafka.record.records import Framed


def metadata_column(framed: Framed, topic: str, partition: int, what: str, kind: pa.DataType) -> pa.Array:
    """Makes a column with a value for each record. `what`: a key of
    `unistream.connector.kafka.format.layout.METADATA`.

    Raises:
        pa.ArrowInvalid, ValueError: of one of the records it has no such value.
    """
    match what:
        case "topic":
            column = pa.repeat(pa.scalar(topic), len(framed))
        case "partition":
            column = pa.repeat(pa.scalar(partition, pa.int32()), len(framed))
        case "offset":
            column = pa.array(framed.offsets)
        case "timestamp":
            column = pa.array(framed.timestamps)
            if pa.types.is_timestamp(kind):
                column = column.cast(pa.timestamp("ms", tz=kind.tz))
        case "headers":
            column = _headers(framed)
        case "key":
            column = binary_array(framed.data, framed.key_starts, framed.key_lengths)
        case "value":
            column = binary_array(framed.data, framed.value_starts, framed.value_lengths)
        case _:
            column = pa.array(framed.value_lengths < 0)
    return column.cast(kind)


def _headers(framed: Framed) -> pa.ListArray:
    """The headers in the order of the record; a name may come several times."""
    counts = np.empty(len(framed), np.int64)
    places = np.empty(len(framed), np.int64)
    behind = framed.value_starts + np.maximum(framed.value_lengths, 0)
    _check(_kernels().count_headers(framed.data, behind, counts, places))
    out = np.empty((4, int(counts.sum())), np.int64)
    _check(_kernels().place_headers(framed.data, counts, places, out))
    bounds = np.zeros(len(framed) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    try:
        keys = binary_array(framed.data, out[0], out[1]).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise ValueError("the name of a header is not UTF-8") from error
    values = binary_array(framed.data, out[2], out[3]).cast(pa.binary())
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(pa.array(bounds), pairs)


def _check(broken: int) -> None:
    if broken >= 0:
        raise ValueError("its headers are broken")


def _kernels() -> SimpleNamespace:
    return loops("unistream.connector.kafka.format.header_kernels")
