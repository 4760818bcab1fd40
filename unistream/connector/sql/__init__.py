"""A table of a SQL database as a sink, and as a source: PostgreSQL and SQLite, by SQLAlchemy.

    writer      copies rows into a staging table next to the target, in transactions of its own     barrier
    committer   one transaction: staged rows into the target, the record of the commit, staged rows removed

Readers of the target see a checkpoint at once, or not at all. The record, in the table
``unistream_sink_commits``, says which checkpoint of which sink is in the target, so a commit that is repeated
changes nothing. A crash leaves staged rows that no checkpoint lists: the next attempt of the subtask removes
them.

`statements` makes the SQL, `columns` the values, `database` talks to the server, `line` reads the records.
With `on_error`, `row_check` finds rows that the table would refuse: by its columns, and by `constraints`,
which `asked_rows` asks about with the statements of `questions`. In a commit group several sinks and the log
of the group (`group_log`) share a `transaction`.

Source: `source_discovery` divides a column into ranges, and says how far one that grows may be read
(`ranges`); `source_read` reads a range page by page, by the statements of `source_statements`, which
`source_database` sends and `source_types` makes columns of; `source_engine` connects.

May import: `connector.common`. Start with `sink` and `source`.
"""

from __future__ import annotations

from unistream.connector.sql.committer import ENVIRONMENT, committer_of
from unistream.connector.sql.database import DIALECTS
from unistream.connector.sql.group_log import SqlGroupLog
from unistream.connector.sql.sink import SqlSink
from unistream.connector.sql.source import SqlSource
from unistream.connector.sql.source_discovery import create_discovery
