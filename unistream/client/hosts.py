"""Where the workers of an embedded cluster run, by the name of the target."""

from __future__ import annotations

from typing import Final

from unistream.base.config import SPARK_MASTER, Configuration
from unistream.base.errors import ConfigError
from unistream.master.resource_manager import HostFactory
from unistream.port.host import LostListener, WorkerHost

DEFAULT_TARGET: Final = "spark"
TARGETS: Final = ("spark", "local")
"""Targets of an embedded cluster. "remote" is a cluster of another process."""

SPARK_WORKERS_MAX: Final = 64  # places for workers in a local[*] Spark, not cores: threads that wait


def host_factory(target: str, config: Configuration) -> HostFactory:
    """Makes the target's host when the cluster starts.

    Raises:
        ConfigError: an unknown target.
    """
    match target:
        case "local":
            return _local
        case "spark":
            return lambda on_lost: _spark(on_lost, config)
    raise ConfigError(f"target {target!r} is not one of {', '.join(TARGETS)}, remote")


def workers_max(target: str) -> int | None:
    """How many workers a target can host at the same time; None: no limit of its own."""
    return SPARK_WORKERS_MAX if target == "spark" else None


def _local(on_lost: LostListener) -> WorkerHost:
    from unistream.host.local import LocalProcessHost

    return LocalProcessHost(on_lost)


def _spark(on_lost: LostListener, config: Configuration) -> WorkerHost:
    from unistream.host.spark import SparkHost

    return SparkHost(
        on_lost,
        master=config.get(SPARK_MASTER),
        workers_max=SPARK_WORKERS_MAX,
        config=config.to_dict(),
    )
