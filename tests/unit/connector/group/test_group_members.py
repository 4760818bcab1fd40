"""Which sinks can be in a group."""

from __future__ import annotations

import pytest

from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.connector.group import check_group


def test_only_sinks_with_versions_can_be_members() -> None:
    with pytest.raises(ConfigError, match=r"sink 'files' cannot be in a group.*DeltaSink, IcebergSink and"):
        check_group("g", {OperatorUid("files"): object()})
