"""A contender as a process: says what happens to it, and writes when it is asked to.

    python -m tests.integration.contending_process ADDRESS CLUSTER

A line that it reads is ``NAME VALUE`` to create; a line that it writes is a JSON object.
"""

from __future__ import annotations

import json
import sys
import threading

from tests.integration.zookeeper_leaders import settings_of
from unistream.base.errors import UnistreamError
from unistream.ha.zookeeper import ZooKeeperElection
from unistream.port.ha import HaStore, LeaderInfo

SAYING = threading.Lock()  # the election's thread and the main one both speak


def say(**what: object) -> None:
    with SAYING:
        print(json.dumps(what), flush=True)


class Speaking:
    """Says each call."""

    def __init__(self) -> None:
        self.store: HaStore | None = None

    def granted(self, store: HaStore) -> None:
        self.store = store
        say(what="granted", epoch=store.epoch)

    def suspended(self) -> None:
        say(what="suspended")

    def resumed(self) -> None:
        say(what="resumed")

    def revoked(self, reason: str) -> None:
        say(what="revoked", reason=reason)


def main(address: str, cluster: str) -> None:
    contender = Speaking()
    with ZooKeeperElection(settings_of(address, cluster)) as election:
        election.start(contender)
        for line in sys.stdin:
            name, value = line.split()
            try:
                assert contender.store is not None, "it was granted"
                created = contender.store.create(name, value.encode())
                election.publish(LeaderInfo(epoch=contender.store.epoch, cluster=value))
                say(what="created", how=created.name)
            except UnistreamError as error:
                say(what="refused", error=type(error).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
