"""Staging tables are removed when nobody needs them, and a checkpoint that lists one that is gone is
committed if it can be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import unistream as us
from tests.contract.sinks.case import batch, permit, request
from tests.integration.test_sql_sink import Parts, ids, query, stages, url
from unistream.base.errors import CorruptSnapshot
from unistream.port.sink import CommitOutcome
from unistream.testing import MiniCluster

__all__ = ["url"]  # the fixture

BATCH = {"execution.runtime-mode": "BATCH", "parallelism.default": "1"}


@pytest.fixture
def parts(url: str) -> Iterator[Parts]:
    made = Parts(url)
    yield made
    for one in made.made:
        one.close()


def test_a_line_of_bounded_jobs_for_each_day_leaves_no_staging_tables(url: str) -> None:
    with MiniCluster() as cluster:
        for day in range(2):
            env = us.Environment(BATCH)
            rows = env.from_collection([{"id": day * 10 + n} for n in range(3)])
            rows.uid("rows").sink_to(us.SqlSink(url, "rows", on_foreign="append")).uid("table")
            assert cluster.execute(env, f"day {day}").state == "FINISHED"
            assert stages(url) == []
    assert ids(url) == [0, 1, 2, 10, 11, 12]


def test_a_staging_table_that_another_attempt_writes_to_stays(parts: Parts) -> None:
    """It is removed only if it is empty, and nobody waits for that."""
    once = {"checkpointing": False}
    prepared = parts.prepared(parts.writer(**once), 1, batch(1))
    later = parts.writer(**once, attempt=1, index=1)
    parts.prepared(later, 1, batch(7))
    committer = parts.committer(**once)
    committer.commit(permit(1), request(1, *prepared))
    assert len(stages(parts.url)) == 1
    assert ids(parts.url) == [1]


def test_a_checkpoint_that_is_committed_needs_its_staging_table_no_more(parts: Parts) -> None:
    """Somebody has removed it, as the guide says how."""
    prepared = parts.prepared(parts.writer(), 1, batch(1))
    parts.committer().commit(permit(1), request(1, *prepared))
    [stage] = stages(parts.url)
    query(parts.url, f"DROP TABLE {stage}")
    again = parts.committer(restored=1)
    assert again.commit(permit(1), request(1, *prepared)).outcome is CommitOutcome.ALREADY_COMMITTED
    new = parts.prepared(parts.writer(restored=1, attempt=1), 2, batch(2))
    again.commit(permit(2), request(2, *new))
    assert ids(parts.url) == [1, 2]


def test_a_checkpoint_that_is_not_committed_names_the_staging_table_that_is_gone(parts: Parts) -> None:
    prepared = parts.prepared(parts.writer(), 1, batch(1, 2))
    [stage] = stages(parts.url)
    query(parts.url, f"DROP TABLE {stage}")
    with pytest.raises(CorruptSnapshot, match=rf"of 2 rows .* {stage} .* 0 are there.*nothing was committed"):
        parts.committer().commit(permit(1), request(1, *prepared))
