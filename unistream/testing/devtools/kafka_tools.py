"""Small Kafka helpers for the local stack and demos: brokers and topics."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

from unistream.base.errors import ConfigError, Unreachable

TIMEOUT_S: Final = 30.0


@contextlib.contextmanager
def admin_client(bootstrap: str, timeout_s: float = TIMEOUT_S) -> Iterator[Any]:
    """A client for administrators, closed afterwards. Raises Unreachable."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    try:
        admin = KafkaAdminClient(
            bootstrap_servers=bootstrap,
            bootstrap_timeout_ms=int(timeout_s * 1000),
            request_timeout_ms=int(timeout_s * 1000),
        )
    except KafkaError as error:
        raise Unreachable(f"Kafka at {bootstrap} did not answer within {timeout_s:.0f} s: {error}") from error
    try:
        yield admin
    finally:
        admin.close()


def broker_ids(bootstrap: str, timeout_s: float = TIMEOUT_S) -> list[int]:
    """Brokers that the cluster knows; empty when it does not answer in time."""
    from kafka.errors import KafkaError

    try:
        with admin_client(bootstrap, timeout_s) as admin:
            return [int(broker["broker_id"]) for broker in admin.describe_cluster()["brokers"]]
    except (Unreachable, KafkaError):
        return []


def create_topic(
    bootstrap: str,
    name: str,
    partitions: int = 1,
    config: dict[str, str] | None = None,
    *,
    replicas: int = 1,
) -> None:
    """Makes a topic, and returns when every partition has a leader.

    Raises:
        ConfigError: it exists.
        Unreachable: no leader within TIMEOUT_S.
    """
    from kafka.admin import NewTopic
    from kafka.errors import TopicAlreadyExistsError

    with admin_client(bootstrap, TIMEOUT_S) as admin:
        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=replicas, topic_configs=config or {}
        )
        try:
            admin.create_topics([topic])
        except TopicAlreadyExistsError:
            raise ConfigError(f"topic {name!r} exists already") from None
        await_leaders(admin, name, partitions)


def await_leaders(admin: Any, name: str, partitions: int) -> None:
    """Returns when so many partitions of the topic have a leader. Raises Unreachable after TIMEOUT_S."""
    deadline = time.monotonic() + TIMEOUT_S
    while _leaders(admin, name) < partitions:
        if time.monotonic() > deadline:
            raise Unreachable(f"topic {name!r} has no leaders after {TIMEOUT_S:.0f} s")
        time.sleep(0.02)


def _leaders(admin: Any, topic: str) -> int:
    [described] = admin.describe_topics([topic])
    return sum(1 for p in described["partitions"] if p["error_code"] == 0 and p["leader_id"] >= 0)


def topic_partitions(bootstrap: str) -> dict[str, int]:
    """How many partitions each topic has, but for those that Kafka itself keeps.

    Raises:
        Unreachable: the broker does not answer.
    """
    with admin_client(bootstrap, TIMEOUT_S) as admin:
        names = [name for name in admin.list_topics() if not name.startswith("__")]
        found = admin.describe_topics(names) if names else []
    return {one["name"]: len(one["partitions"]) for one in found}
