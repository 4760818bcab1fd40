"""An Iceberg table as a sink, exactly once, and as a source.

    writer      Parquet files below the table's location, which no snapshot names; a committable names them
    committer   one snapshot for each checkpoint, on exactly the snapshot that was looked at

The snapshot's summary and a property of the table, set by the same commit, say which checkpoint of which sink
is in the table, so a commit that is repeated changes nothing, also when the snapshot has expired. A crash
leaves files that no snapshot names; `remove_orphan_files` of Iceberg's tools removes them.

    source_table        which files a snapshot has, and what it has added; `source_manifests` reads manifests
    source_log          what a log of snapshots means for a stream; pure
    source_discovery    splits of a snapshot, and of later ones
    source_read         rows of a split, by the ids of columns, without those that `source_deletes` marks

`record` is what a table knows of its sinks, `snapshot` makes the commit, `upsert` finds and writes again the
files with rows that are replaced by key, `schema` and `partition` say how rows become files, `catalog` and
`table` talk to the catalogue. Only this room imports pyiceberg, and the
library of bitmaps that comes with it. May import: `connector.common`. Start with `sink` or `source`.
"""

from __future__ import annotations

from unistream.connector.iceberg.sink import IcebergSink, committer_of
from unistream.connector.iceberg.source import IcebergSource, create_discovery
