"""Scheduling: when subtasks start, how long a job waits for slots, and when it rescales."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import ConfigOption, Duration, one_of, parse_duration_ms

SCHEDULER: Final = ConfigOption(
    "jobmanager.scheduler",
    one_of("default", "adaptive"),
    "default",
    "Whether a job waits for all slots that it requests, or runs with the available ones.",
)
SCHEDULING_STRATEGY: Final = ConfigOption(
    "jobmanager.scheduling-strategy",
    one_of("pipelined-region", "eager", "lazy-from-sources"),
    "pipelined-region",
    "When subtasks are started: region by region when the inputs are complete, all at once, or each when its "
    "inputs can be read.",
)
SLOT_REQUEST_TIMEOUT: Final = ConfigOption(
    "slot.request.timeout", parse_duration_ms, "5 min", "Longest wait for slots."
)
SLOT_IDLE_TIMEOUT: Final = ConfigOption(
    "slot.idle.timeout",
    Duration(0),
    "50 s",
    "A job releases a slot that has been idle for this long.",
)
RESOURCE_WAIT_TIMEOUT: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.submission.resource-wait-timeout",
    Duration(0),
    "5 min",
    "Longest wait for all slots; then an adaptive job starts with the available ones, or fails.",
)
RESOURCE_STABILIZATION_TIMEOUT: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout",
    Duration(0),
    "10 s",
    "How long an adaptive job with enough slots to run, but not all, waits for more.",
)
RESCALE_COOLDOWN: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling",
    Duration(0),
    "30 s",
    "Shortest time that an adaptive job runs before it restarts with more slots.",
)
RESCALE_STABILIZATION_TIMEOUT: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout",
    Duration(0),
    "1 min",
    "How long a running adaptive job that has more slots, but not all, waits before it uses them.",
)
