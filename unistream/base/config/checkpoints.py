"""Checkpoints: when they are taken, what is kept of them and where."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import ConfigOption, WholeNumber, one_of, parse_bool, parse_duration_ms

CHECKPOINT_INTERVAL: Final = ConfigOption(
    "execution.checkpointing.interval",
    parse_duration_ms,
    None,
    "Time between checkpoints; unset: no checkpoints.",
)
CHECKPOINT_INTERVAL_DURING_BACKLOG: Final = ConfigOption(
    "execution.checkpointing.interval-during-backlog",
    parse_duration_ms,
    None,
    "Time between checkpoints while a source reads a backlog, as a HybridSource does with its history"
    " (FLIP-309). 0: none is taken then; otherwise at least execution.checkpointing.interval. Unset: as"
    " without a backlog. No effect without execution.checkpointing.interval.",
)
CHECKPOINT_MODE: Final = ConfigOption(
    "execution.checkpointing.mode",
    one_of("EXACTLY_ONCE", "AT_LEAST_ONCE"),
    "EXACTLY_ONCE",
    "EXACTLY_ONCE: an input waits at its barrier for the others. AT_LEAST_ONCE: none waits, so that rows"
    " may be processed twice after a failure.",
)
CHECKPOINT_TIMEOUT: Final = ConfigOption(
    "execution.checkpointing.timeout",
    parse_duration_ms,
    "10 min",
    "A checkpoint that takes longer is aborted.",
)
CHECKPOINT_MIN_PAUSE: Final = ConfigOption(
    "execution.checkpointing.min-pause",
    parse_duration_ms,
    "0 ms",
    "Least time between the end of one checkpoint and the start of the next.",
)
CHECKPOINT_TOLERABLE_FAILURES: Final = ConfigOption(
    "execution.checkpointing.tolerable-failed-checkpoints",
    WholeNumber(0, 2**31 - 1),
    "0",
    "Failed checkpoints in a row before the job restarts.",
)
CHECKPOINT_MAX_CONCURRENT: Final = ConfigOption(
    "execution.checkpointing.max-concurrent-checkpoints",
    WholeNumber(1, 1_000),
    "1",
    "Checkpoints under way at the same time; must be 1 where they are unaligned.",
)
CHECKPOINTS_AFTER_TASKS_FINISH: Final = ConfigOption(
    "execution.checkpointing.checkpoints-after-tasks-finish",
    parse_bool,
    "true",
    "Whether checkpoints continue after some tasks have finished (FLIP-147). If false, none starts once a"
    " task has finished, one during which an input ends is aborted, savepoints are refused, no task waits for"
    " a final checkpoint when its data ends, and what sinks wrote since the last checkpoint is never"
    " committed.",
    other_keys=("execution.checkpointing.checkpoints-after-tasks-finish.enabled",),
)
UNALIGNED_ENABLED: Final = ConfigOption(
    "execution.checkpointing.unaligned.enabled",
    parse_bool,
    "false",
    "Barriers overtake queued rows, and those rows become part of the checkpoint.",
)
ALIGNED_TIMEOUT: Final = ConfigOption(
    "execution.checkpointing.aligned-checkpoint-timeout",
    parse_duration_ms,
    "0 ms",
    "With unaligned checkpoints: time after its start when an aligned checkpoint becomes unaligned; 0: it is"
    " unaligned from the start.",
)
CHECKPOINTS_RETAINED: Final = ConfigOption(
    "execution.checkpointing.num-retained", WholeNumber(1, 1_000), "1", "Completed checkpoints to keep."
)
CHECKPOINTS_HISTORY: Final = ConfigOption(
    "web.checkpoints.history",
    WholeNumber(1, 1_000),
    "10",
    "Recent checkpoints and savepoints of a job that are shown in detail; older ones are only counted.",
)
CHECKPOINT_RETENTION: Final = ConfigOption(
    "execution.checkpointing.externalized-checkpoint-retention",
    one_of("NO_EXTERNALIZED_CHECKPOINTS", "RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION"),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "Whether checkpoints stay when the job is cancelled or has failed: never, both times, or only when it "
    "has failed. Those of a suspended job always stay, those of a finished one never.",
)
CHECKPOINT_DIR: Final = ConfigOption(
    "execution.checkpointing.dir", str, None, "fsspec URL for checkpoints; unset: a folder of the cluster."
)
SAVEPOINT_DIR: Final = ConfigOption(
    "execution.checkpointing.savepoint-dir", str, None, "fsspec URL for savepoints whose command names none."
)
