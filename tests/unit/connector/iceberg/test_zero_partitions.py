"""-0.0 and 0.0 are two partitions, as in tables that Spark writes: a reader that looks for 0.0 passes one of
-0.0, so rows of both in one file would be lost to it, or would be read with the value of the first."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog

import unistream as us
from tests.unit.connector.iceberg import source_tables


def test_minus_zero_has_a_partition_of_its_own(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": (tmp_path / "w").as_uri()}
    load_catalog("lake", **properties).create_namespace("db")
    nan = math.nan
    rows = pa.table(
        {"id": list(range(8)), "f": pa.array([-0.0, 0.0, -0.0, 0.0, nan, -nan, None, 1.5], pa.float32())}
    )
    env = us.Environment({"parallelism.default": "1"})
    stream = env.from_collection(rows, name="rows")
    sink = us.IcebergSink("db.t", catalog="lake", catalog_properties=properties, partition_by="f")
    stream.sink_to(sink).uid("sink")
    with us.testing.MiniCluster() as cluster:
        cluster.execute(env)
    table = load_catalog("lake", **properties).load_table("db.t")
    by_file = {
        str(task.file.partition[0]): sorted(
            pq.ParquetFile(task.file.file_path.removeprefix("file://")).read(["id"])["id"].to_pylist()
        )
        for task in table.scan().plan_files()
    }
    assert by_file == {"-0.0": [0, 2], "0.0": [1, 3], "nan": [4, 5], "None": [6], "1.5": [7]}
    source = us.IcebergSource("db.t", catalog="lake", catalog_properties=properties, filter=[("f", "=", 0.0)])
    found = source_tables.read(source, source_tables.find(source).splits)
    assert sorted((row["id"], str(row["f"])) for row in found) == [
        (0, "-0.0"),
        (1, "0.0"),
        (2, "-0.0"),
        (3, "0.0"),
    ]
