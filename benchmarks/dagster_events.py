"""What does an event cost in Dagster's event log, which grows with each and is never trimmed?

    python -m benchmarks.dagster_events                   SQLite, as `dagster dev` has it
    python -m benchmarks.dagster_events --events 5000

One JSON line for each kind of event: kB that the files in DAGSTER_HOME have grown by, and ms that the process
that stores it has waited, for each one. A materialisation without a run is what the commit sensor reports of
an asset at most once in a tick; an observation is a checkpoint that an attached run shows; a log line is what
a function of the pipeline has logged, or a failure that the job has recovered from.
"""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.
import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import dagster as dg

KEY: Final = dg.AssetKey("orders")
LINE: Final = "map (1/4), shop.orders: the price of order 4711 is not known, the last one counts (EUR 12.50)"


def metadata(number: int) -> dict[str, Any]:
    """As of a stream from a topic with eight partitions."""
    return {
        "unistream/job_id": f"{number:032x}",
        "unistream/checkpoints": number,
        "unistream/restarts": 0,
        "unistream/late_rows": 17,
        "unistream/late_rows_by_operator": dg.MetadataValue.json({"hours": 17}),
        "unistream/watermark": dg.MetadataValue.timestamp(1_767_225_600.0 + number),
        "unistream/records_behind": 12,
        "unistream/new_rows": 1_000,
        "unistream/new_commits": 1,
        "unistream/offsets": dg.MetadataValue.json({"orders": {str(part): number for part in range(8)}}),
        "unistream/checkpoint_id": number,
        "unistream/outbox_seq": number,
        "unistream/lag_s": 0.5,
        "unistream/table_version": number,
    }


@dg.logger
def silent(_: dg.InitLoggerContext) -> logging.Logger:
    """Instead of the one that writes to the console."""
    logger = logging.Logger("silent")
    logger.addHandler(logging.NullHandler())
    return logger


def materialisations(instance: dg.DagsterInstance, events: int) -> float:
    """Without a run."""
    began_s = time.perf_counter()
    for number in range(events):
        tags = {"dagster/data_version": str(number)}
        event = dg.AssetMaterialization(KEY, metadata=metadata(number), tags=tags)
        instance.report_runless_asset_event(event)
    return time.perf_counter() - began_s


def of_a_run(
    instance: dg.DagsterInstance, events: int, store: Callable[[dg.OpExecutionContext, int], None]
) -> float:
    """Seconds in a step that stores so many."""
    took_s = 0.0

    @dg.op
    def step(context: dg.OpExecutionContext) -> None:
        nonlocal took_s
        began_s = time.perf_counter()
        for number in range(events):
            store(context, number)
        took_s = time.perf_counter() - began_s

    @dg.job(executor_def=dg.in_process_executor, logger_defs={"silent": silent})
    def job() -> None:
        step()

    job.execute_in_process(instance=instance, run_config={"loggers": {"silent": {}}})
    return took_s


def observe(context: dg.OpExecutionContext, number: int) -> None:
    context.log_event(dg.AssetObservation(KEY, metadata=metadata(number)))


def log(context: dg.OpExecutionContext, number: int) -> None:
    context.log.warning("%s, line %d", LINE, number)


KINDS: Final[dict[str, Callable[[dg.DagsterInstance, int], float]]] = {
    "materialisation": materialisations,
    "observation": lambda instance, events: of_a_run(instance, events, observe),
    "log line": lambda instance, events: of_a_run(instance, events, log),
}


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measured(kind: str, events: int) -> dict[str, Any]:
    """In an instance of its own; a tenth of the events first, with which the files and tables are there.
    Sizes are those without an instance, which has files for what it has not merged yet."""
    with tempfile.TemporaryDirectory() as name:
        folder, seconds, sizes = Path(name), [], []
        for count in (max(1, events // 10), events):
            with dg.DagsterInstance.local_temp(name) as instance:
                seconds.append(KINDS[kind](instance, count))
            sizes.append(bytes_of(folder))
    kilobytes, ms = (sizes[1] - sizes[0]) / events / 1_000, 1_000 * seconds[1] / events
    return {"event": kind, "kB": round(kilobytes, 1), "ms": round(ms, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000, help="of each kind")
    events = parser.parse_args().events
    for kind in KINDS:
        print(json.dumps(measured(kind, events)), flush=True)


if __name__ == "__main__":
    main()
