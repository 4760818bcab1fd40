"""Whether and when a failed job starts again. Pure; one `Restarts` per job."""

from __future__ import annotations

from dataclasses import dataclass

from unistream.base import config as options
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Fixed delay: at most `attempts` restarts, each `delay_ms` after the failure; 0 attempts: none."""

    attempts: int
    delay_ms: int

    @classmethod
    def from_config(cls, config: Configuration) -> RestartPolicy:
        """`restart-strategy.*`; when unset: fixed-delay if checkpointing is enabled, else none."""
        strategy = config.find(options.RESTART_STRATEGY)
        if strategy is None:
            enabled = config.find(options.CHECKPOINT_INTERVAL) is not None
            strategy = "fixed-delay" if enabled else "none"
        if strategy != "fixed-delay":
            return cls(0, 0)
        attempts = config.get(options.RESTART_ATTEMPTS)
        if attempts < 0:
            raise ConfigError(f"{options.RESTART_ATTEMPTS.key}: {attempts} is less than 0")
        return cls(attempts, config.get(options.RESTART_DELAY))


class Restarts:
    """Counts restarts against a policy.

    >>> restarts = Restarts(RestartPolicy(attempts=1, delay_ms=500))
    >>> restarts.can_restart, restarts.take_ms(), restarts.can_restart, restarts.count
    (True, 500, False, 1)
    """

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self.count = 0

    @property
    def can_restart(self) -> bool:
        return self.count < self._policy.attempts

    def take_ms(self) -> int:
        """Uses up one restart; returns the wait before it in ms."""
        assert self.can_restart, "ask can_restart first"
        self.count += 1
        return self._policy.delay_ms
