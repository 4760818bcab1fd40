"""A Delta table as a sink, exactly once.

Protocol: `writer` stages Parquet files (a committable names them), `committer` adds what a durable
checkpoint lists in one Delta commit that carries (job, uid, checkpoint) and is skipped when the table has
it already. A crash leaves staged files that no commit names; the next committer of the same uid removes
them. Only this room knows deltalake. May import: `connector.common`. Start with `sink`.
"""

from __future__ import annotations

from unistream.connector.delta.sink import DeltaSink, committer_of

__all__ = [
    "DeltaSink",
    "committer_of",
]
