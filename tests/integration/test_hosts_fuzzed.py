"""Ten minutes of bytes that no client sends, at all ports of a cluster on several hosts: its job goes on,
nobody's memory grows, and no error of ours comes without a sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import psutil
import pytest

from tests.eventually import WAIT_S, eventually
from tests.integration.on_hosts import NEEDS_HOSTS
from tests.integration.test_hosts_attacked import LISTEN, Attacked, attacked, seen
from unistream.base.limits import MIB
from unistream.model.access import Scope

pytestmark = NEEDS_HOSTS

ROUNDS: Final = 10
ROUND_S: Final = float(os.environ.get("UNISTREAM_FUZZ_ROUND_S", "60"))
GROWN_MAX: Final = 48 * MIB
"""By how much a process may grow after the first rounds: allocators keep what they once had."""


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(tmp_path_factory.mktemp("fuzzed")) as victim:
        yield victim


def memory(victim: Attacked) -> dict[int, int]:
    """Resident bytes of each Python process on the cluster's hosts."""
    found = {}
    for name in "abc":
        for one in victim.cluster.hosts[name].processes():
            process = psutil.Process(one.pid)
            if "python" in process.name():
                found[one.pid] = process.memory_info().rss
    return found


def test_frames_that_nobody_sends_harm_nobody(victim: Attacked) -> None:
    before, rounds = seen(victim), int(os.environ.get("UNISTREAM_FUZZ_ROUNDS", ROUNDS))
    hosts = victim.cluster.hosts
    places = [
        (hosts[name].address, int(port)) for name in "abc" for port in set(hosts[name].python(LISTEN).split())
    ]
    addresses = [worker.address for worker in victim.owner.task_managers()]
    token = victim.tokens.create("fuzzer", Scope.JOIN, uses=rounds).token
    warm: dict[int, int] = {}
    for number in range(rounds):
        sent = victim.attack(
            "frames",
            url=victim.url,
            token=token,
            places=places,
            addresses=addresses,
            seconds=ROUND_S,
            seed=number,
        )
        print(number, sent, memory(victim))
        assert all(any(key.startswith(kind) for key in sent) for kind in ("bytes", "tls", "worker", "calls"))
        assert seen(victim) == before
        warm = warm if number >= min(3, rounds) else memory(victim)
    rows = sum(task.metrics.records_out for task in victim.info().subtasks)
    eventually(
        lambda: sum(task.metrics.records_out for task in victim.info().subtasks) > rows, "it goes on", WAIT_S
    )
    grown = {pid: now - warm[pid] for pid, now in memory(victim).items()}
    assert max(grown.values()) < GROWN_MAX, grown
    for program in victim.cluster.programs:
        assert "Traceback" not in program.err, program.name
