"""Several sinks whose commits become visible together.

`sink` is what the members are to their committer, `committer` commits them one after the other, `file_log`
keeps the records of a group without a database. Start with `unistream.port.group`.
"""

from __future__ import annotations

from unistream.connector.group.committer import committer_of
from unistream.connector.group.logs import read_group
from unistream.connector.group.sink import GroupSink

__all__ = ["GroupSink", "committer_of", "read_group"]
