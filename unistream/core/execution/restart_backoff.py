"""Whether and when a failed job starts again: Flink's restart strategies, without its clock and its dice.

Each strategy is notified of every failure; queries change nothing. A failure that arrives before the
announced restart belongs to that restart: exponential-delay merges it (`notify_failure` returns False), the
others count each one. The configuration has checked the parameters.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from unistream.base import config as options
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.core.contract import RestartBackoff

_LONG_MAX: Final = 2**63 - 1
UNLIMITED: Final = 2**31 - 1  # Flink: Integer.MAX_VALUE attempts are as many as one likes

Draw: TypeAlias = Callable[[], float]
"""The next random number in [0, 1)."""


@dataclass(kw_only=True)
class ExponentialDelay:
    """Waits longer from attempt to attempt, and starts over after `reset_ms` without a failure.

    Attempt n (from 0) waits ``initial_ms * multiplier**n``, more or less `jitter` times that, within
    [`initial_ms`, `max_ms`]. `attempts_max` is between two starts over.

    >>> backoff = ExponentialDelay(
    ...     initial_ms=10,
    ...     max_ms=30,
    ...     multiplier=2.0,
    ...     reset_ms=100,
    ...     jitter=0.0,
    ...     attempts_max=5,
    ...     draw=lambda: 0.5,
    ... )
    >>> backoff.notify_failure(0), backoff.backoff_ms(4), backoff.notify_failure(10)
    (True, 6, False)
    >>> backoff.notify_failure(11), backoff.backoff_ms(11), backoff.can_restart
    (True, 20, True)
    """

    initial_ms: int
    max_ms: int
    multiplier: float
    reset_ms: int
    jitter: float
    attempts_max: int
    draw: Draw
    _attempt: int = 0
    _restart_at_ms: int | None = None

    def notify_failure(self, now_ms: int) -> bool:
        if self._restart_at_ms is not None:
            since_ms = now_ms - self._restart_at_ms
            if since_ms <= 0:
                return False
            if since_ms >= self.reset_ms:
                self._attempt = 0
        self._restart_at_ms = now_ms + self._next_ms()
        self._attempt += 1
        return True

    def _next_ms(self) -> int:
        """The jitter is of the uncapped wait: once that is far above the maximum the wait is the maximum."""
        try:
            plain_ms = min(math.trunc(self.initial_ms * self.multiplier**self._attempt), _LONG_MAX)
        except OverflowError:
            return self.max_ms
        spread_ms = math.trunc(plain_ms * self.jitter)
        offset_ms = math.floor(self.draw() * (2 * spread_ms + 1)) - spread_ms
        return max(self.initial_ms, min(plain_ms + offset_ms, self.max_ms))

    @property
    def can_restart(self) -> bool:
        return self._attempt <= self.attempts_max

    def backoff_ms(self, now_ms: int) -> int:
        assert self._restart_at_ms is not None, "there was no failure yet"
        return max(0, self._restart_at_ms - now_ms)

    def describe(self) -> str:
        attempts = "unlimited" if self.attempts_max == UNLIMITED else str(self.attempts_max)
        return (
            f"exponential-delay (initial-backoff {self.initial_ms} ms, max-backoff {self.max_ms} ms, "
            f"backoff-multiplier {self.multiplier}, reset-backoff-threshold {self.reset_ms} ms, "
            f"jitter-factor {self.jitter}, attempts-before-reset-backoff {attempts}; "
            f"attempt {self._attempt})"
        )


@dataclass(kw_only=True)
class FixedDelay:
    """`attempts_max` restarts in the life of the job, each `delay_ms` after its failure.

    >>> backoff = FixedDelay(attempts_max=1, delay_ms=500)
    >>> backoff.notify_failure(0), backoff.can_restart, backoff.notify_failure(0), backoff.can_restart
    (True, True, True, False)
    """

    attempts_max: int
    delay_ms: int
    _failures: int = 0

    def notify_failure(self, now_ms: int) -> bool:
        self._failures += 1
        return True

    @property
    def can_restart(self) -> bool:
        return self._failures <= self.attempts_max

    def backoff_ms(self, now_ms: int) -> int:
        return self.delay_ms

    def describe(self) -> str:
        return f"fixed-delay (attempts {self.attempts_max}, delay {self.delay_ms} ms)"


@dataclass(kw_only=True)
class FailureRate:
    """Restarts while there are at most `failures_max` failures in `interval_ms` (both ends count).

    >>> backoff = FailureRate(failures_max=1, interval_ms=10, delay_ms=5)
    >>> [(backoff.notify_failure(t), backoff.can_restart) for t in (0, 10, 21)]
    [(True, True), (True, False), (True, True)]
    """

    failures_max: int
    interval_ms: int
    delay_ms: int
    _failures: deque[int] = field(default_factory=deque)

    def notify_failure(self, now_ms: int) -> bool:
        self._failures.append(now_ms)
        if len(self._failures) > self.failures_max + 1:
            self._failures.popleft()
        return True

    @property
    def can_restart(self) -> bool:
        if len(self._failures) <= self.failures_max:
            return True
        return self._failures[-1] - self._failures[0] > self.interval_ms

    def backoff_ms(self, now_ms: int) -> int:
        return self.delay_ms

    def describe(self) -> str:
        return (
            f"failure-rate (max-failures-per-interval {self.failures_max}, "
            f"failure-rate-interval {self.interval_ms} ms, delay {self.delay_ms} ms)"
        )


class NoRestart:
    """The first failure is the last."""

    def notify_failure(self, now_ms: int) -> bool:
        return True

    @property
    def can_restart(self) -> bool:
        return False

    def backoff_ms(self, now_ms: int) -> int:
        return 0

    def describe(self) -> str:
        return "none"


# --- from the configuration -----------------------------------------------------------------------

BATCH_ATTEMPTS: Final = 3  # after the first, as Spark's tasks have them
BATCH_DELAY_MS: Final = 1_000
EXPONENTIAL_DELAY: Final = frozenset({"exponential-delay", "exponentialdelay"})
FIXED_DELAY: Final = frozenset({"fixed-delay", "fixeddelay"})
FAILURE_RATE: Final = frozenset({"failure-rate", "failurerate"})
NONE: Final = frozenset({"none", "off", "disable"})


def restart_backoff_from_config(config: Configuration, draw: Draw, *, batch: bool = False) -> RestartBackoff:
    """`restart-strategy.*`; when no type is set: exponential-delay if checkpoints are taken, three restarts
    in a BATCH job, else none.

    Args:
        config: The cluster's configuration with the job's own merged on top.
        draw: For the jitter, so that jobs that failed together do not come back together.
        batch: It is a BATCH job.

    Raises:
        ConfigError: a value is out of its range; names the key, the value and what is allowed.
    """
    name = config.find(options.RESTART_STRATEGY)
    if name is None and batch:
        return FixedDelay(attempts_max=BATCH_ATTEMPTS, delay_ms=BATCH_DELAY_MS)
    if name is None:
        checkpointing = config.find(options.CHECKPOINT_INTERVAL) is not None
        name = "exponential-delay" if checkpointing else "none"
    if name in EXPONENTIAL_DELAY:
        return _exponential(config, draw)
    if name in FIXED_DELAY:
        return FixedDelay(
            attempts_max=config.get(options.RESTART_ATTEMPTS), delay_ms=config.get(options.RESTART_DELAY)
        )
    if name in FAILURE_RATE:
        return FailureRate(
            failures_max=config.get(options.RESTART_RATE_FAILURES),
            interval_ms=config.get(options.RESTART_RATE_INTERVAL),
            delay_ms=config.get(options.RESTART_RATE_DELAY),
        )
    assert name in NONE, name
    return NoRestart()


def _exponential(config: Configuration, draw: Draw) -> ExponentialDelay:
    initial, most = options.RESTART_BACKOFF_INITIAL, options.RESTART_BACKOFF_MAX
    initial_ms, max_ms = config.get(initial), config.get(most)
    if initial_ms > max_ms:
        raise ConfigError(
            f"{initial.key}: {initial_ms} ms is more than {most.key}, {max_ms} ms; "
            f"allowed is 1 ms to {max_ms} ms"
        )
    return ExponentialDelay(
        initial_ms=initial_ms,
        max_ms=max_ms,
        multiplier=config.get(options.RESTART_BACKOFF_MULTIPLIER),
        reset_ms=config.get(options.RESTART_BACKOFF_RESET),
        jitter=config.get(options.RESTART_BACKOFF_JITTER),
        attempts_max=config.get(options.RESTART_BACKOFF_ATTEMPTS),
        draw=draw,
    )
