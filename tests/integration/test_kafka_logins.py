"""A broker with users, rules and quotas: what is refused is named, and a quota costs time only."""

from __future__ import annotations

import gc
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.support.servers.kafka_tools import produce_values, read_committed
from tests.support.servers.kafka_with_users import SecuredKafka
from unistream.base.errors import ConfigError, UnistreamError, Unreachable
from unistream.testing.devtools.kafka_tools import create_topic

pytestmark = [pytest.mark.kafka]

PASSWORDS = {"alice": "wonder-7", "bob": "builder-8"}
ROW = pa.schema([("n", pa.int64()), ("text", pa.string())])
ROWS = 2_000
TEXT = "x" * 200
LEAKED = "ignore::pytest.PytestUnraisableExceptionWarning"
"""kafka-python leaves the sockets of failed TLS handshakes open."""
STREAM = {
    "parallelism.default": "1",
    "execution.runtime-mode": "STREAMING",
    "execution.checkpointing.interval": "500 ms",
    "restart-strategy.type": "none",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(tmp_path_factory.mktemp("kafka"), PASSWORDS) as kafka:
        yield kafka


@pytest.fixture
def topics(kafka: SecuredKafka) -> tuple[str, str]:
    """Of rows, and an empty one; everybody may use them."""
    full, empty = f"full-{uuid.uuid4().hex[:8]}", f"empty-{uuid.uuid4().hex[:8]}"
    for topic in (full, empty):
        create_topic(kafka.open_address, topic)
    rows = [json.dumps({"n": n, "text": TEXT}).encode() for n in range(ROWS)]
    produce_values(kafka.open_address, full, rows)
    return full, empty


def login(user: str, password: str | None = None, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.plain.username": user,
        "sasl.plain.password": password or PASSWORDS[user],
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def source(kafka: SecuredKafka, topic: str, properties: dict[str, str], **more: Any) -> us.KafkaSource:
    return us.KafkaSource(
        bootstrap_servers=kafka.address, topic=topic, schema=ROW, bounded=True, properties=properties, **more
    )


def copy(kafka: SecuredKafka, topics: tuple[str, str], user: str, folder: Path) -> None:
    """From one topic to the other, exactly once."""
    config = {**STREAM, "execution.checkpointing.dir": (folder / "checkpoints").as_uri()}
    env = us.Environment(config, target="local")
    rows = env.from_source(
        source(kafka, topics[0], login(user)), us.WatermarkStrategy.no_watermarks(), "rows"
    )
    sink = us.KafkaSink(bootstrap_servers=kafka.address, topic=topics[1], properties=login(user))
    rows.uid("rows").sink_to(sink).uid("copy")
    assert env.execute("copy").state == "FINISHED"


def copied(kafka: SecuredKafka, topic: str) -> list[int]:
    return sorted(json.loads(value)["n"] for value in read_committed(kafka.open_address, topic) if value)


def test_who_logs_in_reads_and_writes(kafka: SecuredKafka, topics: tuple[str, str], tmp_path: Path) -> None:
    copy(kafka, topics, "alice", tmp_path)
    assert copied(kafka, topics[1]) == list(range(ROWS))


@pytest.mark.parametrize(
    ("properties", "error", "sentence"),
    [
        (
            login("alice", "wrong-9"),
            UnistreamError,  # the broker closes the connection right behind its answer, which may be lost
            r"refused connecting: .*Invalid username or password"
            r"|it closes the connection: is SASL_PLAINTEXT the security.protocol of this listener, and are "
            r"user, password and sasl.mechanism right\?",
        ),
        (
            login("alice", sasl_mechanism="SCRAM-SHA-256"),
            UnistreamError,
            r"refused connecting: .*UnsupportedSaslMechanism|it closes the connection: ",
        ),
        ({}, Unreachable, r"it closes the connection: is PLAINTEXT the security.protocol of this listener\?"),
        pytest.param(
            login("alice", security_protocol="SASL_SSL"),
            Unreachable,
            r"Handshake failed: \[SSL",
            marks=pytest.mark.filterwarnings(LEAKED),
        ),
    ],
    ids=["password", "mechanism", "no login", "TLS"],
)
def test_a_login_that_is_refused_is_named(
    kafka: SecuredKafka,
    topics: tuple[str, str],
    properties: dict[str, str],
    error: type[Exception],
    sentence: str,
) -> None:
    """Before the job starts. Neither the password nor a trace of the client is in the sentence."""
    sink = us.KafkaSink(bootstrap_servers=kafka.address, topic=topics[1], properties=properties)
    with pytest.raises(error, match=sentence) as refused:
        sink.check(ROW)
    said = str(refused.value)
    assert kafka.address in said
    assert not any(word in said for word in ("wrong-9", "wonder-7", "Traceback", "\n"))
    del refused
    gc.collect()  # sockets that kafka-python has left belong to this test


def test_what_a_user_may_not_do_is_named(
    kafka: SecuredKafka, topics: tuple[str, str], tmp_path: Path
) -> None:
    """Reading a topic, writing one, and using transactions of such names. Nothing is written."""
    full, empty = topics
    kafka.allow("alice", "READ", "DESCRIBE", topic=full)
    with pytest.raises(ConfigError, match=f"refused looking for topic '{full}'"):
        copy(kafka, topics, "bob", tmp_path)
    kafka.allow("bob", "READ", "DESCRIBE", topic=full)
    kafka.allow("alice", "WRITE", "DESCRIBE", topic=empty)
    with pytest.raises(ConfigError, match=f"refused looking for topic '{empty}'"):
        copy(kafka, topics, "bob", tmp_path)
    kafka.allow("bob", "DESCRIBE", topic=empty)
    with pytest.raises(ConfigError, match=f"refused .*{empty}"):
        copy(kafka, topics, "bob", tmp_path)
    assert copied(kafka, empty) == []
    kafka.allow("bob", "WRITE", "READ", topic=empty)
    kafka.allow("alice", "WRITE", "DESCRIBE", transactional_id="*")
    try:
        with pytest.raises(ConfigError, match="TransactionalIdAuthorizationFailed"):
            copy(kafka, topics, "bob", tmp_path)
    finally:
        kafka.forbid("alice", transactional_id="*")
    copy(kafka, topics, "bob", tmp_path)
    assert copied(kafka, empty) == list(range(ROWS))


@pytest.mark.parametrize(
    ("quota", "least_s"),
    [
        pytest.param({"producer_byte_rate": 20_000}, 10, id="of a writer"),
        pytest.param({"consumer_byte_rate": 30_000}, 10, id="of a reader"),
        pytest.param({"producer_byte_rate": 5_000}, 60, id="of a writer, longer than a request may take"),
    ],
)
def test_a_quota_costs_time_and_no_row(
    kafka: SecuredKafka, topics: tuple[str, str], tmp_path: Path, quota: dict[str, int], least_s: int
) -> None:
    """Some 450 kB: the broker holds back answers for seconds, longer than a checkpoint interval. Without a
    quota it takes some five seconds. A reader is never held back for much more than ten seconds: a batch that
    would take longer is not sent at all."""
    kafka.limit("bob", **quota)
    began = time.monotonic()
    try:
        copy(kafka, topics, "bob", tmp_path)
    finally:
        kafka.limit("bob", **dict.fromkeys(quota, 2**40))
    assert time.monotonic() - began > least_s, "it was held back"
    assert copied(kafka, topics[1]) == list(range(ROWS))
