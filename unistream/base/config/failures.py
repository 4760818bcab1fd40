"""Failures: what restarts after a failure, when, and what is recorded."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import (
    ConfigOption,
    Duration,
    RealNumber,
    WholeNumber,
    one_of,
    parse_duration_ms,
)

FAILOVER_STRATEGY: Final = ConfigOption(
    "jobmanager.execution.failover-strategy",
    one_of("region", "full"),
    "region",
    "What restarts when a task fails: the affected pipelined regions, or the whole job.",
)
RESTART_STRATEGY: Final = ConfigOption(
    "restart-strategy.type",
    one_of(
        "exponential-delay",
        "exponentialdelay",
        "fixed-delay",
        "fixeddelay",
        "failure-rate",
        "failurerate",
        "none",
        "off",
        "disable",
    ),
    None,
    "Whether and when a failed job restarts. Unset: exponential-delay if checkpointing is enabled; in a "
    "BATCH job three restarts, none after an error of a user's function; otherwise none.",
)
RESTART_BACKOFF_INITIAL: Final = ConfigOption(
    "restart-strategy.exponential-delay.initial-backoff", Duration(1), "1 s", "Wait before the first restart."
)
RESTART_BACKOFF_MAX: Final = ConfigOption(
    "restart-strategy.exponential-delay.max-backoff", Duration(1), "1 min", "Longest wait before a restart."
)
RESTART_BACKOFF_MULTIPLIER: Final = ConfigOption(
    "restart-strategy.exponential-delay.backoff-multiplier",
    RealNumber(1, float("inf"), inclusive=False),
    "1.5",
    "The wait grows by this factor from restart to restart.",
)
RESTART_BACKOFF_RESET: Final = ConfigOption(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    Duration(1),
    "1 h",
    "A job that has run this long since its last restart begins again with the initial wait.",
)
RESTART_BACKOFF_JITTER: Final = ConfigOption(
    "restart-strategy.exponential-delay.jitter-factor",
    RealNumber(0, 1),
    "0.1",
    "Share of the wait that is added or subtracted at random, so that jobs do not restart together.",
)
RESTART_BACKOFF_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    WholeNumber(1, 2**31 - 1),
    "2147483647",
    "Restarts before the job fails, counted since the backoff was last reset.",
)
RESTART_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.fixed-delay.attempts",
    WholeNumber(0, 2**31 - 1),
    "1",
    "Restarts before the job fails.",
)
RESTART_DELAY: Final = ConfigOption(
    "restart-strategy.fixed-delay.delay", parse_duration_ms, "1 s", "Wait before a restart."
)
RESTART_RATE_FAILURES: Final = ConfigOption(
    "restart-strategy.failure-rate.max-failures-per-interval",
    WholeNumber(1, 100_000),
    "1",
    "Failures in one interval that are still followed by a restart.",
)
RESTART_RATE_INTERVAL: Final = ConfigOption(
    "restart-strategy.failure-rate.failure-rate-interval",
    Duration(1),
    "1 min",
    "The interval in which failures are counted.",
)
RESTART_RATE_DELAY: Final = ConfigOption(
    "restart-strategy.failure-rate.delay", parse_duration_ms, "1 s", "Wait before a restart."
)
CANCELLATION_TIMEOUT: Final = ConfigOption(
    "task.cancellation.timeout",
    parse_duration_ms,
    "3 min",
    "If a task does not end within this time after it was canceled, its process ends.",
)
ATTEMPTS_HISTORY_SIZE: Final = ConfigOption(
    "jobmanager.execution.attempts-history-size",
    WholeNumber(1, 1_000),
    "16",
    "Former attempts of each subtask that are kept.",
)
EXCEPTION_HISTORY_SIZE: Final = ConfigOption(
    "web.exception-history-size",
    WholeNumber(1, 1_000),
    "16",
    "Failures of a job that are shown, each with its concurrent failures.",
)
