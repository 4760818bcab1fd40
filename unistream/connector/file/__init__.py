"""Files as a source (Parquet, CSV, JSON lines) and as a sink.

Source: a split is a part of one file (`split`), read and decoded in columns (`reader`, `decode`,
`format`). Sink protocol: `sink_writer` stages files under a hidden folder, `sink_committer` renames what
a durable checkpoint lists; a rename that was done before is recognised by its record. May import:
`connector.common`. Start with `source` or `sink`.
"""

from __future__ import annotations

from unistream.connector.file.sink import FileSink, committer_of
from unistream.connector.file.source import FileSource, create_discovery

__all__ = [
    "FileSink",
    "FileSource",
    "committer_of",
    "create_discovery",
]
