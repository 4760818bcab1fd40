"""Links between runs of an orchestrator and jobs: those of a cluster, or of the history on this machine.

Heartbeats are stamped by the clock of the process that writes the database: the cluster's leader, or this
process if the job's cluster lives in the process of the run.
"""

from __future__ import annotations

from typing import Protocol
from urllib.parse import quote

import msgspec

from unistream.base.clock import SystemClock
from unistream.base.closing import Closing
from unistream.base.config import Configuration
from unistream.base.ids import JobId
from unistream.client.job.submission import connect
from unistream.client.machine.job_history import history_store
from unistream.client.remote.answers import decode
from unistream.client.remote.http import Response
from unistream.client.remote.policy import CallKind
from unistream.client.remote.rest_client import RestClient
from unistream.master.store import StampedLinks
from unistream.metadata.store import SqlMetadataStore
from unistream.port.run_links import RunLink, SeenLink, Watcher

PATH = "/unistream/run-links"


class LinkStore(Protocol):
    """See `unistream.port.run_links.RunLinks`. Thread-safe.

    Raises:
        Unreachable: from any method: the cluster or the database does not answer in time.
        ConfigError: from any method: it cannot be used, or a text is too long.
    """

    def attach(self, key: str, job: JobId, watcher: Watcher) -> RunLink: ...

    def heartbeat(self, key: str, watcher: Watcher) -> bool: ...

    def release(self, key: str, watcher: Watcher) -> bool: ...

    def take_over(self, key: str, watcher: Watcher, *, silent_ms: int) -> RunLink | None: ...

    def find(self, key: str) -> SeenLink: ...

    def of_job(self, job: JobId) -> list[RunLink]: ...

    def close(self) -> None: ...


def open_links(config: Configuration, target: str, *, timeout_s: float) -> LinkStore | None:
    """The links of the jobs of this target; the caller closes them.

    Args:
        config: Which cluster, or which history.
        target: "remote": of a cluster; else of the history on this machine.
        timeout_s: Longest duration of a call to a cluster, with all its repetitions.

    Returns:
        None: there is no history on this machine yet.

    Raises:
        Unreachable: no cluster runs here, or the database does not answer.
        ConfigError: the database cannot be used, or several clusters run here.
    """
    if target == "remote":
        return RemoteLinks(connect(config), timeout_s)
    store = history_store(config)
    return None if store is None else LocalLinks(store)


class LocalLinks(StampedLinks, Closing):
    """The links in a database, which is closed with this; this process's clock stamps them."""

    def __init__(self, store: SqlMetadataStore) -> None:
        super().__init__(store.links, SystemClock())
        self._store = store

    def close(self) -> None:
        self._store.close()


class _OfJob(msgspec.Struct, frozen=True):
    """What of the answer is needed here."""

    links: list[RunLink]


class RemoteLinks(Closing):
    """The links that a cluster keeps; the connection is closed with this. `timeout_s`: longest duration of a
    call."""

    def __init__(self, cluster: RestClient, timeout_s: float) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    def attach(self, key: str, job: JobId, watcher: Watcher) -> RunLink:
        return decode(self._sent("attach", key, watcher, job=job), RunLink)

    def heartbeat(self, key: str, watcher: Watcher) -> bool:
        return decode(self._sent("heartbeat", key, watcher), dict[str, bool])["own"]

    def release(self, key: str, watcher: Watcher) -> bool:
        return decode(self._sent("release", key, watcher), dict[str, bool])["own"]

    def take_over(self, key: str, watcher: Watcher, *, silent_ms: int) -> RunLink | None:
        answer = self._sent("take-over", key, watcher, silent_ms=silent_ms)
        return decode(answer, dict[str, RunLink | None])["link"]

    def find(self, key: str) -> SeenLink:
        path = f"{PATH}?key={quote(key, safe='')}"
        return decode(self._cluster.request("GET", path, timeout_s=self._timeout_s), SeenLink)

    def of_job(self, job: JobId) -> list[RunLink]:
        path = f"{PATH}?job={job}"
        answer = self._cluster.request("GET", path, timeout_s=self._timeout_s)
        return decode(answer, _OfJob).links

    def close(self) -> None:
        self._cluster.close()

    def _sent(self, what: str, key: str, watcher: Watcher, **more: object) -> Response:
        content = msgspec.json.encode({"key": key, "watcher": watcher, **more})
        return self._cluster.request(
            "POST", f"{PATH}/{what}", call=CallKind.STORE, content=content, timeout_s=self._timeout_s
        )
