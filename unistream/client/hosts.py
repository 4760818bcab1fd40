"""Where the workers of an embedded cluster run, by the name of the target."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from unistream.base.config import JOBMANAGER_PORT, SPARK_MASTER, STANDALONE_PORT, Configuration
from unistream.base.errors import ConfigError
from unistream.base.extras import is_installed, require
from unistream.host.echo import Echo
from unistream.master.resource_manager import HostFactory
from unistream.port.engine import BatchEngine
from unistream.port.host import HostTraits, WorkerHost

SPARK: Final = "spark"
LOCAL: Final = "local"
TARGETS: Final = (SPARK, LOCAL)
"""Targets of an embedded cluster. "remote" is a cluster of another process."""
STANDALONE: Final = "standalone"
SPARK_WORKERS_MAX: Final = 64  # of a local[*] Spark: threads that wait, not cores

logger = logging.getLogger(__name__)


def default_target() -> str:
    """Where a job runs without a target: Spark, or child processes if Spark is not installed."""
    return SPARK if is_installed(SPARK) else LOCAL


def chosen_target(target: str | None) -> str:
    """`target`, or the default one; a warning says if that is because Spark is not installed."""
    if target is not None:
        return target
    chosen = default_target()
    if chosen == LOCAL:
        logger.warning(
            'event=default_target target=local: Spark is not installed (pip install "unistream[spark]"), so '
            "workers are child processes"
        )
    return chosen


def host_factory(target: str, config: Configuration, echo: Echo | None = None) -> HostFactory:
    """Creates the target's host when the cluster starts. `echo`: prints the output of child processes.

    Raises:
        ConfigError: an unknown target, or Spark is not installed.
    """
    match target:
        case "local":
            from unistream.host.local import LocalProcessHost

            return partial(LocalProcessHost, echo=echo)
        case "spark":
            require(SPARK, "the target spark")
            from unistream.host.spark import SparkHost

            master = config.get(SPARK_MASTER)
            return partial(SparkHost, master=master, workers_max=SPARK_WORKERS_MAX, config=config.to_dict())
        case "standalone":
            from unistream.host.standalone import StandaloneHost

            return StandaloneHost
    raise ConfigError(f"target {target!r} is not one of {', '.join(TARGETS)}, {STANDALONE}, remote")


def engine_factory(target: str, config: Configuration) -> Callable[[WorkerHost], BatchEngine] | None:
    """Makes the engine of BATCH jobs next to the target's host; None: the target has none."""
    if target != SPARK:
        return None

    def create(host: WorkerHost) -> BatchEngine:
        from unistream.host.spark import SparkHost
        from unistream.host.spark_engine import SparkEngine

        assert isinstance(host, SparkHost), f"the target {target} has a host of its own"
        return SparkEngine(host.application, config.get(SPARK_MASTER))

    return create


def host_traits(target: str, config: Configuration) -> HostTraits:
    """What the target's host can do."""
    from unistream.host.machine import machine_profile

    if target == STANDALONE:
        return HostTraits(active=False)
    if target == "spark" and not config.get(SPARK_MASTER).startswith("local"):
        return HostTraits(many_machines=True)  # only Spark knows how large its executors are
    return HostTraits(largest=machine_profile())


def control_port(target: str, config: Configuration) -> int:
    """Of the master, where workers register; 0: any free one."""
    port = config.find(JOBMANAGER_PORT)
    if port is None:
        return STANDALONE_PORT if target == STANDALONE else 0
    return port


def workers_max(target: str) -> int | None:
    """How many workers a target can host at the same time; None: no limit of its own."""
    return SPARK_WORKERS_MAX if target == "spark" else None
