"""Several sinks whose commits become visible together.

`members` says which sinks can be in a group, `sink` is what they are to their committer, `committer` commits
them one after the other, `file_log` keeps the records of a group without a database. Start with
`unistream.port.group`.
"""

from __future__ import annotations

from unistream.connector.group.committer import committer_of
from unistream.connector.group.logs import read_group
from unistream.connector.group.members import check_group
from unistream.connector.group.sink import GroupSink

__all__ = ["GroupSink", "check_group", "committer_of", "read_group"]
