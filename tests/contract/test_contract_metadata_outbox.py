"""What a reader of the outbox, and of the events, may rely on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract.given_metadata import ONE, TWO, commit, job, job_id
from tests.metadata_rows import rows
from unistream.base.errors import Fenced, NotFound
from unistream.metadata import tables
from unistream.metadata.store import SqlMetadataStore
from unistream.port.metadata import EventRecord
from unistream.port.retention import MetadataRetention

WRITERS = 4
COMMITS = 40


def test_a_commit_is_in_the_outbox_with_what_names_its_job(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(), ONE)
    seq = metadata.record_commit(commit(1, table_version=7), ONE)
    [row] = metadata.outbox()
    assert (row.seq, row.job_name, row.lineage) == (seq, "delays", "lineage")
    assert row.commit == commit(1, table_version=7)


def test_what_is_reported_again_is_in_the_outbox_once_unless_it_differs(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(), ONE)
    first = metadata.record_commit(commit(1), ONE)
    assert metadata.record_commit(commit(1), ONE) is None
    assert metadata.record_commit(commit(1, at_ms=99), ONE) is None, "the time of a report is not news"
    assert first is not None
    assert metadata.record_commit(commit(1, rows=5), ONE) == first + 1
    assert [(row.seq - first, row.commit.rows) for row in metadata.outbox()] == [(0, 1), (1, 5)]
    assert metadata.sinks(job_id(1))["out"].rows == 5


def test_a_reader_who_follows_the_numbers_misses_nothing_and_sees_no_gap(metadata: SqlMetadataStore) -> None:
    """Writers of several jobs at once; a larger number must not become visible before a smaller one."""
    for number in range(WRITERS):
        metadata.add_job(job(number), ONE)
    ended = threading.Event()

    def write(of: int) -> None:
        for number in range(1, COMMITS + 1):
            metadata.record_commit(commit(number, of), ONE)

    def read() -> list[int]:
        seen: list[int] = []
        while True:
            last_look = ended.is_set()
            page = metadata.outbox(after=seen[-1] if seen else 0, limit=7)
            seen += [row.seq for row in page]
            if not page and last_look:
                return seen

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        reader = pool.submit(read)
        for done in [pool.submit(write, number) for number in range(WRITERS)]:
            done.result()
        ended.set()
        seen = reader.result()
    assert seen == list(range(seen[0], seen[0] + WRITERS * COMMITS))


def test_numbers_go_on_after_all_rows_were_pruned(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(), ONE)
    first = metadata.record_commit(commit(1), ONE)
    assert first is not None
    assert sum(step.rows for step in metadata.prune(MetadataRetention(outbox_age_ms=5), 1_000, ONE)) == 1
    assert metadata.outbox() == []
    assert metadata.record_commit(commit(2), ONE) == first + 1


def test_a_transaction_that_fails_uses_up_no_number(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(), TWO)
    first = metadata.record_commit(commit(1), TWO)
    with pytest.raises(Fenced, match="epoch 2, refused was 1"):
        metadata.record_commit(commit(2), ONE)
    with pytest.raises(NotFound, match="no job"):
        metadata.record_commit(commit(1, of=9), TWO)
    assert first is not None
    assert metadata.record_commit(commit(2), TWO) == first + 1


def test_totals_of_a_sink_count_pruned_commits_and_those_are_not_counted_again(
    metadata: SqlMetadataStore,
) -> None:
    metadata.add_job(job(), ONE)
    for number in range(1, 11):
        metadata.record_commit(commit(number, rows=number, table_version=number), ONE)
        metadata.record_commit(commit(number, rows=100, sink_uid="other"), ONE)
    before = metadata.sinks(job_id(1))
    assert (before["out"].rows, before["out"].commits, before["out"].table_version) == (55, 10, 10)
    for keep in (4, 2):
        pruned = list(metadata.prune(MetadataRetention(commits=keep, outbox_age_ms=2_000), 1_000, ONE))
        assert sum(step.rows for step in pruned) == (12 if keep == 4 else 4)
        assert metadata.sinks(job_id(1)) == before
    assert [c.checkpoint_id for c in metadata.commits(job_id(1))] == [9, 9, 10, 10]
    assert metadata.record_commit(commit(3, rows=3, table_version=3), ONE) is None
    assert metadata.sinks(job_id(1)) == before


def test_each_state_of_a_job_is_an_event_and_other_writes_are_not(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(), ONE)
    stored = metadata.job(job_id(1))
    assert stored is not None
    running = job(state="RUNNING", changed_ms=5)
    stored = metadata.update_job(running, ONE)
    metadata.update_job(job(state="RUNNING", changed_ms=6, graph_json="{}", version=stored.version), ONE)
    metadata.record_event(EventRecord(job=job_id(1), at_ms=8, kind="rescaled", detail="2 -> 4"), ONE)
    found = metadata.events()
    assert [(e.at_ms, e.kind, e.detail) for e in found] == [
        (1, "state", "CREATED"),
        (5, "state", "RUNNING"),
        (8, "rescaled", "2 -> 4"),
    ]
    assert [e.id - found[0].id for e in found] == [0, 1, 2]
    assert metadata.events(after=found[1].id) == found[2:]
    assert metadata.events(job=job_id(9)) == []
    assert metadata.events(limit=1, job=job_id(1)) == found[:1]


def test_rows_that_change_carry_a_version_and_the_leader_that_wrote_them(
    metadata: SqlMetadataStore, database_url: str
) -> None:
    metadata.add_job(job(), ONE)
    metadata.record_commit(commit(1), ONE)
    metadata.record_commit(commit(1, rows=2), TWO)
    assert rows(database_url, tables.commits, "rows", "version", "leader_epoch") == [(2, 1, 2)]
    with pytest.raises(Fenced, match="written by a newer leader, refused was epoch 1"):
        metadata.record_commit(commit(1, rows=3), ONE)
    assert rows(database_url, tables.commits, "rows", "version", "leader_epoch") == [(2, 1, 2)]
