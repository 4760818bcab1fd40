"""Where the workers of an embedded cluster run, by the name of the target."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from unistream.base.config import (
    JOBMANAGER_ADDRESS,
    JOBMANAGER_BIND,
    JOBMANAGER_PORT,
    SPARK_MASTER,
    STANDALONE_PORT,
    Configuration,
)
from unistream.base.errors import ConfigError
from unistream.base.extras import is_installed, require
from unistream.base.hosts import is_loopback
from unistream.port.host import HostTraits, WorkerHost

if TYPE_CHECKING:  # they load what a program needs later, while its workers start
    from unistream.host.echo import Echo
    from unistream.master.service import HostFactory
    from unistream.port.engine import BatchEngine

SPARK: Final = "spark"
LOCAL: Final = "local"
TARGETS: Final = (SPARK, LOCAL)
"""Targets of an embedded cluster. "remote" is a cluster of another process."""
STANDALONE: Final = "standalone"
_CONNECT_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"
SPARK_WORKERS_MAX: Final = 64  # of a local[*] Spark: threads that wait, not cores

logger = logging.getLogger(__name__)


def default_target() -> str:
    """Where a job runs without a target: Spark, or child processes if Spark is not installed, or if the
    program uses Spark Connect, which cannot host workers."""
    return SPARK if is_installed(SPARK) and not _uses_connect() else LOCAL


def chosen_target(target: str | None) -> str:
    """`target`, or the default one; a warning says why that is not Spark."""
    if target is not None:
        return target
    chosen = default_target()
    if chosen == LOCAL:
        why = 'Spark is not installed (pip install "unistream[spark]")'
        if is_installed(SPARK):
            why = "this program uses Spark Connect, which cannot host workers"
        logger.warning("event=default_target target=local: %s, so workers are child processes", why)
    return chosen


def _uses_connect() -> bool:
    """Whether Spark Connect is used. The environment is asked, where pyspark notes it, since its import takes
    a second."""
    return _CONNECT_MODE in os.environ


def warm_up(target: str, config: Configuration) -> None:
    """Has the libraries of the workers loaded while this process loads its own; returns at once."""
    if target == LOCAL:
        from unistream.host.local import warm_up

        warm_up(config)


def settled(target: str, config: Configuration) -> Configuration:
    """The configuration with what `spark-submit` says where it is silent: the master, and by which address
    executors reach the driver, which is this process."""
    if target != SPARK:
        return config
    require(SPARK, "the target spark")
    from unistream.host.spark_master import submitted_settings
    from unistream.host.spark_settings import DRIVER_HOST

    given, found = config.to_dict(), dict[str, str]()
    known = submitted_settings() | given
    if SPARK_MASTER.key in known:
        found[SPARK_MASTER.key] = known[SPARK_MASTER.key]
    if DRIVER_HOST in known and not is_loopback(config.get(JOBMANAGER_BIND)):
        found[JOBMANAGER_ADDRESS.key] = given.get(JOBMANAGER_ADDRESS.key, known[DRIVER_HOST])
    return config.merged(found)


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


def engine_factory(target: str) -> Callable[[WorkerHost], BatchEngine] | None:
    """Makes the engine of BATCH jobs next to the target's host; None: the target has none."""
    if target != SPARK:
        return None

    def create(host: WorkerHost) -> BatchEngine:
        from unistream.host.spark import SparkHost
        from unistream.host.spark_engine import SparkEngine

        assert isinstance(host, SparkHost), f"the target {target} has a host of its own"
        return SparkEngine(host.application)

    return create


def host_traits(target: str, config: Configuration) -> HostTraits:
    """What the target's host can do."""
    from unistream.host.machine import machine_profile

    if target == STANDALONE:
        return HostTraits(active=False)
    if target == SPARK and not _is_local_spark(config):
        return HostTraits(many_machines=True)  # only Spark knows how large its executors are
    return HostTraits(largest=machine_profile())


def _is_local_spark(config: Configuration) -> bool:
    """Whether Spark's master is a local one: that of the program's own Spark context, if it has one, where
    its workers run."""
    from unistream.host.spark_master import actual_master, is_local

    return is_local(actual_master(config.get(SPARK_MASTER)))


def control_port(target: str, config: Configuration) -> int:
    """The master's port, at which workers register; 0: any free one."""
    port = config.find(JOBMANAGER_PORT)
    if port is None:
        return STANDALONE_PORT if target == STANDALONE else 0
    return port


def workers_max(target: str) -> int | None:
    """How many workers a target can host at the same time; None: no limit of its own."""
    return SPARK_WORKERS_MAX if target == "spark" else None
