"""Tools for tests of pipelines. `simulate` runs one in a simulated cluster, under faults."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from unistream.testing.sim.faults import Faults
    from unistream.testing.simulation import Difference, SeedFailure, SimulationReport, simulate

_HOME_OF: Final = {
    "Difference": "unistream.testing.simulation",
    "Faults": "unistream.testing.sim.faults",
    "SeedFailure": "unistream.testing.simulation",
    "SimulationReport": "unistream.testing.simulation",
    "simulate": "unistream.testing.simulation",
}

__all__ = ["Difference", "Faults", "SeedFailure", "SimulationReport", "simulate"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'unistream.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
