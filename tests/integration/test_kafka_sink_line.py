"""Jobs of one line that write a topic: which of them may commit, and which rows of the others are seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.contract.sinks.case import batch, context, permit, request
from tests.integration.kafka_parts import Parts, numbers
from tests.support.servers.kafka_tools import open_transactions
from unistream.base.errors import ConfigError, Fenced
from unistream.base.ids import AttemptId, CheckpointId, JobId, VertexId
from unistream.connector.kafka.sink.sink_committer import KafkaCommitter
from unistream.port.sink import Committer, SeesEmptyCheckpoints, SinkContext, SinkWriter

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


# --- a successor without rows -----------------------------------------------------------------------------


def with_rows_left(parts: Parts) -> Committer:
    """Job a has committed 1, and left a prepared transaction and an open one. Returns its committer."""
    old, former = parts.opened(parts.sink(), of_job("a"))
    former.commit(permit(1), request(1, *parts.prepared(old, 1, 1)))
    parts.prepared(old, 2, 2)
    old.write(batch(3))
    old.flush(end_of_input=False)
    assert len(open_transactions(parts.servers, parts.topic)) == 2
    return former


def idle(parts: Parts, job: str, checkpoint: int, restored: int = 1) -> Committer:
    """A committer of a job that has completed a checkpoint without rows."""
    _, committer = parts.opened(parts.sink(), of_job(job, restored=restored))
    assert isinstance(committer, SeesEmptyCheckpoints)
    committer.empty_checkpoint(permit(checkpoint))
    return committer


def test_a_job_without_rows_ends_what_its_predecessor_has_left(parts: Parts) -> None:
    """With its first checkpoint: readers of committed rows wait for it no longer."""
    former = with_rows_left(parts)
    _, heir = parts.opened(parts.sink(), of_job("b", restored=1))
    assert isinstance(heir, SeesEmptyCheckpoints)
    heir.empty_checkpoint(permit(1))  # of the restored snapshot: not yet its own
    assert len(open_transactions(parts.servers, parts.topic)) == 2
    heir.empty_checkpoint(permit(2))
    assert open_transactions(parts.servers, parts.topic) == []
    assert numbers(parts.servers, parts.topic) == [1]
    with pytest.raises(Fenced, match=r"job b{32} has taken over"):
        parts.opened(
            parts.sink(), replace(of_job("a"), restored=CheckpointId(1), predecessor=JobId("a" * 32))
        )
    former.close()


def test_a_predecessor_that_still_writes_is_not_ended_by_a_job_without_rows(parts: Parts) -> None:
    old, former = parts.opened(parts.sink(), of_job("a"))
    former.commit(permit(1), request(1, *parts.prepared(old, 1, 1)))
    _, started = parts.opened(parts.sink(), of_job("b", restored=1))
    former.commit(permit(2), request(2, *parts.prepared(old, 2, 2)))
    waiting = parts.prepared(old, 3, 3)
    assert isinstance(started, SeesEmptyCheckpoints)
    with pytest.raises(ConfigError, match=r"job a{32} writes the output"):
        started.empty_checkpoint(permit(2))
    former.commit(permit(3), request(3, *waiting))
    assert numbers(parts.servers, parts.topic) == [1, 2, 3]


def test_a_predecessor_that_wakes_up_commits_nothing_more(parts: Parts) -> None:
    """Its transactions were aborted: none of them may be taken for committed."""
    old, former = parts.opened(parts.sink(), of_job("a"))
    former.commit(permit(1), request(1, *parts.prepared(old, 1, 1)))
    waiting = parts.prepared(old, 2, 2)
    old.write(batch(3))
    old.flush(end_of_input=False)
    heir, committer = parts.opened(parts.sink(), of_job("b", restored=1))
    assert isinstance(committer, SeesEmptyCheckpoints)
    committer.empty_checkpoint(permit(2))
    old.write(batch(4))
    with pytest.raises(ConfigError, match=r"job b{32} writes|job b{32} has taken over"):
        old.flush(end_of_input=False)
    with pytest.raises(Fenced, match=r"job b{32} has taken over"):
        former.commit(permit(2), request(2, *waiting))
    committer.commit(permit(3), request(3, *parts.prepared(heir, 3, 20)))
    assert numbers(parts.servers, parts.topic) == [1, 20]


def test_a_sibling_of_a_job_without_rows_may_go_on_and_ends_what_it_had(parts: Parts) -> None:
    """From the same snapshot: the job without rows was a mistake, maybe. It has something open by now."""
    with_rows_left(parts)
    first, mistaken = parts.opened(parts.sink(), of_job("b", restored=1))
    assert isinstance(mistaken, SeesEmptyCheckpoints)
    mistaken.empty_checkpoint(permit(2))
    waiting = parts.prepared(first, 3, 30)
    idle(parts, "c", checkpoint=2)
    assert open_transactions(parts.servers, parts.topic) == []
    with pytest.raises(Fenced, match=r"job c{32} has taken over"):
        mistaken.commit(permit(3), request(3, *waiting))
    writer, last = parts.opened(parts.sink(), of_job("d", restored=1))
    last.commit(permit(2), request(2, *parts.prepared(writer, 2, 20)))
    assert numbers(parts.servers, parts.topic) == [1, 20]


def test_one_that_dies_in_the_middle_of_it_does_the_rest_when_it_is_restored(parts: Parts) -> None:
    with_rows_left(parts)
    committer = parts.sink().create_committer()
    assert isinstance(committer, KafkaCommitter)
    parts.made.append(committer)
    committer.open(of_job("b", restored=1))
    committer._line.take_over()  # killed before it has aborted anything
    assert len(open_transactions(parts.servers, parts.topic)) == 2
    own = replace(of_job("b", restored=2), predecessor=JobId("b" * 32))
    again = parts.sink().create_committer()
    assert isinstance(again, KafkaCommitter)
    parts.made.append(again)
    again.restore_state(committer.snapshot_state())
    again.open(own)
    again.empty_checkpoint(permit(3))
    assert open_transactions(parts.servers, parts.topic) == []
    assert numbers(parts.servers, parts.topic) == [1]
