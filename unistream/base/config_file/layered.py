"""The options of a program: those that it was given, above those that surround it (file and variables)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from unistream.base.config import (
    HA_TYPE,
    JOBMANAGER_PORT,
    REST_ADDRESS,
    REST_PORT,
    REST_TLS,
    Configuration,
    names_cluster,
)

OF_JOBS: Final = (
    "parallelism.",
    "pipeline.",
    "execution.",
    "sink.",
    "state.",
    "restart-strategy.",
    "dagster.",
)
"""Beginnings of the options that say how a job runs, which its client decides. All others are of processes:
those of a cluster have the values of that cluster."""


@dataclass(frozen=True, slots=True)
class LayeredConfig:
    """Two levels, of which `given` counts first.

    Attributes:
        given: By the program: `Environment(…)`, `-D`, Dagster.
        around: From config.yaml and variables of the environment.

    >>> file = Configuration({"rest.port": 8081, "sink.committer.retries": 4, "taskmanager.cpu.cores": 2})
    >>> both = LayeredConfig(Configuration({"parallelism.default": 3}), file)
    >>> both.travelling().to_dict()
    {'sink.committer.retries': '4', 'parallelism.default': '3'}
    >>> both.own_cluster().to_dict()
    {'sink.committer.retries': '4', 'taskmanager.cpu.cores': '2', 'parallelism.default': '3'}
    """

    given: Configuration
    around: Configuration = field(default_factory=Configuration)

    def whole(self) -> Configuration:
        """All of it: of a session cluster, or of a command."""
        return self.around.merged(self.given.to_dict())

    def as_client(self) -> Configuration:
        """All of it, to look for a cluster: a port that was given names the cluster, although a file names
        one of several masters."""
        given = self.given.to_dict()
        names_one = REST_PORT.key in given and HA_TYPE.key not in given
        of_another = {HA_TYPE.key} if names_one else set()
        if names_one and REST_ADDRESS.key in given:
            of_another.add(REST_TLS.key)
        around = {key: value for key, value in self.around.to_dict().items() if key not in of_another}
        return Configuration(around).merged(given)

    def own_cluster(self) -> Configuration:
        """All of it for a cluster that is started for one job: what surrounds the program names the session
        cluster, whose ports and id a second cluster cannot have."""
        around = {k: v for k, v in self.around.to_dict().items() if not is_of_one_cluster(k)}
        return Configuration(around).merged(self.given.to_dict())

    def travelling(self) -> Configuration:
        """What goes to the cluster with a job."""
        around = {k: v for k, v in self.around.to_dict().items() if is_of_jobs(k)}
        return Configuration(around).merged(self.given.to_dict())

    def with_given(self, more: Configuration) -> LayeredConfig:
        """A copy with more that the program was given, which counts first."""
        return LayeredConfig(self.given.merged(more.to_dict()), self.around)


def is_of_jobs(key: str) -> bool:
    """The client that submits a job decides it; else the process that it configures."""
    return key.startswith(OF_JOBS)


def is_of_one_cluster(key: str) -> bool:
    """It names a cluster, or says where that listens for clients, or is a port of which there is one."""
    return names_cluster(key) or key.startswith("rest.") or key == JOBMANAGER_PORT.key
