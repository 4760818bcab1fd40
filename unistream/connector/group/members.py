"""Which sinks can be in a group."""

from __future__ import annotations

from collections.abc import Mapping

from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.connector.catalogue import sinks_that
from unistream.port.group import JoinsGroup


def check_group(name: str, members: Mapping[OperatorUid, object]) -> None:
    """Raises ConfigError: a member's committer cannot be in a group. `members`: by uid of the sink."""
    for uid, committer in members.items():
        if not isinstance(committer, JoinsGroup):
            raise ConfigError(
                f"commit group {name!r}: sink {uid!r} cannot be in a group: its output has no versions that "
                f"readers can choose. {sinks_that(lambda one: one.joins_groups)} can"
            )
