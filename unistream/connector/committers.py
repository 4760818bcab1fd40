"""Makes the committer of a sink from the committables of a snapshot, without the user's code.

A sink whose committables have all that a commit needs declares a function in the table below, or, in an
installed package, in the entry-point group ``unistream.committers`` (name = "module:function"). The name is
the committer's `connector` (`unistream.port.sink.RecoverableCommitter`), which snapshots store with the
committables. They never store credentials: the function takes them from the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from unistream.base.errors import ConfigError
from unistream.base.plugins import known, load
from unistream.port.sink import Committer

ENTRY_POINT_GROUP: Final = "unistream.committers"

COMMITTERS: Final = {
    "collect": "unistream.connector.collect:committer_of",
    "delta": "unistream.connector.delta:committer_of",
    "iceberg": "unistream.connector.iceberg:committer_of",
    "kafka": "unistream.connector.kafka.sink.sink_committer:committer_of",
    "files": "unistream.connector.file:committer_of",
    "group": "unistream.connector.group:committer_of",
    "sql": "unistream.connector.sql:committer_of",
}

CommitterFactory = Callable[[Sequence[bytes]], Committer]


def committer_of(connector: str, committables: Sequence[bytes]) -> Committer:
    """The committer, not open, of `committables` (at least one).

    Raises:
        ConfigError: no connector of that name is installed, or it cannot be imported.
        CorruptSnapshot: a committable cannot be read.
    """
    targets = known(ENTRY_POINT_GROUP, COMMITTERS)
    target = targets.get(connector)
    if target is None:
        raise ConfigError(
            f"the committer of connector {connector!r} is not installed; installed are "
            f"{', '.join(sorted(targets))} (packages add others in the entry point group "
            f"{ENTRY_POINT_GROUP!r})"
        )
    return cast(CommitterFactory, load(connector, target))(committables)
