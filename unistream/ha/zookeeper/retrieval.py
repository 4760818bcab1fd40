"""Where the leader of a cluster is, for clients and workers."""

from __future__ import annotations

import threading
import time

import msgspec

from unistream.base.closing import Closing
from unistream.base.errors import UNDECODABLE, CorruptSnapshot
from unistream.ha.zookeeper.client import ZooKeeperClient
from unistream.ha.zookeeper.settings import ZooKeeperSettings
from unistream.port.ha import LeaderInfo


class ZooKeeperRetrieval(Closing):
    """Implements `port.ha.LeaderRetrieval`. Connects with the first question, and stays connected.
    Thread-safe."""

    def __init__(self, settings: ZooKeeperSettings) -> None:
        self._path = settings.layout.leader
        self._client = ZooKeeperClient(settings)
        self._is_started = False
        self._starting = threading.Lock()

    def leader(self, timeout_s: float) -> LeaderInfo | None:
        deadline_s = time.monotonic() + timeout_s
        with self._starting:
            if not self._is_started:
                self._client.start()
                self._is_started = True
            elif self._client.is_dead:
                self._client.revive()
        found = self._client.value(self._path, deadline_s)
        if found is None:
            self._client.check_chroot(deadline_s)
            return None
        try:
            return msgspec.json.decode(found[0], type=LeaderInfo)
        except UNDECODABLE as error:
            raise CorruptSnapshot(
                f"{self._client}: {self._path} does not say where a leader is ({error}); a newer unistream "
                "or another program wrote it"
            ) from None

    def close(self) -> None:
        self._client.close()
