"""What `unistream.testing` offers: the only list of it, read by type checkers and by the package itself."""

from unistream.testing.harness import (
    BroadcastProcessFunctionHarness,
    KeyedBatchFunctionHarness,
    KeyedProcessFunctionHarness,
    OperatorHarness,
    PollingSourceHarness,
    ProcessFunctionHarness,
    SimpleSinkHarness,
    restore_state,
)
from unistream.testing.mini_cluster import MiniCluster
from unistream.testing.sim.faults import Faults
from unistream.testing.simulation import Difference, SeedFailure, SimulationReport, simulate

__all__ = [
    "BroadcastProcessFunctionHarness",
    "Difference",
    "Faults",
    "KeyedBatchFunctionHarness",
    "KeyedProcessFunctionHarness",
    "MiniCluster",
    "OperatorHarness",
    "PollingSourceHarness",
    "ProcessFunctionHarness",
    "SeedFailure",
    "SimpleSinkHarness",
    "SimulationReport",
    "restore_state",
    "simulate",
]
