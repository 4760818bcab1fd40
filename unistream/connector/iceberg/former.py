"""Output that was staged for another table than the one that the sink writes to now."""

from __future__ import annotations

from unistream.base.errors import ConfigError, Unreachable
from unistream.connector.iceberg.catalog import TableAddress
from unistream.connector.iceberg.record import records
from unistream.connector.iceberg.stage import IcebergCommittable
from unistream.connector.iceberg.table import IcebergSinkTable
from unistream.port.sink import SinkContext


def not_in_former(
    tables: type[IcebergSinkTable],
    former: IcebergCommittable,
    address: TableAddress,
    context: SinkContext,
    checkpoint_id: int,
) -> str | None:
    """Why a checkpoint is not known to be committed to a former table; None: it is.

    Args:
        tables: Opens it.
        former: What was staged for it.
        address: Of the sink now; if it is in the same catalogue, its credentials serve.
        context: Of the committer.
        checkpoint_id: The checkpoint.
    """
    where = former.location
    if _catalog_of(former.address) == _catalog_of(address.text):
        properties = {**where.properties, **address.properties}
        where = TableAddress(catalog=former.catalog, table=former.table, properties=properties)
    try:
        with tables.opened(where) as lake:
            table = lake.load()
            if table is None:
                return "there is no table"
            last = records(former.address, table.metadata).get((context.lineage, context.sink_uid))
    except (ConfigError, Unreachable) as error:
        return str(error)
    done = 0 if last is None else last.checkpoint
    return None if done >= checkpoint_id else f"it has this sink's output up to checkpoint {done} only"


def _catalog_of(address: str) -> str:
    return address.partition(" in ")[2]
