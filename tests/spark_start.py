"""Makes Spark start with a third of the work, for tests: they start it some eighty times.

    python -m tests.spark_start        once for each environment; tests find the file by themselves

A JVM that lives for seconds gains nothing from its second compiler, and half of the rest is the loading of
classes, which an archive of them (JEP 350) has done before. Processor time of one start and one small job:
18.1 s, without the second compiler 9.7 s, with the archive 5.3 s (2 busy cores, Java 17, Spark 4.1).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"  # of exactly these paths, so it belongs to them
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"  # an archive that does not fit is not used


def prepare_environment() -> None:
    """For every Spark that this process and its children start."""
    archived = f" -XX:SharedArchiveFile={ARCHIVE} {SILENT}"
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK
    os.environ["SPARK_SUBMIT_OPTS"] = QUICK + (archived if ARCHIVE.exists() else "")


def make_archive() -> None:
    """By a session that loads the classes that tests need; Java writes the file when it ends."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK
    part = ARCHIVE.with_suffix(f".{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = (
        f"{QUICK} -XX:ArchiveClassesAtExit={part} -Xlog:cds=off -Xlog:cds+dynamic=off"
    )
    with (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate() as spark
    ):
        rows = spark.range(100).selectExpr("id", "id % 7 as key", "cast(id as string) as text")
        counted = rows.groupBy("key").agg({"id": "sum", "text": "max"}).join(rows, "key")
        assert len(counted.collect()) == 100
        assert spark.sparkContext.parallelize(range(8), 4).map(lambda n: (n % 2, n)).groupByKey().count() == 2
        process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    process.stdin.close()  # it ends with its input
    process.wait(timeout=120)
    part.rename(ARCHIVE)


if __name__ == "__main__":
    if not ARCHIVE.exists():
        make_archive()
