"""A cluster of three Kafka brokers that die, are stopped, pause and hand over what they lead, under a job
that copies a topic exactly once: nothing is lost, nothing doubled, and the job goes on by itself.

With three replicas and `min.insync.replicas=2` each of these is what a cluster is made to bear. The job is
not restarted for any of them: its client asks again, and looks for the new leader.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.integration.kafka_flow import PARTITIONS, Flow
from tests.support.servers.kafka_brokers import KafkaBrokers
from unistream.base.config import Configuration
from unistream.client.embedded.embedded_cluster import EmbeddedCluster

pytestmark = pytest.mark.kafka

PAUSE_S = 25.0  # longer than a request, and than the cluster waits for a broker


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBrokers]:
    with KafkaBrokers(tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    values = Configuration({"heartbeat.interval": "200 ms"})
    with EmbeddedCluster("local", values, workdir=tmp_path_factory.mktemp("cluster"), rest=False) as running:
        yield running


@pytest.fixture
def flow(tmp_path: Path, brokers: KafkaBrokers) -> Iterator[Flow]:
    """All brokers run, before and afterwards."""
    with Flow(tmp_path, brokers, f"flow-{uuid.uuid4().hex[:8]}") as made:
        yield made
    brokers.thaw()
    brokers.start(*brokers.everybody)


def kill_a_leader(brokers: KafkaBrokers, flow: Flow) -> None:
    """Of a partition that is read and, mostly, of one that is written."""
    killed = brokers.leader(flow.copy, 0)
    brokers.kill(killed)
    flow.await_more()
    brokers.start(killed)
    flow.await_more()


def kill_the_coordinator(brokers: KafkaBrokers, flow: Flow) -> None:
    """Of all transactions: in the midst of them."""
    killed = brokers.coordinator()
    brokers.kill(killed)
    eventually(lambda: brokers.coordinator() not in {0, killed}, "another broker has taken over")
    flow.await_more()
    brokers.start(killed)
    flow.await_more()


def move_leaders(brokers: KafkaBrokers, flow: Flow) -> None:
    """Leaders change three times, each time to a broker that has led neither; replicas stay the same."""
    for turn in range(3):
        for topic in (flow.topic, flow.copy):
            orders = {
                partition: [1 + (turn + partition + place) % 3 for place in range(3)]
                for partition in range(PARTITIONS)
            }
            brokers.move(topic, orders)
        flow.await_more()


def restart_all(brokers: KafkaBrokers, flow: Flow) -> None:
    """One after the other, as for an upgrade."""
    for number in brokers.everybody:
        brokers.stop(number)
        flow.await_more()
        brokers.start(number)
    flow.await_more()


def pause_a_leader(brokers: KafkaBrokers, flow: Flow) -> None:
    """It keeps its connections and answers nothing; meanwhile another one leads. Then it wakes up."""
    paused = brokers.leader(flow.copy, 0)
    brokers.freeze(paused)
    try:
        since = time.monotonic()
        flow.await_more()
        time.sleep(max(0.0, since + PAUSE_S - time.monotonic()))
    finally:
        brokers.thaw(paused)
    flow.await_more()


FAULTS: dict[str, Callable[[KafkaBrokers, Flow], None]] = {
    "the leader of a partition is killed": kill_a_leader,
    "the coordinator of transactions is killed": kill_the_coordinator,
    "leaders are moved": move_leaders,
    "all brokers are restarted": restart_all,
    "a leader is paused": pause_a_leader,
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_job_goes_on(brokers: KafkaBrokers, cluster: EmbeddedCluster, flow: Flow, what: str) -> None:
    job = flow.start(cluster)
    flow.await_more()
    FAULTS[what](brokers, flow)
    result = flow.assert_exact(job)
    assert result.restarts == 0, job.info()
