"""The master is killed at the end of a job: at the final checkpoint, at the notices, at the note of the
result, at the clean-up, and between the two savepoints of a drain. The job is begun again by hand from the
newest snapshot that is left, and each table is exactly right, with one commit.

Some places are passed again by the job that goes on, so one row is the way of one job through several lives:
each dies at its place, and the last one comes to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import unistream as us
from tests.integration.cascaded_sinks import ONLY_THE_FINAL, check_cascade, commits_of
from tests.integration.crash_runs import OF_MATRIX, Command, Crashes, Lives, await_info, commands_in
from tests.integration.side_input import ONLY_THE_DRAIN, assert_exact, assert_resumed, prepare, read_before
from unistream.base.errors import Unreachable
from unistream.model.snapshot_kind import SnapshotKind

WHOLE = (SnapshotKind.SAVEPOINT, SnapshotKind.TERMINATE)  # what a drain leaves

# --- a bounded job ------------------------------------------------------------------------------------


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[Lives]:
    (tmp_path / "lake").mkdir()
    with commands_in(tmp_path) as command:
        yield Lives(tmp_path, command, "tests.integration.cascaded_sinks:build", ONLY_THE_FINAL)


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(
            (
                *("manifest.before_create", "manifest.created", "commit.recorded"),
                *("result.before_record", "result.recorded"),
            ),
            id="before the manifest, behind it, then in each life that only commits",
        ),
        pytest.param(("trigger.sent", "ack.received", "notify.sent"), id="around the final checkpoint"),
        pytest.param(("result.before_record",), id="before the result"),
        pytest.param(("retention.before_delete",), id="before the final checkpoint is removed"),
    ],
)
def test_a_bounded_job_whose_master_dies_in_its_final_phase_commits_once(
    crashes: Crashes, bounded: Lives, points: tuple[str, ...]
) -> None:
    for point in points:
        bounded.assert_killed(bounded.start(**crashes.environment(point)))
    crashes.assert_happened()
    last = bounded.start()
    assert last.wait() == 0, last.err
    check_cascade(bounded.folder / "lake")
    assert {len(ids) for ids in commits_of(bounded.folder / "lake").values()} == {1}


def test_a_bounded_job_that_has_cleaned_up_leaves_nothing_to_go_on_from(
    crashes: Crashes, bounded: Lives
) -> None:
    bounded.assert_killed(bounded.start(**crashes.environment("retention.deleted")))
    crashes.assert_happened()
    assert bounded.snapshots == []
    check_cascade(bounded.folder / "lake")
    assert {len(ids) for ids in commits_of(bounded.folder / "lake").values()} == {1}


# --- a drain ------------------------------------------------------------------------------------------


@pytest.fixture
def drained(tmp_path: Path) -> Iterator[Lives]:
    prepare(tmp_path)
    with commands_in(tmp_path) as command:
        yield Lives(tmp_path, command, "tests.integration.side_input:build", ONLY_THE_DRAIN)


def die_draining(lives: Lives, life: Command) -> None:
    """Windows are open when the drain begins, in which the master dies."""
    with lives.watch(life) as (client, job):
        await_info(
            client, job, lambda info: info.state == "RUNNING" and info.metrics.get("records_in", 0) > 2_000
        )
        with pytest.raises(Unreachable):
            client.client(job).stop(drain=True, target=str(lives.folder / "savepoints"))
    lives.assert_killed(life)


def kinds(lives: Lives) -> list[SnapshotKind]:
    return [manifest.kind for _, manifest in lives.snapshots]


def assert_finalized(lives: Lives) -> None:
    """The newest drain is complete when what its terminal savepoint lists is committed."""
    terminal = next(path for path, one in reversed(lives.snapshots) if one.kind is SnapshotKind.TERMINATE)
    refused = lives.start(terminal)
    assert refused.wait() != 0
    assert "terminal savepoint of a job that was drained" in refused.err
    assert lives.newest is not None
    assert str(lives.newest) in refused.err.replace("\n", "")
    us.finalize_savepoint(str(terminal))
    assert_exact(lives.folder, read_before(str(lives.newest)))
    assert us.finalize_savepoint(str(terminal)).had_nothing_to_do


@OF_MATRIX
def test_a_drain_whose_master_dies_is_begun_again_from_its_resumable_savepoint_and_then_finalized(
    crashes: Crashes, drained: Lives
) -> None:
    die_draining(drained, drained.start(**crashes.environment("manifest.before_create")))
    assert drained.newest is None
    die_draining(drained, drained.start(**crashes.environment("manifest.created")))
    assert kinds(drained) == [SnapshotKind.SAVEPOINT], "the resumable one alone"
    die_draining(drained, drained.start(**crashes.environment("manifest.created:2")))
    assert kinds(drained) == [SnapshotKind.SAVEPOINT, *WHOLE]
    die_draining(drained, drained.start(**crashes.environment("notify.sent")))
    crashes.assert_happened()
    assert kinds(drained) == [SnapshotKind.SAVEPOINT, *WHOLE, *WHOLE]
    assert_finalized(drained)


def test_a_drain_whose_master_dies_at_the_note_of_the_result_has_committed_all_and_is_gone_on_from(
    crashes: Crashes, drained: Lives
) -> None:
    die_draining(drained, drained.start(**crashes.environment("result.before_record")))
    assert kinds(drained) == [*WHOLE]
    first = read_before(str(drained.newest))
    assert_exact(drained.folder, first)
    die_draining(drained, drained.start(**crashes.environment("result.recorded")))
    assert kinds(drained) == [*WHOLE, *WHOLE]
    crashes.assert_happened()
    second = read_before(str(drained.newest))
    assert len(second) > len(first)
    assert_resumed(drained.folder, second, first)
    for path, _ in drained.snapshots:
        assert us.finalize_savepoint(str(path)).had_nothing_to_do
