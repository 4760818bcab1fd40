"""How often peers send heartbeats, and when a silent one is given up."""

from __future__ import annotations

from typing import NamedTuple

from unistream.base.config import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, Configuration
from unistream.base.errors import ConfigError


class HeartbeatTerms(NamedTuple):
    """Both in milliseconds. A worker that registers takes over those of its master, whatever its own
    configuration says (in Flink the master requests the heartbeats)."""

    interval_ms: int
    timeout_ms: int


def heartbeat_terms(config: Configuration) -> HeartbeatTerms:
    """The configured terms.

    Raises:
        ConfigError: peers would be given up between two heartbeats.
    """
    terms = HeartbeatTerms(config.get(HEARTBEAT_INTERVAL), config.get(HEARTBEAT_TIMEOUT))
    if terms.interval_ms >= terms.timeout_ms:
        raise ConfigError(
            f"{HEARTBEAT_INTERVAL.key} is {terms.interval_ms} ms and {HEARTBEAT_TIMEOUT.key} "
            f"{terms.timeout_ms} ms: every peer would be given up between two heartbeats; make the interval "
            "shorter, a fifth of the timeout or less"
        )
    return terms
