"""A Delta table as a sink, exactly once, and as a source.

Sink: `writer` stages Parquet files (a committable names them); `committer` adds the files of a durable
checkpoint by one Delta commit with (job, uid, checkpoint), which is skipped if the table has it already. A
crash leaves staged files that no commit names; `vacuum` removes them. Source: `source_discovery` lists the
files of a version and what later versions add; `source_read` decodes them. Only this room imports deltalake.
May import: `connector.common`. Start with `sink` or `source`.
"""

from __future__ import annotations

from unistream.connector.delta.rows import read_column_names, read_table
from unistream.connector.delta.sink import DeltaSink, committer_of
from unistream.connector.delta.source import DeltaSource, create_discovery
