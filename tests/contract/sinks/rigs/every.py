"""All rigs. (Each alone is imported without the libraries of the others.)"""

from __future__ import annotations

from tests.contract.sinks.rig import Rig
from tests.contract.sinks.rigs.delta import DeltaRig
from tests.contract.sinks.rigs.file import FileRig
from tests.contract.sinks.rigs.iceberg import IcebergRig
from tests.contract.sinks.rigs.kafka import KafkaRig
from tests.contract.sinks.rigs.sql import PostgresRig, SqliteRig

RIGS: dict[str, type[Rig]] = {
    "delta": DeltaRig,
    "iceberg": IcebergRig,
    "files": FileRig,
    "sqlite": SqliteRig,
    "postgresql": PostgresRig,
    "kafka": KafkaRig,
}
