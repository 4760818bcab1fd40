"""What writers of staged files share: their names, and what is counted of them."""

from __future__ import annotations

import re
import uuid
from typing import Final

import pyarrow as pa

from unistream.model.metric_names import ROWS_SENT
from unistream.port.metrics import Metrics
from unistream.port.sink import SinkContext

BYTES_SENT: Final = "numBytesSend"


def staged_name(context: SinkContext) -> str:
    """The name of a staged Parquet file, unique among those of all attempts."""
    uid = re.sub(r"[^A-Za-z0-9-]", "-", context.sink_uid)[:64]
    return f"{uid}-{context.index}-{context.attempt.attempt}-{uuid.uuid4().hex}.parquet"


def count_sent(metrics: Metrics, rows: int, size: int) -> None:
    """Counts rows that a writer has passed on, and their bytes."""
    metrics.add(ROWS_SENT, rows)
    metrics.add(BYTES_SENT, size)


def columns_text(schema: pa.Schema) -> str:
    """The columns of a schema with their types, for messages.

    >>> columns_text(pa.schema([("n", pa.int64()), pa.field("k", pa.string(), nullable=False)]))
    '(n int64, k string not null)'
    """
    nulls = {True: "", False: " not null"}
    return "(" + ", ".join(f"{one.name} {one.type}{nulls[one.nullable]}" for one in schema) + ")"
