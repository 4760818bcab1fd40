"""Spark with the jars of Delta and Iceberg: answers the statements of its standard input, one line for each.

It runs in an environment of its own (`tests.support.spark_tables`), so it imports nothing of ours.

    python process.py JARS WAREHOUSE JDBC_URL
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

SHOWN = 1_500  # characters of an error


def session(jars: str, warehouse: str, uri: str) -> SparkSession:
    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    )
    builder = SparkSession.builder.master("local[1]").appName("tables")
    for key, value in {
        "spark.driver.extraClassPath": ":".join(str(jar) for jar in sorted(Path(jars).glob("*.jar"))),
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{warehouse}/spark",
        "spark.sql.extensions": ",".join(extensions),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "spark.sql.catalog.lake.uri": uri,
        "spark.sql.catalog.lake.warehouse": warehouse,
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.cache-enabled": "false",
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def answer(spark: SparkSession, statement: str, file: str | None) -> None:
    """The rows of the statement go to a file, in Arrow's format."""
    frame = spark.sql(statement)
    if file is not None:
        rows = frame.toArrow()
        with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)


def main(words: list[str]) -> None:
    spark = session(*words)
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"error": None}), flush=True)
    for line in sys.stdin:
        try:
            answer(spark, *json.loads(line))
        except Exception as error:
            print(json.dumps({"error": str(error)[:SHOWN]}), flush=True)
        else:
            print(json.dumps({"error": None}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
