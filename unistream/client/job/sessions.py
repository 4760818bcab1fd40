"""The folders of session clusters: `$UNISTREAM_HOME/sessions/<name>`, unless the user names another one.

A cluster that is started without a folder has the one of its name (`high-availability.cluster-id`), and goes
on with the jobs that it finds there. While that cluster runs, a further one without a name has the next free
folder: `default-2`, `default-3`, … One with a name is refused then: who names a cluster means that one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from unistream.base.config import HA_CLUSTER_ID, REST_PORT, Configuration
from unistream.base.errors import ConfigError, FolderInUse, NotFound
from unistream.base.servers import ZOOKEEPER_SCHEME, parse_cluster_id
from unistream.client.job.lookup import ID_PREFIX_CHARS_MIN
from unistream.client.job.submission import connect
from unistream.client.machine import home
from unistream.client.machine.home import ClusterEntry
from unistream.client.remote.address import is_elected, url_of
from unistream.client.remote.rest_client import RestClient, timeout_s

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
    name, is_shared = config.get(HA_CLUSTER_ID), is_elected(config)
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
    """The folder of the cluster `name`, or of the `number`-th one that has no other name."""
    return home.home() / FOLDER / (name if number == 1 else f"{name}-{number}")


def running_in(name: str) -> ClusterEntry | None:
    """The running cluster whose session folder is `name`; None: there is none."""
    from unistream.ha.single_node import holder  # late: see `client.leftovers`

    pid = holder(session_folder(name)) if _is_name(name) else None
    return None if pid is None else next((entry for entry in home.clusters() if entry.pid == pid), None)


def find_cluster(config: Configuration, text: str | None) -> tuple[RestClient, ClusterEntry | None] | None:
    """A cluster that was named, and its entry if it runs on this machine for this user; the caller closes it.

    Args:
        config: Its `rest.port` names a cluster, if `text` does not.
        text: The name of a session, the first 4 or more characters of a cluster's id, or its address; None:
            the session cluster of this machine.

    Returns:
        None: no session cluster runs here, or the one of that name does not run.

    Raises:
        NotFound: there never was one of that name.
        ConfigError: it could be several, or has several masters.
    """
    limit_s = timeout_s(config)
    if text is None and config.get(REST_PORT):
        return connect(config), None
    if is_elected(config) or (text or "").lower().startswith(ZOOKEEPER_SCHEME):
        raise ConfigError(
            "a cluster of several masters is not ended by one request: end each master by a signal, or by -m "
            "HOST:PORT of the one that leads; the others go on with the jobs, which 'unistream stop' ends"
        )
    if text is not None and ":" in text:
        url = url_of(text)
        return RestClient(url, timeout_s=limit_s), next((e for e in home.clusters() if e.url == url), None)
    entry = _only_session() if text is None else _entry_of(text)
    return None if entry is None else (RestClient(entry.url, timeout_s=limit_s), entry)


def other_sessions(url: str | None) -> list[str]:
    """Addresses of the session clusters of this machine that are not at `url`."""
    return [entry.url for entry in home.clusters() if entry.session and entry.url != url]


def _only_session() -> ClusterEntry | None:
    found = [entry for entry in home.clusters() if entry.session]
    if len(found) > 1:
        urls = ", ".join(
            f"{(entry.cluster or entry.id)[:8]} at {entry.url} ({entry.target})" for entry in found
        )
        raise ConfigError(f"several clusters run here: {urls}; name one of them")
    return found[0] if found else None


def _entry_of(text: str) -> ClusterEntry | None:
    named = running_in(text)
    if named is not None:
        return named
    is_prefix = len(text) >= ID_PREFIX_CHARS_MIN
    found = [entry for entry in home.clusters() if is_prefix and entry.is_named(text)]
    if len(found) > 1:
        raise ConfigError(f"{text!r} matches {len(found)} clusters; give more of the id")
    if not found and not (_is_name(text) and session_folder(text).is_dir()):
        raise NotFound(f"there is no cluster {text!r} here; 'unistream list' shows where jobs run")
    return found[0] if found else None


def _is_name(text: str) -> bool:
    """It can be the name of a session folder."""
    try:
        return parse_cluster_id(text) == text
    except ConfigError:
        return False


def _why_refused(name: str, folder: Path, pid: int | None) -> str:
    entry = next((entry for entry in home.clusters() if entry.pid == pid), None)
    where = "" if entry is None else f" at {entry.url}"
    who = "" if pid is None else f" (process {pid}{where})"
    return (
        f"the cluster {name!r} runs already{who} and has {folder}; end it with 'unistream cluster stop "
        f"{name}', or start this one under another {HA_CLUSTER_ID.key}"
    )
