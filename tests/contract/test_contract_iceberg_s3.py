"""An Iceberg table in an object store, which its catalog gives the keys of."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from pyiceberg.catalog import load_catalog

from tests.unit.connector.iceberg.source_tables import delete_positions, find, numbers, paths, values
from unistream.connector.iceberg import IcebergSource
from unistream.testing.devtools.object_store import ACCESS_KEY, SECRET_KEY


def test_a_table_on_s3_is_read(s3: str, tmp_path: Path) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
        "warehouse": f"s3://unistream/iceberg/{uuid4().hex}",
        "s3.endpoint": f"http://{s3}",
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
        "s3.region": "us-east-1",
    }
    catalog = load_catalog("default", **properties)
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.rows", numbers().schema)
    table.append(numbers(*range(10)))
    delete_positions(table, paths(table)[0], 3, named=False)
    catalog.close()
    source = IcebergSource("lake.rows", catalog_properties=properties, filter=[("i", ">", 1)], split_bytes=1)
    assert values(source, find(source).splits) == [2, 4, 5, 6, 7, 8, 9]
