"""`simulate`: a user's own pipeline in a simulated cluster, under faults.

`seeds` runs many seeds and shrinks the first failure, `run` is one run, `truth` checks kept sinks, `report`
is what the user reads. May import: `testing.sim`. Start with `seeds`.
"""

from __future__ import annotations

from unistream.testing.simulation.report import Difference, SeedFailure, SimulationReport
from unistream.testing.simulation.seeds import simulate
