"""Times for heartbeats that contradict each other."""

from __future__ import annotations

import pytest

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.core.resource import HeartbeatTerms, heartbeat_terms


@pytest.mark.parametrize(
    ("config", "terms"),
    [
        ({}, (10_000, 50_000)),
        ({"heartbeat.interval": "1 s", "heartbeat.timeout": "4 s"}, (1_000, 4_000)),
        ({"heartbeat.interval": "1999 ms", "heartbeat.timeout": "2 s"}, (1_999, 2_000)),
    ],
)
def test_terms(config: dict[str, str], terms: tuple[int, int]) -> None:
    assert heartbeat_terms(Configuration(config)) == HeartbeatTerms(*terms)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"heartbeat.timeout": "3 s"}, id="shorter than the default interval"),
        pytest.param({"heartbeat.interval": "1 min"}, id="longer than the default timeout"),
        pytest.param({"heartbeat.interval": "2 s", "heartbeat.timeout": "2 s"}, id="the same"),
    ],
)
def test_peers_that_would_be_given_up_between_two_beats(config: dict[str, str]) -> None:
    with pytest.raises(
        ConfigError, match=r"heartbeat.interval is \d+ ms and heartbeat.timeout \d+ ms: .*shorter"
    ):
        heartbeat_terms(Configuration(config))
