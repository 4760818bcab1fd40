"""What the tests with real ZooKeeper servers share."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient

from tests.eventually import WAIT_S, eventually
from unistream.base.clock import Clock
from unistream.base.config import Configuration
from unistream.core.leadership import NodeFirst
from unistream.ha.zookeeper import ZooKeeperElection, ZooKeeperSettings, zookeeper_settings
from unistream.ha.zookeeper.client import ZooKeeperClient
from unistream.ha.zookeeper.election import election_ports
from unistream.ha.zookeeper.fence import Fence
from unistream.ha.zookeeper.folder import prepare
from unistream.ha.zookeeper.queue import ElectionQueue
from unistream.ha.zookeeper.store import ZooKeeperStore
from unistream.port.ha import HaStore

ROOT = "/unistream-test"
SESSION_S = 3.0


def new_cluster() -> str:
    """An id that no other test uses."""
    return f"c-{uuid.uuid4().hex[:12]}"


def settings_of(address: str, cluster: str, **options: str) -> ZooKeeperSettings:
    """`options`: below ``high-availability.zookeeper.``, with ``_`` for ``-`` and the first ``.``."""
    values = {
        "quorum": address,
        "path.root": ROOT,
        "client.session-timeout": f"{SESSION_S * 1000:.0f} ms",
        "client.connection-timeout": "5 s",
        **{key.replace("_", ".", 1).replace("_", "-"): value for key, value in options.items()},
    }
    config = {f"high-availability.zookeeper.{key}": value for key, value in values.items()}
    return zookeeper_settings(Configuration({**config, "high-availability.cluster-id": cluster}))


@contextmanager
def plain_client(address: str, **options: Any) -> Iterator[KazooClient]:
    """For looks from outside."""
    client = KazooClient(address, timeout=5.0, **options)
    client.start(timeout=WAIT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class ZooKeeperLeaders:
    """Leaders without an election: the node of the old one is removed, and its store does not hear of it."""

    def __init__(self, settings: ZooKeeperSettings, owned: ExitStack) -> None:
        self._settings = settings
        self._owned = owned
        self._queue: ElectionQueue | None = None

    def new(self) -> HaStore:
        settings = self._settings
        client = ZooKeeperClient(settings)
        self._owned.callback(client.close)
        client.open()
        prepare(client, settings)
        if self._queue is not None:
            self._queue.leave()
        self._queue = ElectionQueue(client, settings.layout, uuid.uuid4().hex, lambda: None)
        seen = self._queue.join(1)
        assert isinstance(seen, NodeFirst)
        assert self._queue.node is not None
        fence = Fence(
            *(client, self._queue.node, seen.epoch),
            request_s=settings.request_s,
            lease_is_over=lambda: False,
            may_decide=lambda: True,
        )
        return ZooKeeperStore(fence, settings.layout)


@dataclass
class Recorder:
    """A contender that keeps what it was notified of, with the time."""

    seen: list[tuple[str, float]] = field(default_factory=list)
    store: HaStore | None = None
    changed: threading.Event = field(default_factory=threading.Event)

    def granted(self, store: HaStore) -> None:
        self.store = store
        self._note("granted")

    def suspended(self) -> None:
        self._note("suspended")

    def resumed(self) -> None:
        self._note("resumed")

    def revoked(self, reason: str) -> None:
        assert reason
        self._note("revoked")

    def _note(self, what: str) -> None:
        self.seen.append((what, time.monotonic()))

    @property
    def words(self) -> list[str]:
        return [what for what, _ in self.seen]

    def expect(self, *words: str) -> None:
        """Waits until it was notified of exactly these, in this order."""
        eventually(lambda: len(self.words) >= len(words), f"{words}, but only {self.words}")
        assert self.words == list(words)

    @property
    def granted_store(self) -> HaStore:
        assert self.store is not None, "it was granted"
        return self.store


@contextmanager
def contending(
    settings: ZooKeeperSettings, clock: Clock | None = None
) -> Iterator[tuple[ZooKeeperElection, Recorder]]:
    """A contender that takes part until the end of the block."""
    recorder = Recorder()
    with ZooKeeperElection(settings, election_ports(settings, clock)) as election:
        election.start(recorder)
        yield election, recorder
