"""Pipeline: how the graph of a job is made and how its operators run."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import ConfigOption, WholeNumber, one_of, parse_bool, parse_duration_ms
from unistream.base.limits import KEY_GROUPS_MAX, PARALLELISM_MAX

PARALLELISM: Final = ConfigOption(
    "parallelism.default",
    WholeNumber(1, PARALLELISM_MAX),
    "1",
    "Parallelism of vertices that set none.",
)
MAX_PARALLELISM: Final = ConfigOption(
    "pipeline.max-parallelism",
    WholeNumber(1, KEY_GROUPS_MAX, unset=-1),
    "-1",
    "Number of key groups; -1: derived from the parallelism.",
)
CHAINING: Final = ConfigOption(
    "pipeline.operator-chaining.enabled", parse_bool, "true", "Run neighbouring operators in one task."
)
CHAINING_ACROSS_MAX_PARALLELISM: Final = ConfigOption(
    "pipeline.operator-chaining.chain-operators-with-different-max-parallelism",
    parse_bool,
    "true",
    "Operators with different max parallelism may share a task, which has that of its first operator.",
)
RUNTIME_MODE: Final = ConfigOption(
    "execution.runtime-mode",
    one_of("STREAMING", "BATCH", "AUTOMATIC"),
    "AUTOMATIC",
    "STREAMING: rows flow as they come, with watermarks and checkpoints; BATCH: all sources are bounded, "
    "stages run one after the other and get their rows by key and time; AUTOMATIC: BATCH if all sources are "
    "bounded.",
)
BATCH_SHUFFLE_MODE: Final = ConfigOption(
    "execution.batch-shuffle-mode",
    one_of(
        "ALL_EXCHANGES_BLOCKING",
        "ALL_EXCHANGES_PIPELINED",
        "ALL_EXCHANGES_HYBRID_FULL",
        "ALL_EXCHANGES_HYBRID_SELECTIVE",
    ),
    "ALL_EXCHANGES_BLOCKING",
    "Exchanges of a BATCH job; the hybrid modes are not supported and are refused.",
)
BATCH_ENGINE: Final = ConfigOption(
    "execution.batch.engine",
    one_of("spark", "native"),
    None,
    "What runs a BATCH job: Spark's own engine as one Spark job, or the built-in runtime (native). Unset: "
    "spark if the target is Spark and the job can be run in stages, otherwise native.",
)
OFFLOAD_BOUNDED: Final = ConfigOption(
    "execution.batch.offload-bounded-regions",
    parse_bool,
    "false",
    "In a STREAMING job with bounded and unbounded sources: what reads only bounded ones runs first and as "
    "in a BATCH job, its rows are stored, and the stream begins when they are complete. On Spark it runs as "
    "one Spark job, unless execution.batch.engine is native.",
)
AUTO_WATERMARK_INTERVAL: Final = ConfigOption(
    "pipeline.auto-watermark-interval", parse_duration_ms, "200 ms", "How often sources emit watermarks."
)
COMMITTER_RETRIES: Final = ConfigOption(
    "sink.committer.retries",
    WholeNumber(0, 1_000),
    "10",
    "How often a commit that requests a retry is retried at once.",
)
