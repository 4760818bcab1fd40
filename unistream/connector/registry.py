"""Finds the discovery of a connector by name, as the master does: from data, without user code.

Only names in the table below, and those that an installed package declares in the entry-point group
``unistream.connectors`` (name = "module:function"), can be loaded. A connector is imported when it is
first asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final, cast

from unistream.base.errors import ConfigError
from unistream.model.graph import SourceInfo
from unistream.port.source import SplitDiscovery

ENTRY_POINT_GROUP: Final = "unistream.connectors"

CONNECTORS: Final = {
    "datagen": "unistream.connector.datagen:create_discovery",
    "file": "unistream.connector.file:create_discovery",
    "kafka": "unistream.connector.kafka:create_discovery",
    "static": "unistream.connector.static:create_discovery",
}

DiscoveryFactory = Callable[[SourceInfo], SplitDiscovery]


def known_connectors() -> dict[str, str]:
    """Name -> "module:function". A built-in name cannot be replaced by an installed package."""
    installed = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
    return {**installed, **CONNECTORS}


def create_discovery(info: SourceInfo) -> SplitDiscovery:
    """The discovery that lists the splits of `info`.

    Raises:
        ConfigError: no connector of that name is installed, it cannot be imported, or it refuses the
            options.
    """
    known = known_connectors()
    target = known.get(info.connector)
    if target is None:
        raise ConfigError(
            f"unknown connector {info.connector!r}; known are {', '.join(sorted(known))} "
            f"(others come with packages that declare the entry point group {ENTRY_POINT_GROUP!r})"
        )
    return _load(info.connector, target)(info)


def _load(name: str, target: str) -> DiscoveryFactory:
    module, _, function = target.partition(":")
    try:
        factory = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"connector {name!r} cannot be loaded from {target!r}: {error}") from error
    return cast(DiscoveryFactory, factory)
