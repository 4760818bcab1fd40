"""Scheduling: when subtasks start, how long a job waits for slots, and when it rescales."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import ConfigOption, Duration, one_of, parse_duration_ms

SCHEDULER: Final = ConfigOption(
    "jobmanager.scheduler",
    one_of("default", "adaptive"),
    "default",
    "Whether a job waits for the slots that it asks for, or takes what there is.",
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
    "A job gives a slot back when it had nothing to run for so long.",
)
RESOURCE_WAIT_TIMEOUT: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.submission.resource-wait-timeout",
    Duration(0),
    "5 min",
    "Longest wait for all slots; then an adaptive job starts with those that there are, or fails.",
)
RESOURCE_STABILIZATION_TIMEOUT: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout",
    Duration(0),
    "10 s",
    "With enough slots to run, but not all, an adaptive job waits so long for more.",
)
RESCALE_COOLDOWN: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling",
    Duration(0),
    "30 s",
    "An adaptive job runs at least so long before it starts again on more slots.",
)
RESCALE_STABILIZATION_TIMEOUT: Final = ConfigOption(
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout",
    Duration(0),
    "1 min",
    "With more slots, but not all, an adaptive job that runs waits so long before it uses them.",
)
