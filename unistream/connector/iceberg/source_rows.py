"""Rows of a whole Iceberg table, for commands, by the reader of `IcebergSource`."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa

from unistream.connector.common import decoded_split
from unistream.connector.iceberg.catalog import TableAddress
from unistream.connector.iceberg.source import IcebergSource, create_discovery
from unistream.connector.iceberg.source_read import Decoder
from unistream.connector.iceberg.source_split import IcebergSplit


def read_rows(address: TableAddress) -> pa.Table:
    """All rows of the newest snapshot. Raises as `IcebergSource`."""
    source = IcebergSource(address.table, catalog=address.catalog, catalog_properties=address.properties)
    decoder = Decoder(source.spec())
    with closing(create_discovery(source.info())) as discovery:
        splits = [decoded_split(split, IcebergSplit, "Iceberg") for split in discovery.discover()]
    batches = [chunk.records for split in splits for chunk in decoder.decode(split)]
    return pa.Table.from_batches(batches, source.schema)
