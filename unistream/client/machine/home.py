"""Which clusters run on this machine for this user: one small file each, below `$UNISTREAM_HOME`.

    <home>/config.yaml          the configuration, if the user has written one (`.surroundings`)
    <home>/clusters/<id>.json   0600; removed when the cluster ends
    <home>/sessions/<name>/     the folder of a session cluster, unless it is given one; it stays
    <home>/backfills/           journals of backfills
    <home>/runs/<id>/           the folder of a cluster for one job
    <home>/metadata.db          the history of all clusters of this user, unless they are given another one

`$UNISTREAM_HOME` is `~/.unistream` unless set. An entry whose process has ended is removed.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from unistream.base import process_mark
from unistream.base.config import METADATA_URL, Configuration
from unistream.base.errors import UNDECODABLE, ConfigError
from unistream.base.ids import NO_CLUSTER, ClusterId
from unistream.base.secrets import Secret, resolved

HOME_VARIABLE = "UNISTREAM_HOME"
BACKFILLS = "backfills"
"""Folder in it: journals of backfills."""

logger = logging.getLogger(__name__)


class ClusterEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One running cluster.

    Attributes:
        id: Of its process.
        cluster: Its own, which it keeps when it is started again; "": it is not known.
        started: The start time of the process `pid` in clock ticks since boot ("" where the system does not
            provide it): a process that reuses the pid has another one.
        session: It goes on when a job has ended; False: it was started for one job.
        token: Of its owner, for its REST API; "": it needs none.
        control: Where standalone workers register; "": it has none.
        workers: What they present there.
        roots: The authorities of its REST API, PEM; "": that is not encrypted.
    """

    id: str
    url: str
    pid: int
    target: str
    started_ms: int
    started: str = ""
    session: bool = True
    cluster: ClusterId = NO_CLUSTER
    token: Secret = Secret("")
    control: str = ""
    workers: Secret = Secret("")
    roots: str = ""

    def is_named(self, text: str) -> bool:
        """`text` is the beginning of one of its ids."""
        return any(known.startswith(text.lower()) for known in (self.id, self.cluster) if known)


def place() -> Path:
    """Where `home` is, or will be."""
    return Path(os.environ.get(HOME_VARIABLE) or Path.home() / ".unistream")


def home() -> Path:
    """Created when it is first needed, for this user only."""
    folder = place()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot create {folder}: {error.strerror}; set {HOME_VARIABLE} to a writable folder"
        ) from error
    return folder


def is_named() -> bool:
    """The folder is that which a variable of the environment names."""
    return bool(os.environ.get(HOME_VARIABLE))


def metadata_url(config: Configuration) -> str:
    """Where clusters with this configuration keep their history. Raises ConfigError: `home` cannot be
    made, or the URL refers to a secret that is not there."""
    given = config.find(METADATA_URL)
    return resolved(METADATA_URL.key, given) if given else f"sqlite:///{home().absolute() / 'metadata.db'}"


def register(
    id_: str,
    *,
    url: str,
    target: str,
    now_ms: int,
    session: bool = True,
    cluster: ClusterId = NO_CLUSTER,
    token: str = "",
    control: str = "",
    workers: str = "",
    roots: str = "",
) -> Path:
    """Adds the entry of this process's cluster; returns its file."""
    pid = os.getpid()
    entry = ClusterEntry(
        id=id_,
        url=url,
        pid=pid,
        target=target,
        started_ms=now_ms,
        started=_start_of(pid) or "",
        session=session,
        cluster=cluster,
        token=Secret(token),
        control=control,
        workers=Secret(workers),
        roots=roots,
    )
    folder = home() / "clusters"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{id_}.json"
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(entry))
    temporary.replace(path)
    return path


def clusters() -> list[ClusterEntry]:
    """Running clusters, oldest first. Entries of processes that have ended are removed."""
    found: list[ClusterEntry] = []
    for path in sorted((home() / "clusters").glob("*.json")):
        entry = _read(path)
        if entry is not None and is_running(entry):
            found.append(entry)
        else:
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda entry: entry.started_ms)


def _read(path: Path) -> ClusterEntry | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterEntry)
    except (OSError, *UNDECODABLE) as error:
        logger.warning("event=cluster_entry_unreadable path=%s reason=%r", path, error)
        return None


def is_running(entry: ClusterEntry) -> bool:
    """Its process has not ended."""
    start = _start_of(entry.pid)
    return start is not None and entry.started in ("", start)


def successor(entry: ClusterEntry) -> ClusterEntry | None:
    """The same cluster, started again here after the process of `entry` has ended; None: it does not run."""
    return entry_of(entry.cluster)


def entry_of(cluster: ClusterId) -> ClusterEntry | None:
    """Where that cluster runs here now; None: it does not, or its id is not known."""
    return next((one for one in reversed(clusters()) if cluster and one.cluster == cluster), None)


def _start_of(pid: int) -> str | None:
    """Start time of a running process; "" where the system does not provide it; None: not running."""
    start = process_mark.start_of(pid)
    return "" if start is None and not Path("/proc/self").exists() and _exists(pid) else start


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
