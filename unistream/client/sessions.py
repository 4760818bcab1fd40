"""The folders of session clusters: `$UNISTREAM_HOME/sessions/<name>`, unless the user names another one.

A cluster that is started without a folder has the one of its name (`high-availability.cluster-id`), and goes
on with the jobs that it finds there. While that cluster runs, a further one without a name has the next free
folder: `default-2`, `default-3`, … One with a name is refused then: who names a cluster means that one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from unistream.base.config import HA_CLUSTER_ID, HA_TYPE, Configuration
from unistream.base.errors import ConfigError, FolderInUse
from unistream.client import home
from unistream.client.home import ClusterEntry
from unistream.ha.single_node import holder

FOLDER: Final = "sessions"
CLUSTERS_MAX: Final = 100  # that run at the same time without a name, on one machine and for one user

T = TypeVar("T")


def in_session_folder(config: Configuration, start: Callable[[Path], T]) -> T:
    """What `start` makes of the first folder that no running cluster has.

    Args:
        config: Of the cluster.
        start: Starts it on a folder; raises FolderInUse if another one has it.

    Raises:
        ConfigError: a cluster of this name runs, and the name was chosen by the user.
    """
    name, is_shared = config.get(HA_CLUSTER_ID), config.get(HA_TYPE) != HA_TYPE.default
    is_named = HA_CLUSTER_ID.key in config.to_dict() and not is_shared  # several masters are one cluster
    for number in range(1, CLUSTERS_MAX + 1):
        folder = session_folder(name, number)
        try:
            return start(folder)
        except FolderInUse as error:
            if is_named:
                raise ConfigError(_why_refused(name, folder, error.pid)) from error
    raise ConfigError(
        f"{CLUSTERS_MAX} clusters run on folders in {folder.parent}; end one with 'unistream cluster stop', "
        "or choose a folder with --workdir"
    )


def session_folder(name: str, number: int = 1) -> Path:
    """Of the cluster `name`, or of the `number`-th one that has no other name."""
    return home.home() / FOLDER / (name if number == 1 else f"{name}-{number}")


def running_in(name: str) -> ClusterEntry | None:
    """The running cluster whose session folder is `name`; None: there is none."""
    if not name or "/" in name or name.startswith("."):
        return None
    pid = holder(session_folder(name))
    return None if pid is None else next((entry for entry in home.clusters() if entry.pid == pid), None)


def _why_refused(name: str, folder: Path, pid: int | None) -> str:
    entry = next((entry for entry in home.clusters() if entry.pid == pid), None)
    where = "" if entry is None else f" at {entry.url}"
    who = "" if pid is None else f" (process {pid}{where})"
    return (
        f"the cluster {name!r} runs already{who} and has {folder}; end it with 'unistream cluster stop "
        f"{name}', or start this one under another {HA_CLUSTER_ID.key}"
    )
