"""Jobs of one line that write a topic: which of them may commit, and which rows of the others are seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.contract.test_contract_sink import context, permit, request
from tests.integration.kafka_parts import Parts, numbers
from unistream.base.errors import ConfigError, Fenced
from unistream.base.ids import AttemptId, JobId, VertexId
from unistream.port.sink import Committer, SinkContext, SinkWriter
from unistream.testing.devtools.kafka_tools import open_transactions

pytestmark = pytest.mark.kafka


@pytest.fixture
def parts(kafka: str, topic: str) -> Iterator[Parts]:
    made = Parts(kafka, topic)
    yield made
    for one in made.made:
        one.close()


def of_job(name: str, restored: int | None = None) -> SinkContext:
    """Of a job; one that is restored is so from a snapshot of job a."""
    made, job = context(restored=restored), JobId(name * 32)
    predecessor = None if restored is None else JobId("a" * 32)
    return replace(made, job=job, attempt=AttemptId(job, VertexId("1" * 32), 0, 0), predecessor=predecessor)


def test_behind_an_allowed_rewind_the_job_before_it_commits_nothing_more(parts: Parts) -> None:
    allowed = parts.sink(on_rewind="allow_duplicates")
    old, former = parts.opened(allowed, of_job("a"))
    for checkpoint in (1, 2):
        prepared = parts.prepared(old, checkpoint, checkpoint)
        former.commit(permit(checkpoint), request(checkpoint, *prepared))
    waiting = parts.prepared(old, 3, 3)
    new, later = parts.opened(allowed, of_job("b", restored=1))
    assert open_transactions(parts.servers, parts.topic) == [], "those of the job before are ended at once"
    with pytest.raises(Fenced, match=r"job b{32} has taken over"):
        former.commit(permit(3), request(3, *waiting))
    later.commit(permit(2), request(2, *parts.prepared(new, 2, 20)))
    assert numbers(parts.servers, parts.topic) == [1, 2, 20]


def test_a_rewind_that_got_no_further_can_be_made_again_by_another_job(parts: Parts) -> None:
    allowed = parts.sink(on_rewind="allow_duplicates")
    old, former = parts.opened(allowed, of_job("a"))
    for checkpoint in (1, 2):
        prepared = parts.prepared(old, checkpoint, checkpoint)
        former.commit(permit(checkpoint), request(checkpoint, *prepared))
    parts.opened(allowed, of_job("b", restored=1))
    new, later = parts.opened(allowed, of_job("c", restored=1))
    later.commit(permit(2), request(2, *parts.prepared(new, 2, 20)))
    assert numbers(parts.servers, parts.topic) == [1, 2, 20]


def two_successors(parts: Parts) -> list[tuple[SinkWriter, Committer]]:
    """Of two jobs that start from one snapshot; the first has committed 2 behind it."""
    old, former = parts.opened(parts.sink(), of_job("a"))
    former.commit(permit(1), request(1, *parts.prepared(old, 1, 1)))
    faster, winner = parts.opened(parts.sink(), of_job("b", restored=1))
    slower, loser = parts.opened(parts.sink(), of_job("c", restored=1))
    winner.commit(permit(2), request(2, *parts.prepared(faster, 2, 2)))
    return [(faster, winner), (slower, loser)]


def test_what_a_refused_job_has_open_is_aborted(parts: Parts) -> None:
    """Of two that start from one snapshot, also what the slower one prepares meanwhile."""
    _, (slower, loser) = two_successors(parts)
    refused = parts.prepared(slower, 2, 20)
    parts.prepared(slower, 3, 30)
    with pytest.raises(ConfigError, match=r"job b{32} writes the output of sink 'the sink'"):
        loser.commit(permit(2), request(2, *refused))
    slower.close()
    loser.close()
    assert open_transactions(parts.servers, parts.topic) == []
    assert numbers(parts.servers, parts.topic) == [1, 2]


def test_what_a_writer_prepares_behind_the_refusal_is_aborted_by_itself(parts: Parts) -> None:
    """Its task ends after that of the committer."""
    (faster, winner), (slower, loser) = two_successors(parts)
    refused = parts.prepared(slower, 2, 20)
    with pytest.raises(ConfigError, match=r"job b{32} writes the output of sink 'the sink'"):
        loser.commit(permit(2), request(2, *refused))
    loser.close()
    parts.prepared(slower, 3, 30)
    waiting = parts.prepared(faster, 3, 3)
    slower.close()
    winner.commit(permit(3), request(3, *waiting))
    assert open_transactions(parts.servers, parts.topic) == []
    assert numbers(parts.servers, parts.topic) == [1, 2, 3]


def test_what_a_writer_of_a_job_that_may_go_on_has_prepared_outlives_it(parts: Parts) -> None:
    """Before the job's first commit, when the record names the one before it, and behind it."""
    old, former = parts.opened(parts.sink(), of_job("a"))
    former.commit(permit(1), request(1, *parts.prepared(old, 1, 1)))
    for checkpoint in (2, 3):
        writer, committer = parts.opened(parts.sink(), of_job("b", restored=checkpoint - 1))
        prepared = parts.prepared(writer, checkpoint, checkpoint)
        writer.close()
        committer.commit(permit(checkpoint), request(checkpoint, *prepared))
    assert numbers(parts.servers, parts.topic) == [1, 2, 3]
