"""Finds the split discovery of a connector by name, for the master, which does not run user code.

Only names in the table below, and those that an installed package declares in the entry-point group
``unistream.connectors`` (name = "module:function"), can be loaded. A connector is imported at its first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from unistream.base.errors import ConfigError
from unistream.base.plugins import known, load
from unistream.model.graph import SourceInfo
from unistream.port.source import SplitDiscovery

ENTRY_POINT_GROUP: Final = "unistream.connectors"

CONNECTORS: Final = {
    "datagen": "unistream.connector.datagen:create_discovery",
    "delta": "unistream.connector.delta:create_discovery",
    "file": "unistream.connector.file:create_discovery",
    "hybrid": "unistream.connector.hybrid:create_discovery",
    "iceberg": "unistream.connector.iceberg:create_discovery",
    "kafka": "unistream.connector.kafka:create_discovery",
    "sql": "unistream.connector.sql:create_discovery",
    "static": "unistream.connector.static:create_discovery",
}

DiscoveryFactory = Callable[[SourceInfo], SplitDiscovery]


def known_connectors() -> dict[str, str]:
    """Name -> "module:function". A built-in name cannot be replaced by an installed package."""
    return known(ENTRY_POINT_GROUP, CONNECTORS)


def create_discovery(info: SourceInfo) -> SplitDiscovery:
    """The discovery that lists the splits of `info`.

    Raises:
        ConfigError: no connector of that name is installed, it cannot be imported, or it refuses the
            options.
    """
    targets = known_connectors()
    target = targets.get(info.connector)
    if target is None:
        raise ConfigError(
            f"unknown connector {info.connector!r}; known are {', '.join(sorted(targets))} "
            f"(others come with packages that declare the entry point group {ENTRY_POINT_GROUP!r})"
        )
    return cast(DiscoveryFactory, load(info.connector, target))(info)
