"""The outbox of commits over REST: pages by number, and bad requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.master.served_cluster import Api
from unistream.base.ids import CheckpointId, JobId, LeaderEpoch, LineageId
from unistream.client.remote.rest_client import RestClient
from unistream.metadata.store import SqlMetadataStore
from unistream.port.metadata import CommitRecord, JobRecord

JOB = JobId("a" * 32)


@pytest.fixture
def committed(api: Api) -> Iterator[Api]:
    """Five commits of a job."""
    store, epoch = SqlMetadataStore(api.cluster.url), LeaderEpoch(1)
    store.add_job(
        JobRecord(
            job=JOB, name="flow", lineage=LineageId("l"), state="RUNNING", target="local", submitted_ms=1
        ),
        epoch,
    )
    for n in range(1, 6):
        record = CommitRecord(
            job=JOB, sink_uid="lake", checkpoint_id=CheckpointId(n), at_ms=n, rows=10 * n, table_version=n
        )
        assert store.record_commit(record, epoch) is not None
    yield api
    store.close()


def test_commits_come_in_pages_in_their_order(committed: Api) -> None:
    with RestClient(str(committed.http.base_url)) as client:
        first = client.commits(limit=2)
        rest = client.commits(after=first[-1].seq)
        assert [one.commit.rows for one in (*first, *rest)] == [10, 20, 30, 40, 50]
        assert {(one.job_name, one.commit.sink_uid) for one in rest} == {("flow", "lake")}
        assert [one.seq for one in (*first, *rest)] == sorted({one.seq for one in (*first, *rest)})
        assert list(client.commits(after=rest[-1].seq)) == []


@pytest.mark.parametrize(
    "query",
    ["after=-1", "after=x", "after=1.5", f"after={2**63}", "limit=0", "limit=1001", "limit=", "after=²"],
)
def test_bad_numbers_are_named(api: Api, query: str) -> None:
    answer = api.http.get(f"/v1/unistream/commits?{query}")
    assert answer.status_code == 400, answer.text
    assert f"{query.partition('=')[0]}: " in answer.json()["errors"][0]
