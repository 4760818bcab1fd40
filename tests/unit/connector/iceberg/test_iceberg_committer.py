"""Others who write, change and drop the table between a look and a commit; answers that do not come."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate

from tests.contract.sinks.case import batch, permit, request
from tests.eventually import WAIT_S
from tests.iceberg_lake import TABLE, Lake
from tests.unit.connector.iceberg.parts import Parts, answerless, between, rows
from unistream.base.errors import ConfigError, Fenced, OutcomeUnknown
from unistream.base.ids import LineageId
from unistream.connector.common import ATTEMPTS_MAX
from unistream.port.sink import CommitOutcome

FOREIGN = pa.table({"id": [100, 101], "name": ["foreign", "foreign"]})


def metadata_files(lake: Lake) -> set[Path]:
    return set(lake.warehouse.rglob("*.avro"))


def used_files(lake: Lake) -> set[Path]:
    """Manifests and manifest lists that a snapshot names."""
    with lake.table() as table:
        lists = [one.manifest_list for one in table.snapshots()]
        manifests = [each.manifest_path for one in table.snapshots() for each in one.manifests(table.io)]
    return {Path(one.removeprefix("file://")) for one in (*lists, *manifests)}


def test_an_append_of_somebody_else_is_kept_and_nothing_is_doubled(lake: Lake, parts: Parts) -> None:
    parts.add(1, batch(1))
    committables = parts.staged(2, batch(2, 3))
    tables = between(lambda: lake.change(lambda table: table.append(FOREIGN)), times=2)
    result = parts.committer(tables=tables, restored=1).commit(permit(2), request(2, *committables))
    assert (result.outcome, result.rows) == (CommitOutcome.COMMITTED, 2)
    assert lake.ids() == [1, 2, 3, 100, 100, 101, 101]
    assert metadata_files(lake) == used_files(lake), "what the refused commits had written was removed"


def test_an_open_committer_notices_what_others_did_since_its_last_commit(lake: Lake, parts: Parts) -> None:
    committer = parts.committer()
    for checkpoint in (1, 2, 3):
        committer.commit(
            permit(checkpoint), request(checkpoint, *parts.staged(checkpoint, batch(checkpoint)))
        )
        lake.change(lambda table: table.append(FOREIGN))
    assert [one for one in lake.ids() if one < 100] == [1, 2, 3]
    assert len(lake.ids()) == 9


def test_of_two_committers_with_one_checkpoint_one_commits(lake: Lake, parts: Parts) -> None:
    """As when the former one was paused behind its look, and wakes up."""
    committables = parts.staged(1, batch(1, 2))
    other = parts.committer()
    results = []
    tables = between(lambda: results.append(other.commit(permit(1), request(1, *committables))))
    results.append(parts.committer(tables=tables).commit(permit(1), request(1, *committables)))
    assert lake.ids() == [1, 2]
    assert [one.outcome for one in results] == [CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED]
    assert len(lake.summaries()) == 1


def test_conflicts_without_end_are_tried_again_later(lake: Lake, parts: Parts) -> None:
    parts.add(1, batch(1))
    committables = parts.staged(2, batch(2))
    tables = between(lambda: lake.change(lambda table: table.append(FOREIGN)), times=99)
    committer = parts.committer(tables=tables, attempts=2, restored=1)
    assert committer.commit(permit(2), request(2, *committables)).outcome is CommitOutcome.RETRY
    assert 2 not in lake.ids()


def test_lines_of_jobs_and_others_who_commit_at_once_lose_and_double_nothing(
    lake: Lake, parts: Parts
) -> None:
    sink, commits = parts.sink(on_foreign="append", partition_by="name"), 6
    parts.add(1, batch(0), sink)

    def line(number: int) -> None:
        """Rows 1000 * number, …; each commit twice."""
        lineage = LineageId(f"line {number}")
        writer = parts.writer(sink, lineage=lineage)
        committer = parts.committer(sink, lineage=lineage, attempts=ATTEMPTS_MAX)
        for checkpoint in range(1, commits + 1):
            rows = batch(1_000 * number + checkpoint)
            given = request(checkpoint, *parts.staged(checkpoint, rows, writer))
            for _ in range(2):
                while committer.commit(permit(checkpoint, lineage), given).outcome is CommitOutcome.RETRY:
                    pass

    def others() -> None:
        left = 3
        while left:
            with suppress(CommitFailedException):  # it has tried four times
                lake.change(lambda table: table.append(FOREIGN))
                left -= 1

    with ThreadPoolExecutor(4) as pool:
        for done in [*(pool.submit(line, number) for number in (1, 2, 3)), pool.submit(others)]:
            done.result(WAIT_S)
    ours = [1_000 * number + checkpoint for number in (1, 2, 3) for checkpoint in range(1, commits + 1)]
    assert lake.ids() == sorted([0, *ours, *[100, 101] * 3])
    assert metadata_files(lake) >= used_files(lake)


@pytest.mark.parametrize("happens", [True, False], ids=["it happened", "it did not"])
def test_an_answer_that_does_not_come_is_asked_for(lake: Lake, parts: Parts, happens: bool) -> None:
    committables = parts.staged(1, batch(1, 2))
    committer = parts.committer(tables=answerless(happens=happens, times=1))
    result = committer.commit(permit(1), request(1, *committables))
    assert (result.outcome, result.rows) == (CommitOutcome.COMMITTED, 2)
    assert lake.ids() == [1, 2]
    assert result.table_version == max(one.snapshot_id for one in _snapshots(lake))


def test_an_outcome_that_stays_unknown_deletes_nothing_and_is_committed_later(
    lake: Lake, parts: Parts
) -> None:
    committables = parts.staged(1, batch(1, 2))
    files = lake.files()
    committer = parts.committer(tables=answerless(happens=False, times=9), attempts=2)
    with pytest.raises(OutcomeUnknown, match=r"checkpoint 1 was committed is unknown after 2 attempts"):
        committer.commit(permit(1), request(1, *committables))
    assert lake.files() == files
    assert parts.committer(restored=1).commit(permit(1), request(1, *committables)).rows == 2
    assert lake.ids() == [1, 2]


def test_a_catalog_that_takes_long_for_each_answer_is_not_asked_for_ever(
    lake: Lake, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unistream.connector.common.target_committer.COMMIT_S_MAX", 0.0)
    committables = parts.staged(1, batch(1, 2))
    committer = parts.committer(tables=answerless(happens=False, times=9), attempts=9)
    with pytest.raises(OutcomeUnknown, match="is unknown after 1 attempt:"):
        committer.commit(permit(1), request(1, *committables))


# --- the table is changed between prepare and commit --------------------------------------------------


def test_files_keep_the_partition_spec_that_they_were_written_with(lake: Lake, parts: Parts) -> None:
    writer = parts.writer(parts.sink(partition_by="name"))
    committer = parts.committer()
    committer.commit(permit(1), request(1, *parts.staged(1, batch(1, 2), writer)))
    committables = parts.staged(2, batch(3, 4), writer)

    def evolve(table: Table) -> None:
        with table.update_spec() as update:
            update.add_field("id", "bucket[4]", "id_bucket")

    lake.change(evolve)
    committer.commit(permit(2), request(2, *committables))
    committer.commit(permit(3), request(3, *parts.staged(3, batch(5), writer)))
    newer = parts.writer(attempt=1, restored=3)
    committer.commit(permit(4), request(4, *parts.staged(4, batch(6), newer)))
    assert lake.ids() == [1, 2, 3, 4, 5, 6]
    assert lake.rows("SELECT id FROM t WHERE name = 'name 0' ORDER BY id") == [(3,), (6,)]
    with lake.table() as table:
        specs = {task.file.file_path: task.file.spec_id for task in table.scan().plan_files()}
    assert sorted(specs.values()) == [0, 0, 0, 0, 0, 1]


def test_columns_that_are_renamed_and_added_meanwhile_are_found_by_their_ids(
    lake: Lake, parts: Parts
) -> None:
    parts.add(1, batch(1))
    committables = parts.staged(2, batch(2))

    def evolve(table: Table) -> None:
        with table.update_schema() as update:
            update.rename_column("name", "title")
            update.add_column("more", _long())

    lake.change(evolve)
    parts.committer(restored=1).commit(permit(2), request(2, *committables))
    found = lake.rows("SELECT id, title, more FROM t ORDER BY id")
    assert found == [(1, "name 1", None), (2, "name 2", None)]


def test_a_table_that_was_dropped_is_refused(lake: Lake, parts: Parts) -> None:
    committables = parts.staged(1, batch(1))
    lake.drop()
    with pytest.raises(ConfigError, match=r"has files for the table with id .* but there is none now"):
        parts.committer().commit(permit(1), request(1, *committables))


def test_a_table_that_was_dropped_and_made_again_is_refused(lake: Lake, parts: Parts) -> None:
    committer = parts.committer()
    writer = parts.writer()
    committer.commit(permit(1), request(1, *parts.staged(1, batch(1), writer)))
    committables = parts.staged(2, batch(2), writer)
    state = committer.snapshot_state()
    lake.drop()
    with pytest.raises(ConfigError, match=r"had committed up to checkpoint 1 .* there is no table now"):
        committer.commit(permit(2), request(2, *committables))
    lake.create(FOREIGN.schema)
    with pytest.raises(ConfigError, match="the table there now has id"):
        committer.commit(permit(2), request(2, *committables))
    with pytest.raises(ConfigError, match=r"the table there now has id .*; nothing was written"):
        parts.committer(state=state, restored=1)
    assert lake.ids() == []


def test_a_writer_makes_no_table_in_the_place_of_one_that_was_dropped(lake: Lake, parts: Parts) -> None:
    writer = parts.writer()
    parts.staged(1, batch(1), writer)
    state = writer.snapshot_state(1)
    lake.drop()
    with pytest.raises(ConfigError, match="there is no such table any more"):
        parts.writer(state=state, attempt=1, restored=1).write(batch(2))
    with pytest.raises(Exception, match=r"lake\.rows"), lake.table():
        pass


# --- what proves that a checkpoint is committed -------------------------------------------------------


def forget_summaries(table: Table) -> None:
    """All snapshots but the newest, which is of somebody else, expire."""
    table.append(FOREIGN)
    head = table.current_snapshot()
    assert head is not None
    expired = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != head.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(expired).commit()


def forget_properties(table: Table) -> None:
    names = [name for name in table.properties if name.startswith("unistream.")]
    with table.transaction() as change:
        change.remove_properties(*names)


@pytest.mark.parametrize("forget", [forget_summaries, forget_properties])
def test_a_commit_is_recognised_by_what_is_left_of_it(lake: Lake, parts: Parts, forget: Any) -> None:
    committables = parts.staged(1, batch(1, 2))
    parts.committer().commit(permit(1), request(1, *committables))
    lake.change(forget)
    before = lake.ids()
    again = parts.committer(restored=1).commit(permit(1), request(1, *committables))
    assert (again.outcome, again.rows) == (CommitOutcome.ALREADY_COMMITTED, 0)
    assert lake.ids() == before
    last = parts.sink().last_commit("the sink")
    assert last is not None
    assert last.checkpoint == 1


def test_a_table_that_has_forgotten_all_is_refused(lake: Lake, parts: Parts) -> None:
    committer = parts.committer()
    committer.commit(permit(1), request(1, *parts.staged(1, batch(1))))
    lake.change(forget_summaries)
    lake.change(forget_properties)
    with pytest.raises(ConfigError, match="it has no commit of this sink now; nothing was written"):
        parts.committer(state=committer.snapshot_state(), restored=1)


def test_rows_that_somebody_rolls_back_do_not_come_back(lake: Lake, parts: Parts) -> None:
    committables = {n: parts.staged(n, batch(n)) for n in (1, 2)}
    committer = parts.committer()
    for checkpoint, staged in committables.items():
        committer.commit(permit(checkpoint), request(checkpoint, *staged))
    first = _snapshots(lake)[0].snapshot_id

    def roll_back(table: Table) -> None:
        update = SetSnapshotRefUpdate(snapshot_id=first, ref_name="main", type="branch")
        table.catalog.commit_table(table, (), (update,))

    lake.change(roll_back)
    assert lake.ids() == [1]
    again = parts.committer(state=committer.snapshot_state(), restored=2)
    again.commit(permit(2), request(2, *committables[2]))
    again.commit(permit(3), request(3, *parts.staged(3, batch(3))))
    assert lake.ids() == [1, 3]


# --- rewinds ------------------------------------------------------------------------------------------


def test_an_allowed_rewind_begins_again_and_fences_who_was_there_before(lake: Lake, parts: Parts) -> None:
    old = parts.committer()
    for checkpoint in (1, 2, 3):
        old.commit(permit(checkpoint), request(checkpoint, *parts.staged(checkpoint, batch(checkpoint))))
    sink = parts.sink(on_rewind="allow_duplicates")
    refused = r"\(snapshot \d+\).*up to checkpoint 3.* roll the table back to checkpoint 1 \(snapshot \d+\)"
    with pytest.raises(ConfigError, match=refused):
        parts.committer(restored=1)
    parts.committer(sink, restored=1)
    waiting = parts.staged(4, batch(9))
    with pytest.raises(Fenced, match="restored from an older checkpoint has taken over"):
        old.commit(permit(4), request(4, *waiting))
    # it dies behind its second checkpoint, before it has committed it; ids are used again
    committables = parts.staged(2, batch(20))
    heir = parts.committer(sink, restored=2, attempt=1)
    assert heir.commit(permit(2), request(2, *committables)).rows == 1
    assert heir.commit(permit(2), request(2, *committables)).outcome is CommitOutcome.ALREADY_COMMITTED
    assert heir.commit(permit(3), request(3, *parts.staged(3, batch(30)))).rows == 1
    assert lake.ids() == [1, 2, 3, 20, 30]
    assert "unistream.source-positions" not in lake.summaries()[-1]


def test_what_the_restored_checkpoint_lists_is_committed_behind_a_rewind_if_it_is_not_there(
    lake: Lake, parts: Parts
) -> None:
    listed = parts.staged(1, batch(1))
    committer = parts.committer()
    committer.commit(permit(1), request(1, *listed))
    first = _snapshots(lake)[0].snapshot_id
    committer.commit(permit(2), request(2, *parts.staged(2, batch(2))))
    sink = parts.sink(on_rewind="allow_duplicates")
    again = parts.committer(sink, restored=1)
    assert again.commit(permit(1), request(1, *listed)).outcome is CommitOutcome.ALREADY_COMMITTED
    assert lake.ids() == [1, 2]
    assert first != _snapshots(lake)[-1].snapshot_id


# --- another address, others' settings ----------------------------------------------------------------


def test_another_table_gets_what_is_new_and_what_was_staged_for_the_former_is_not_lost(
    lake: Lake, parts: Parts
) -> None:
    writer, committer = parts.writer(), parts.committer()
    committer.commit(permit(1), request(1, *parts.staged(1, batch(1), writer)))
    listed = parts.staged(2, batch(2), writer)
    moved = parts.sink("lake.others")
    elsewhere = parts.committer(moved, restored=2)
    with pytest.raises(ConfigError, match=r"now writes to lake.others .* output for lake.rows"):
        elsewhere.commit(permit(2), request(2, *listed))
    committer.commit(permit(2), request(2, *listed))
    again = parts.committer(moved, restored=2)
    assert again.commit(permit(2), request(2, *listed)).rows == 0
    new = parts.staged(3, batch(3), parts.writer(moved, attempt=1, restored=2))
    again.commit(permit(3), request(3, *new))
    assert (lake.ids(), lake.ids("lake.others")) == ([1, 2], [3])


def test_a_table_that_was_renamed_is_the_same_one(lake: Lake, parts: Parts) -> None:
    writer, committer = parts.writer(), parts.committer()
    committer.commit(permit(1), request(1, *parts.staged(1, batch(1), writer)))
    listed = parts.staged(2, batch(2), writer)
    with lake.catalog() as catalog:
        catalog.rename_table(TABLE, "lake.renamed")
    renamed = parts.committer(parts.sink("lake.renamed"), state=committer.snapshot_state(), restored=2)
    assert renamed.commit(permit(2), request(2, *listed)).rows == 1
    assert lake.ids("lake.renamed") == [1, 2]


def test_versions_that_are_reported_grow(lake: Lake, parts: Parts) -> None:
    """Of several commits that are reported together the greatest version counts."""
    committer = parts.committer()
    versions = [
        committer.commit(permit(n), request(n, *parts.staged(n, batch(n)))).table_version for n in range(1, 9)
    ]
    assert versions == sorted(set(versions), key=lambda one: one or 0)
    assert versions == [one.snapshot_id for one in _snapshots(lake)]
    assert all(one is not None and one < 2**53 for one in versions), "exact in a browser"


def test_a_property_that_somebody_has_damaged_is_named(lake: Lake, parts: Parts) -> None:
    parts.add(1, batch(1))

    def damage(table: Table) -> None:
        [name] = [one for one in table.properties if one.startswith("unistream.")]
        with table.transaction() as change:
            change.set_properties({name: "{"})

    lake.change(damage)
    with pytest.raises(ConfigError, match=r"table lake.rows: property 'unistream.commit.* is unreadable"):
        parts.committer(restored=1)


def test_the_description_of_a_table_has_its_columns_and_rows(lake: Lake, parts: Parts) -> None:
    assert parts.sink().description() is None
    parts.add(1, rows(id=[1, 2], at=pa.array([1, 2], pa.timestamp("us"))))
    found = parts.sink().description()
    assert found is not None
    assert (found.schema.names, found.rows) == (["id", "at"], 2)


def _snapshots(lake: Lake) -> Any:
    with lake.table() as table:
        return list(table.snapshots())


def _long() -> Any:
    from pyiceberg.types import LongType

    return LongType()


assert TABLE == "lake.rows", "the messages above name it"
