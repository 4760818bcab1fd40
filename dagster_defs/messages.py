"""What is published about a flight."""

from __future__ import annotations

import pyarrow as pa

MESSAGE = pa.schema(
    [
        ("scheduled", pa.timestamp("ms")),
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("dep_delay", pa.int64()),
        ("distance", pa.int64()),
    ]
)
"""All fields of a message, which is JSON."""
