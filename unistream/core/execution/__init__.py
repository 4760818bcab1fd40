"""Which subtasks run, when, and which restart together. Pure.

Decides: which bulks of subtasks are deployed (`region_scheduler`, by a `scheduling_strategy`), what a failure
restarts (`failover`, `failure_handler`) and when (`restart_backoff`), which stored partitions are kept
(`partition_tracker`). May import: `core.graph`, `core.resource`, `core.restore`, `core.contract`.
Start with `job_run` (one graph at one parallelism), then `execution` (states of an attempt).
"""

from __future__ import annotations

from unistream.core.execution.engine_region import EngineRegion
from unistream.core.execution.execution import EXECUTION_TRANSITIONS, REPORTABLE, parse_reported
from unistream.core.execution.executions import Execution, Executions
from unistream.core.execution.failover import create_failover
from unistream.core.execution.failure_handler import FailureDecision, FailureHandler, restart_verdict
from unistream.core.execution.job_run import JobRun
from unistream.core.execution.partition_tracker import PartitionTracker
from unistream.core.execution.recoveries import Recoveries, Recovery
from unistream.core.execution.region_scheduler import RegionScheduler
from unistream.core.execution.restart_backoff import Draw, restart_backoff_from_config
from unistream.core.execution.scheduling_strategy import Bulks, SchedulingStrategy, create_strategy
