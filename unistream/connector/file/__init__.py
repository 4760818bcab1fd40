"""Files as a source (Parquet, CSV, JSON lines) and as a sink.

Source: a split is a part of one file (`split`), read and decoded in columns (`reader`, `decode`, `format`).
Sink protocol: `sink_writer` stages hidden files; `sink_committer` writes a record of the files of a durable
checkpoint and renames them. `leftovers`: staged files of jobs that have ended.
May import: `connector.common`. Start with `source` or `sink`.
"""

from __future__ import annotations

from unistream.connector.file.discovery import create_discovery
from unistream.connector.file.leftovers import JOB_CHARS, StagedFolder
from unistream.connector.file.sink import FileSink, committer_of
from unistream.connector.file.sink_parts import PartFile
from unistream.connector.file.source import FileSource
