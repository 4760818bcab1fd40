"""What the local stack runs, on loopback only: a Kafka broker (KRaft, one node), a ZooKeeper server, an S3
server."""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unistream.base.errors import ConfigError
from unistream.testing.devtools import object_store
from unistream.testing.devtools.jars import java, kafka_jars, zookeeper_jars
from unistream.testing.devtools.process import TERM_WAIT_S

KAFKA: Final = "kafka"
ZOOKEEPER: Final = "zookeeper"
S3: Final = "s3"
HOST: Final = "127.0.0.1"
FORMAT_TIMEOUT_S: Final = 240
PROBE_TIMEOUT_S: Final = 2.0
HEAP: Final = {KAFKA: "-Xmx768m", ZOOKEEPER: "-Xmx256m"}

# Retention is off and timestamps may be of any time: replayed history keeps the years it is of.
_KAFKA_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{broker},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{broker}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions=1
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=16777216
log.retention.ms=-1
log.message.timestamp.before.max.ms=9223372036854775807
log.message.timestamp.after.max.ms=9223372036854775807
auto.create.topics.enable=false
delete.topic.enable=true
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""

_ZOOKEEPER_PROPERTIES: Final = """\
dataDir={data}
clientPort={client}
clientPortAddress={host}
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=3600000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr
"""

_LOG4J: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d %p %c{1}: %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Logger name="org.apache.kafka.common.config" level="WARN"/>
    <Logger name="kafka.server.KafkaConfig" level="WARN"/>
    <Logger name="org.apache.zookeeper.server.ZooKeeperServer" level="WARN"/>
    <Root level="INFO"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How one kind of server is started and probed.

    Attributes:
        ports: How many loopback ports it needs; clients use the first.
        usual: The port on which everybody expects such a server.
        prepare: (folder, ports) -> command line. Writes the configuration; safe to repeat.
        serves: (port) -> None when it answers a real request, else why not.
        ready_timeout_s: Longest time from the start to the first answer.
        stop_s: Longest time from SIGTERM to its end; then it is killed.
        prepare_usual: As `prepare`, of a server for people, which does what others of its kind do; None:
            it is the same.
    """

    name: str
    ports: int
    usual: int
    prepare: Callable[[Path, Sequence[int]], list[str]]
    serves: Callable[[int], str | None]
    ready_timeout_s: float
    stop_s: float = TERM_WAIT_S
    prepare_usual: Callable[[Path, Sequence[int]], list[str]] | None = None


def kafka_command(
    folder: Path,
    ports: Sequence[int],
    more: str = "",
    *,
    cluster: str = "",
    flags: Sequence[str] = (),
    host: str = HOST,
) -> list[str]:
    """The command line of a broker.

    Args:
        folder: For its configuration and data.
        ports: Of clients and of the controller.
        more: Further properties, which replace ours.
        cluster: Its id, if it has several brokers; "": a new one.
        flags: Of Java, which replace ours.
        host: Its address, where it listens.
    """
    classpath = f"{kafka_jars()}/*"
    properties, data = folder / "server.properties", folder / "data"
    text = _KAFKA_PROPERTIES.format(host=host, broker=ports[0], controller=ports[1], data=data)
    properties.write_text(text + more, encoding="utf-8")
    _format_storage(classpath, properties, data, cluster or cluster_id())
    return [*java_command(folder, KAFKA), *flags, "-cp", classpath, "kafka.Kafka", str(properties)]


def _kafka_for_people(folder: Path, ports: Sequence[int]) -> list[str]:
    """A command for Kafka as it is unless it is configured: a topic is made when a program first writes to
    it. (Sources and sinks of this package never make one: a name that was mistyped is refused.)"""
    return kafka_command(folder, ports, "auto.create.topics.enable=true\n")


def _format_storage(classpath: str, properties: Path, data: Path, cluster: str) -> None:
    """A KRaft node starts only on storage that names its cluster; done once per data folder."""
    if (data / "meta.properties").is_file():
        return
    # quick to start, since it lives for half a second
    flags = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
    done = subprocess.run(
        [java(), *flags, "-cp", classpath, *tool],
        capture_output=True,
        text=True,
        timeout=FORMAT_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        said = "\n  ".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise ConfigError(f"Kafka's storage tool could not format {data}:\n  {said}")


def cluster_id(draw: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """A new id as Kafka makes them: 16 bytes in base64. One in 64 would begin with a dash, which Kafka's
    tools take for an option; those are drawn again."""
    while True:
        text = base64.urlsafe_b64encode(draw(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _zookeeper_command(folder: Path, ports: Sequence[int]) -> list[str]:
    config = folder / "zoo.cfg"
    text = _ZOOKEEPER_PROPERTIES.format(host=HOST, client=ports[0], data=folder / "data")
    config.write_text(text, encoding="utf-8")
    options = ["-cp", zookeeper_classpath(), "-Dzookeeper.jmx.log4j.disable=true"]
    return [
        *java_command(folder, ZOOKEEPER),
        *options,
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        str(config),
    ]


def zookeeper_classpath() -> str:
    return os.pathsep.join(str(jar) for jar in zookeeper_jars())


def java_command(folder: Path, name: str) -> list[str]:
    """Java with the flags of this kind of server; its logging is configured in `folder`."""
    log4j = folder / "log4j2.xml"
    log4j.write_text(_LOG4J, encoding="utf-8")
    # small and few threads: it shares the machine with the tests
    flags = [HEAP[name], "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true"]
    return [java(), *flags, f"-Dlog4j2.configurationFile={log4j}"]


def _kafka_serves(port: int) -> str | None:
    """A real metadata request, answered by a broker that is registered and not fenced."""
    from unistream.testing.devtools.kafka_tools import broker_ids

    with socket.socket() as probe:  # cheap first: a client on a closed port logs and waits
        probe.settimeout(PROBE_TIMEOUT_S)
        if probe.connect_ex((HOST, port)) != 0:
            return "it does not listen yet"
    return None if broker_ids(f"{HOST}:{port}", timeout_s=PROBE_TIMEOUT_S) else "no broker is registered yet"


def _zookeeper_serves(port: int) -> str | None:
    return None if b"Mode: " in zookeeper_says(port, b"srvr") else "it does not serve requests yet"


def zookeeper_says(port: int, command: bytes, host: str = HOST) -> bytes:
    """The answer to a command of four letters; empty: there is none."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection((host, port), PROBE_TIMEOUT_S) as connection:
        connection.settimeout(PROBE_TIMEOUT_S)
        connection.sendall(command)
        while part := connection.recv(4096):
            answer += part
    return answer


SERVERS: Final = {
    spec.name: spec
    for spec in (
        ServerSpec(KAFKA, 2, 9092, kafka_command, _kafka_serves, 60.0, prepare_usual=_kafka_for_people),
        ServerSpec(ZOOKEEPER, 1, 2181, _zookeeper_command, _zookeeper_serves, 30.0),
        ServerSpec(
            S3,
            object_store.PORTS,
            9000,
            object_store.command,
            object_store.serves,
            60.0,
            object_store.STOP_S,
        ),
    )
}
"""Every server of the stack, in the order in which they are started."""
