"""Which run watches which job: attaching, heartbeats, taking over, and races between them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from tests.contract.given_metadata import ONE, job, job_id, snapshot
from tests.eventually import WAIT_S
from unistream.base.errors import ConfigError
from unistream.base.ids import LineageId
from unistream.metadata.store import SqlMetadataStore
from unistream.model.checkpoint_figures import SnapshotStatus
from unistream.model.snapshot_kind import SnapshotKind
from unistream.port.metadata import ArtifactRecord
from unistream.port.retention import MetadataRetention
from unistream.port.run_links import Line, LineKind, RunLink, RunLinks, Watcher

KEY = "prod/etl/delays"
RUNS = 6


def watcher(run: str = "run-1", attempt: int = 0, root: str = "run-1", step: str = "delays") -> Watcher:
    return Watcher(root_run=root, run=run, step=step, attempt=attempt)


FIRST = watcher()
RETRY = watcher("run-2")


@pytest.fixture
def links(metadata: SqlMetadataStore) -> RunLinks:
    return metadata.links


def test_a_key_is_linked_to_the_job_of_the_first_run(links: RunLinks) -> None:
    assert links.job_of_key(KEY) is None
    link = links.attach(KEY, job_id(1), FIRST, at_ms=10)
    assert link == RunLink(key=KEY, job=job_id(1), watcher=FIRST, attached_ms=10, heartbeat_ms=10)
    assert link.is_of(FIRST)
    assert links.job_of_key(KEY) == link
    assert links.keys_of_job(job_id(1)) == [link]
    assert links.keys_of_job(job_id(2)) == []


@pytest.mark.parametrize(
    ("second", "job_after"),
    [
        pytest.param(RETRY, 1, id="another run gets the link as it is"),
        pytest.param(watcher(step="other"), 1, id="and another step of the same run"),
        pytest.param(watcher(attempt=1), 2, id="the next attempt of the step gets the link"),
        pytest.param(FIRST, 2, id="the same attempt may start another job"),
    ],
)
def test_who_attaches_to_a_key_that_is_watched(links: RunLinks, second: Watcher, job_after: int) -> None:
    links.attach(KEY, job_id(1), FIRST, at_ms=10)
    link = links.attach(KEY, job_id(2), second, at_ms=11)
    assert link.is_of(second) == (job_after == 2)
    assert link.job == job_id(job_after)
    assert links.job_of_key(KEY) == link


def test_an_attempt_that_was_replaced_does_not_get_the_link_back(links: RunLinks) -> None:
    links.attach(KEY, job_id(1), FIRST, at_ms=10)
    links.attach(KEY, job_id(1), watcher(attempt=1), at_ms=11)
    assert not links.attach(KEY, job_id(3), FIRST, at_ms=12).is_of(FIRST)
    assert not links.heartbeat(KEY, FIRST, at_ms=13)
    assert not links.release(KEY, FIRST, at_ms=13)


def test_a_heartbeat_is_counted_for_the_watcher_only_and_never_goes_back(links: RunLinks) -> None:
    assert not links.heartbeat(KEY, FIRST, at_ms=1)
    links.attach(KEY, job_id(1), FIRST, at_ms=10)
    assert links.heartbeat(KEY, FIRST, at_ms=20)
    assert links.heartbeat(KEY, FIRST, at_ms=15)
    assert not links.heartbeat(KEY, RETRY, at_ms=30)
    link = links.job_of_key(KEY)
    assert link is not None
    assert link.heartbeat_ms == 20


@pytest.mark.parametrize(
    ("at_ms", "is_taken"),
    [
        pytest.param(69, False, id="its watcher was heard of a moment ago"),
        pytest.param(70, True, id="its watcher is silent for long enough"),
    ],
)
def test_a_link_is_taken_over_from_a_silent_watcher(links: RunLinks, at_ms: int, is_taken: bool) -> None:
    assert links.take_over(KEY, RETRY, at_ms=1, silent_ms=50) is None
    links.attach(KEY, job_id(1), FIRST, at_ms=10)
    links.heartbeat(KEY, FIRST, at_ms=20)
    link = links.take_over(KEY, RETRY, at_ms=at_ms, silent_ms=50)
    assert link is not None
    assert link.is_of(RETRY) is is_taken
    assert link.job == job_id(1), "the job is the same: who takes over attaches to it"
    assert links.heartbeat(KEY, FIRST, at_ms=at_ms) is not is_taken


def test_a_released_link_may_be_taken_at_once(links: RunLinks) -> None:
    links.attach(KEY, job_id(1), FIRST, at_ms=10)
    assert links.release(KEY, FIRST, at_ms=11)
    assert not links.heartbeat(KEY, FIRST, at_ms=12)
    released = links.job_of_key(KEY)
    assert released is not None
    assert (released.job, released.released_ms) == (job_id(1), 11)
    taken = links.take_over(KEY, RETRY, at_ms=12, silent_ms=1_000)
    assert taken is not None
    assert taken.is_of(RETRY)
    assert links.release(KEY, RETRY, at_ms=13)
    assert links.attach(KEY, job_id(2), FIRST, at_ms=14).is_of(FIRST)
    assert [(a.watcher.run, a.job, a.at_ms) for a in links.attachments(KEY)] == [
        ("run-1", job_id(2), 14),
        ("run-2", job_id(1), 12),
        ("run-1", job_id(1), 10),
    ]


def together(work: Callable[[int], RunLink | None]) -> list[RunLink | None]:
    """Each run of another thread, at the same moment."""
    start = threading.Barrier(RUNS)

    def run(number: int) -> RunLink | None:
        start.wait(WAIT_S)
        return work(number)

    with ThreadPoolExecutor(RUNS) as pool:
        return list(pool.map(run, range(RUNS)))


def check_one_has_it(links: RunLinks, key: str, found: list[RunLink | None]) -> None:
    stored = links.job_of_key(key)
    owners = [n for n, link in enumerate(found) if link is not None and link.is_of(watcher(f"r{n}"))]
    assert len(owners) == 1
    assert stored is not None
    assert stored.watcher == watcher(f"r{owners[0]}")
    assert all(link == stored for link in found), "the others see whose it is"


def test_of_runs_that_attach_at_once_one_gets_the_key(links: RunLinks) -> None:
    for n in range(10):
        key = f"{KEY}-{n}"
        found = together(lambda i, key=key: links.attach(key, job_id(i), watcher(f"r{i}"), at_ms=10))  # type: ignore[misc]
        check_one_has_it(links, key, found)


def test_of_runs_that_take_over_at_once_one_gets_the_key(links: RunLinks) -> None:
    for n in range(10):
        key = f"{KEY}-{n}"
        links.attach(key, job_id(1), FIRST, at_ms=10)
        found = together(
            lambda i, key=key: links.take_over(key, watcher(f"r{i}"), at_ms=100, silent_ms=50)  # type: ignore[misc]
        )
        check_one_has_it(links, key, found)
        assert len(links.attachments(key)) == 2


def test_a_heartbeat_and_a_take_over_at_once_never_both_succeed(links: RunLinks) -> None:
    for n in range(20):
        key = f"{KEY}-{n}"
        links.attach(key, job_id(1), FIRST, at_ms=10)
        with ThreadPoolExecutor(2) as pool:
            beat = pool.submit(links.heartbeat, key, FIRST, 100)
            taken = pool.submit(links.take_over, key, RETRY, 100, 50)
            link = taken.result()
            assert link is not None
            if beat.result() and link.is_of(RETRY):  # the heartbeat came first and was too old to count
                pytest.fail("both believe that they watch")


@pytest.mark.parametrize("bad", ["", "k" * 256, "a\0b"])
def test_a_key_that_no_database_takes_is_refused(links: RunLinks, bad: str) -> None:
    with pytest.raises(ConfigError, match="the key of a link has 1 to 255 characters"):
        links.attach(bad, job_id(1), FIRST, at_ms=1)


# --- lines of jobs --------------------------------------------------------------------------------


def test_the_last_snapshot_of_a_line_is_that_of_its_newest_job_that_has_one(
    metadata: SqlMetadataStore,
) -> None:
    for number in (1, 2, 3, 4):
        other = number == 4
        metadata.add_job(
            job(number, name="other" if other else "delays", lineage=LineageId("b" if other else "a")), ONE
        )
        metadata.links.attach("key-4" if other else KEY, job_id(number), FIRST, at_ms=number)
    metadata.record_checkpoint(job_id(1), snapshot(9, at_ms=10), ONE)
    metadata.record_checkpoint(job_id(2), snapshot(3, at_ms=20), ONE)
    metadata.record_checkpoint(job_id(2), snapshot(4, at_ms=30, status=SnapshotStatus.FAILED), ONE)
    metadata.record_checkpoint(job_id(3), snapshot(1, at_ms=40, status=SnapshotStatus.IN_PROGRESS), ONE)
    metadata.record_checkpoint(job_id(4), snapshot(1, at_ms=50), ONE)
    for line in (Line(LineKind.KEY, KEY), Line(LineKind.NAME, "delays"), Line(LineKind.LINEAGE, "a")):
        found = metadata.links.last_snapshot_of_line(line)
        assert found is not None
        assert (found.job, found.checkpoint_id, found.path) == (job_id(2), 3, "/chk-3"), line
        assert metadata.links.last_snapshot_of_line(msgspec.structs.replace(line, value="none")) is None


def test_a_savepoint_outlives_its_job_in_the_line_of_its_name(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(ended_ms=9), ONE)
    savepoint = snapshot(5, kind=SnapshotKind.TERMINATE)
    metadata.record_checkpoint(job_id(1), savepoint, ONE)
    list(metadata.prune(MetadataRetention(jobs=0), 1_000, ONE))
    assert metadata.job(job_id(1)) is None
    found = metadata.links.last_snapshot_of_line(Line(LineKind.NAME, "delays"))
    assert found is not None
    assert (found.kind, found.path) == (SnapshotKind.TERMINATE, "/chk-5")


# --- artifacts ------------------------------------------------------------------------------------


def artifact(name: str, at_ms: int) -> ArtifactRecord:
    return ArtifactRecord(sha256=name * 64, size_bytes=7, created_ms=at_ms, used_ms=at_ms)


def test_an_artifact_is_unused_when_no_recorded_job_refers_to_it(metadata: SqlMetadataStore) -> None:
    metadata.add_job(job(1), ONE)
    metadata.add_job(job(2, ended_ms=5), ONE)
    metadata.artifacts.use(job_id(1), artifact("a", 10), ONE)
    metadata.artifacts.use(job_id(2), artifact("b", 20), ONE)
    metadata.artifacts.use(job_id(2), artifact("a", 30), ONE)
    assert [a.sha256[0] for a in metadata.artifacts.of_job(job_id(2))] == ["a", "b"]
    assert metadata.artifacts.unused(1_000) == []
    assert not metadata.artifacts.forget("b" * 64)
    list(metadata.prune(MetadataRetention(age_ms=1), 1_000, ONE))
    assert metadata.artifacts.unused(20) == []
    [unused] = metadata.artifacts.unused(21)
    assert unused == artifact("b", 20)
    assert metadata.artifacts.forget(unused.sha256)
    assert metadata.artifacts.unused(1_000) == []
    [kept] = metadata.artifacts.of_job(job_id(1))
    assert (kept.created_ms, kept.used_ms) == (10, 30)
