"""A Kafka broker on a host of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.eventually import WAIT_S, eventually
from tests.support.servers.hosts import Host
from unistream.testing.devtools.kafka_tools import broker_ids
from unistream.testing.devtools.process import start_bound
from unistream.testing.devtools.servers import kafka_command

BROKER_PORT: Final = 9092


@contextmanager
def broker_on(host: Host, folder: Path) -> Iterator[str]:
    """A Kafka broker there: its address."""
    folder.mkdir()
    command = kafka_command(folder, (BROKER_PORT, BROKER_PORT + 1), host=host.address)
    child = start_bound([*host.wrapper, *command], folder / "kafka.log", folder)
    address = f"{host.address}:{BROKER_PORT}"
    try:
        eventually(lambda: host.listens(BROKER_PORT), "the broker listens", WAIT_S, 0.5)
        with host.inside():
            eventually(lambda: bool(broker_ids(address)), "the broker serves", WAIT_S)
        yield address
    finally:
        child.kill()
        child.wait(WAIT_S)
