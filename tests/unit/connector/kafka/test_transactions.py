"""Ids of transactions: which are free again, and which are left over."""

from __future__ import annotations

import pytest

from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.base.ids import AttemptId, CheckpointId, JobId, LineageId, OperatorUid, VertexId
from unistream.connector.kafka.record.transactions import (
    IdPool,
    KafkaCommittable,
    Naming,
    ProducerId,
    checkpoint_of,
    decode_committable,
    label_of,
    left_over,
    rewinds_of,
)

IDS = Naming.of("unistream", LineageId("line"), OperatorUid("to kafka"))


def owner(index: int, attempt: int = 0, job: str = "job") -> str:
    return IDS.owner(AttemptId(JobId(job), VertexId("v"), index, attempt))


def id_of(index: int, attempt: int = 0, number: int = 0, job: str = "job") -> str:
    return IDS.id_of(owner(index, attempt, job), number)


def test_an_id_is_used_again_as_soon_as_its_last_transaction_is_complete() -> None:
    pool, first, second = IdPool(), ProducerId(7, 0), ProducerId(8, 0)
    assert pool.to_look_at() == []
    assert pool.take({}) == 0
    pool.prepared(0, first)
    assert pool.to_look_at() == [0]
    assert pool.take({}) == 1, "the commit of the first one has not come yet"
    pool.prepared(1, second)
    assert pool.take({0: ProducerId(7, 1), 1: first}) == 2, "transactions of somebody else"
    assert pool.take({0: first, 1: second}) == 0
    pool.prepared(0, ProducerId(7, 1))
    assert pool.take({0: first}) == 3, "that was the one before"
    assert pool.take({1: second}) == 1
    assert len(pool) == 4


@pytest.mark.parametrize(
    ("before", "after"),
    [((0, 1), (0, 2)), ((0, 2**39), (1, 1)), ((1, 5), (1, 6)), ((1, 5), (2, 1))],
    ids=["the next checkpoint", "a rewind", "the next one behind it", "another one"],
)
def test_labels_grow(before: tuple[int, int], after: tuple[int, int]) -> None:
    first, second = (label_of(rewinds, CheckpointId(n)) for rewinds, n in (before, after))
    assert first < second
    assert (rewinds_of(second), checkpoint_of(second)) == after


@pytest.mark.parametrize(
    ("index", "parallelism", "expected"),
    [
        pytest.param(
            0, 2, [id_of(0, 0), id_of(0, 1, 3), id_of(2), id_of(4)], id="and of those that none has"
        ),
        pytest.param(1, 2, [id_of(1, 0), id_of(1, 0, job="former"), id_of(3)], id="of a former job, too"),
        pytest.param(2, 8, [id_of(2)], id="all have a writer"),
        pytest.param(5, 8, [], id="nothing"),
    ],
)
def test_a_writer_aborts_what_is_left_of_its_number(
    index: int, parallelism: int, expected: list[str]
) -> None:
    own = owner(index, 2)
    others = Naming.of("unistream", LineageId("line"), OperatorUid("to kafka 2"))
    opened = [
        *(id_of(0, 0), id_of(0, 1, 3), id_of(1, 0), id_of(1, 0, job="former"), id_of(2), id_of(3), id_of(4)),
        IDS.id_of(own, 0),
        others.id_of(others.owner(AttemptId(JobId("j"), VertexId("v"), index, 0)), 0),
        "somebody",
    ]
    assert left_over(opened, IDS, own, index=index, parallelism=parallelism) == sorted(expected)


def test_names_are_safe_and_not_too_long() -> None:
    assert id_of(3, 1, 7) == "unistream.line.to_kafka.3.job-1.7"
    with pytest.raises(ConfigError, match="shorten transactional_id_prefix or the sink's uid"):
        Naming.of("x" * 200, LineageId("l"), OperatorUid("u"))


def test_a_committable_is_read_again() -> None:
    made = KafkaCommittable(
        servers="broker:9092",
        topic="t",
        topic_id="id",
        transactional_id=id_of(0),
        producer=ProducerId(7, 2),
        label=9,
        rows=3,
        began_ms=4,
        timeout_ms=5,
    )
    assert decode_committable(made.encoded()) == made
    with pytest.raises(CorruptSnapshot, match="a committable of a Kafka sink cannot be read"):
        decode_committable(b"{}")
