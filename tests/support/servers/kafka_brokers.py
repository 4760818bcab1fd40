"""Several Kafka brokers that form one cluster (KRaft), on loopback; each can be killed, stopped, frozen and
started again.

with KafkaBrokers(folder) as brokers:        # ends with this thread, whatever happens
    brokers.address                          # 127.0.0.1:<port>,127.0.0.1:<port>,127.0.0.1:<port>
    brokers.kill(brokers.leader("orders", 0))

Each is broker and controller, so a majority of them has to run. Their numbers begin with 1.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.support.servers.server_group import ServerGroup
from unistream.base.errors import Unreachable
from unistream.testing.devtools.kafka_tools import admin_client
from unistream.testing.devtools.process import ProcessId, end, free_ports, process_id, start_bound
from unistream.testing.devtools.servers import HOST, cluster_id, kafka_command

BROKERS: Final = 3
START_S: Final = 240.0  # three of them share two cores with other tests
STOP_S: Final = 240.0  # a broker that stops hands over what it leads
POLL_S: Final = 0.1
PROBE_S: Final = 10.0
PREFERRED: Final = 0  # election of the first replica
FLAGS: Final = ("-Xms96m", "-Xmx320m", "-XX:TieredStopAtLevel=1")  # three of them share the machine

# A broker that is gone is noticed within six seconds, so that a test need not wait for long.
_PROPERTIES: Final = """
node.id={number}
controller.quorum.voters={voters}
num.io.threads=3
num.replica.fetchers=1
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=1000
default.replication.factor={replicas}
min.insync.replicas=2
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=1
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr=2
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr=2
"""


class KafkaBrokers(ServerGroup):
    """Args:
    folder: For data and logs; made if absent.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder: Final = folder.absolute()
        ports = free_ports(2 * BROKERS)
        self._ports = {n: (ports[n - 1], ports[BROKERS + n - 1]) for n in self.everybody}
        self._cluster = cluster_id()

    @property
    def address(self) -> str:
        """The address for clients: all brokers."""
        return ",".join(f"{HOST}:{ports[0]}" for ports in self._ports.values())

    @property
    def everybody(self) -> range:
        return range(1, BROKERS + 1)

    def start(self, *numbers: int) -> None:
        """Starts those brokers that do not run; returns when the cluster has all of them, and each partition
        all replicas.

        Raises:
            Unreachable: it has not, after START_S; the folder of the logs is named.
        """
        absent = [number for number in numbers if number not in self._running]
        with ThreadPoolExecutor(len(absent) or 1) as pool:
            commands = list(pool.map(self._command, absent))
        for number, command in zip(absent, commands, strict=True):
            home = self._home(number)
            self._running[number] = start_bound(command, home / "kafka.log", home)
        self._await(self._is_whole, "is whole")

    def stop(self, *numbers: int) -> None:
        """Stops brokers as an administrator does: each hands over what it leads first."""
        for number in numbers:
            child = self._running.pop(number)
            end(process_id(child.pid) or ProcessId(child.pid, 0), STOP_S)
            child.wait(timeout=STOP_S)

    def leader(self, topic: str, partition: int) -> int:
        """The number of the broker that leads a partition; 0: there is none now, or no broker says so."""
        from kafka.errors import KafkaError

        try:
            return max(int(self._described([topic])[topic, partition]["leader_id"]), 0)
        except (Unreachable, KafkaError):
            return 0

    def coordinator(self) -> int:
        """The broker that coordinates all transactions; 0: there is none now."""
        return self.leader("__transaction_state", 0)

    def move(self, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
        """Other brokers, or the same in another order, have the partitions, and the first one leads each."""
        from kafka import TopicPartition

        wanted = {TopicPartition(topic, number): list(nodes) for number, nodes in replicas.items()}
        with admin_client(self._bootstrap) as admin:
            admin.alter_partition_reassignments(wanted)
            self._await(lambda: not admin.list_partition_reassignments(list(wanted)), f"has moved {topic}")

            def is_led() -> bool:
                admin.elect_leaders(PREFERRED, {topic: list(replicas)}, raise_errors=False)
                return all(self.leader(topic, number) == nodes[0] for number, nodes in replicas.items())

            self._await(is_led, f"has elected leaders of {topic}")

    def close(self) -> None:
        """Ends all, and waits for it. Safe to repeat."""
        children, self._running = list(self._running.values()), {}
        for child in children:  # killed: without its quorum a broker would wait for it before it ends
            with suppress(ProcessLookupError):
                child.kill()
        for child in children:
            child.wait(timeout=STOP_S)

    @property
    def _bootstrap(self) -> str:
        """The addresses of the brokers that run."""
        return ",".join(f"{HOST}:{self._ports[number][0]}" for number in self._running)

    def _home(self, number: int) -> Path:
        home = self.folder / str(number)
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _command(self, number: int) -> list[str]:
        more = _PROPERTIES.format(
            number=number,
            voters=",".join(f"{n}@{HOST}:{ports[1]}" for n, ports in self._ports.items()),
            replicas=BROKERS,
        )
        home, ports = self._home(number), self._ports[number]
        return kafka_command(home, ports, more, cluster=self._cluster, flags=FLAGS)

    def _is_whole(self) -> bool:
        """All that run are known, and no partition lacks one of them."""
        if not all(_listens(self._ports[number][0]) for number in self._running):
            return False
        with admin_client(self._bootstrap, PROBE_S) as admin:
            known = {int(one["broker_id"]) for one in admin.describe_cluster()["brokers"]}
        if known != self._running.keys():
            return False
        return all(
            one["leader_id"] >= 0 and set(one["isr_nodes"]) >= set(one["replica_nodes"]) & known
            for one in self._described(None).values()
        )

    def _described(self, topics: Sequence[str] | None) -> dict[tuple[str, int], dict[str, Any]]:
        """Partitions of these topics, or of all, as the brokers know them."""
        with admin_client(self._bootstrap) as admin:
            names = admin.list_topics() if topics is None else topics
            return {
                (one["name"], part["partition_index"]): part
                for one in (admin.describe_topics(names) if names else ())
                for part in one["partitions"]
            }

    def _await(self, holds: Any, what: str) -> None:
        from kafka.errors import KafkaError

        deadline_s = time.monotonic() + START_S
        while True:
            with suppress(Unreachable, KafkaError):
                if holds():
                    return
            ended = [number for number, child in self._running.items() if child.poll() is not None]
            if ended or time.monotonic() > deadline_s:
                raise Unreachable(f"Kafka: no cluster that {what} ({ended} have ended); logs: {self.folder}")
            time.sleep(POLL_S)


def _listens(port: int) -> bool:
    """Whether something listens at the port. Cheap: a client at a closed port logs and waits."""
    with socket.socket() as probe:
        probe.settimeout(PROBE_S)
        return probe.connect_ex((HOST, port)) == 0
