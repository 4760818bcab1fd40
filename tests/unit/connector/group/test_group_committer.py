"""The committer of a commit group, over real tables: half a commit, a repetition, two committers, silence."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

import unistream as us
from tests.contract.sinks.case import LINEAGE, batch, context, permit
from tests.eventually import WAIT_S
from tests.iceberg_lake import Lake
from unistream.api.described import described
from unistream.base.errors import ConfigError, CorruptSnapshot, Fenced, NotFound
from unistream.base.ids import CheckpointId, JobId, LineageId, OperatorUid
from unistream.connector.catalogue import committer_of
from unistream.connector.delta.committer import DeltaCommitter
from unistream.connector.delta.table import DeltaSinkTable, TableCommit
from unistream.connector.group import GroupSink, read_group
from unistream.connector.group.committer import GroupCommitter
from unistream.connector.group.file_log import FileGroupLog
from unistream.port.group import RECORDS_KEPT, GroupCommit, GroupOptions, decode_member
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, CommitResult, Committer, Sink, SinkWriter

A, B = OperatorUid("a"), OperatorUid("b")


@dataclass
class Shop:
    """A group of two sinks with one writer each.

    Attributes:
        where: Of its records.
        sinks: By uid.
        ids: What a reader of the newest record sees in each table.
    """

    options: GroupOptions
    where: str
    sinks: dict[OperatorUid, Sink]
    ids: Callable[[GroupCommit], dict[str, list[int]]]
    made: list[Any] = field(default_factory=list)
    writers: dict[OperatorUid, SinkWriter] = field(default_factory=dict)
    lineage: LineageId = LINEAGE

    def staged(self, checkpoint: int, rows: dict[OperatorUid, Sequence[int]]) -> CommitRequest:
        """What writers prepare for a checkpoint."""
        payloads = []
        for uid, ids in rows.items():
            writer = self._writer(uid)
            writer.write(batch(*ids))
            writer.flush(end_of_input=False)
            payloads += [
                self.sink.wrapped(uid, one) for one in writer.prepare_commit(CheckpointId(checkpoint))
            ]
        return CommitRequest(CheckpointId(checkpoint), tuple(payloads))

    def _writer(self, uid: OperatorUid) -> SinkWriter:
        if uid not in self.writers:
            self.writers[uid] = self.sinks[uid].create_writer()
            self.made.append(self.writers[uid])
            self.writers[uid].open(changed(context(lineage=self.lineage), sink_uid=uid), [])
        return self.writers[uid]

    @property
    def sink(self) -> GroupSink:
        return GroupSink(self.options, self.sinks)

    def committer(self, *, state: Sequence[bytes] = (), **changes: Any) -> GroupCommitter:
        found = self.sink.create_committer()
        assert isinstance(found, GroupCommitter)
        self.made.append(found)
        found.restore_state(state)
        found.open(changed(context(lineage=self.lineage), sink_uid=OperatorUid("shop"), **changes))
        return found

    def seen(self) -> dict[str, list[int]]:
        return self.ids(read_group(self.where, "shop"))


def delta_ids(found: GroupCommit) -> dict[str, list[int]]:
    return {
        uid: sorted(DeltaTable(one.address, version=one.version).to_pyarrow_table()["id"].to_pylist())
        for uid, one in found.tables.items()
        if one.kind == "delta"
    }


def two_delta(tmp_path: Path) -> Shop:
    sinks: dict[OperatorUid, Sink] = {uid: us.DeltaSink(str(tmp_path / uid)) for uid in (A, B)}
    options = GroupOptions(name="shop", location=str(tmp_path / "log"))
    return Shop(options, str(tmp_path / "log"), sinks, delta_ids)


def delta_and_iceberg(tmp_path: Path) -> Shop:
    lake = Lake(tmp_path)

    def ids(found: GroupCommit) -> dict[str, list[int]]:
        seen = delta_ids(found)
        if "b" in found.tables:
            with lake.table() as table:
                rows = table.scan(snapshot_id=found.tables["b"].version).to_arrow()
            seen["b"] = sorted(rows["id"].to_pylist())
        return seen

    sinks: dict[OperatorUid, Sink] = {
        A: us.DeltaSink(str(tmp_path / "a")),
        B: us.IcebergSink("lake.rows", catalog_properties=lake.properties),
    }
    return Shop(GroupOptions(name="shop", location=str(tmp_path / "log")), str(tmp_path / "log"), sinks, ids)


def delta_and_sqlite(tmp_path: Path) -> Shop:
    url = f"sqlite:///{tmp_path / 'b.db'}"

    def ids(found: GroupCommit) -> dict[str, list[int]]:
        with sqlite3.connect(tmp_path / "b.db") as database:
            rows = database.execute("SELECT id FROM b ORDER BY id").fetchall() if "b" in found.tables else []
        return {**delta_ids(found), **({"b": [row[0] for row in rows]} if "b" in found.tables else {})}

    sinks: dict[OperatorUid, Sink] = {A: us.DeltaSink(str(tmp_path / "a")), B: us.SqlSink(url, "b")}
    return Shop(GroupOptions(name="shop", database=url), url, sinks, ids)


def two_sqlite(tmp_path: Path) -> Shop:
    url = f"sqlite:///{tmp_path / 'both.db'}"

    def ids(found: GroupCommit) -> dict[str, list[int]]:
        with sqlite3.connect(tmp_path / "both.db") as database:
            there = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
            return {
                uid: [row[0] for row in database.execute(f"SELECT id FROM {uid} ORDER BY id")]
                for uid in found.tables
                if uid in there
            }

    sinks: dict[OperatorUid, Sink] = {A: us.SqlSink(url, "a"), B: us.SqlSink(url, "b")}
    return Shop(GroupOptions(name="shop", database=url), url, sinks, ids)


KINDS = (two_delta, delta_and_iceberg, delta_and_sqlite, two_sqlite)
WITH_VERSIONS = KINDS[:2]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    found: Shop = request.param(tmp_path)
    yield found
    for one in found.made:
        one.close()


def test_checkpoints_become_visible_one_after_the_other(shop: Shop) -> None:
    committer = shop.committer()
    first, second = shop.staged(1, {A: [1], B: [1]}), shop.staged(2, {A: [2, 3], B: [2]})
    with pytest.raises(NotFound, match="commit group 'shop' has no record there"):
        shop.seen()
    assert committer.commit(permit(1), first).outcome is CommitOutcome.COMMITTED
    assert shop.seen() == {"a": [1], "b": [1]}
    done = committer.commit(permit(2), second)
    assert (done.rows, [(uid, one.rows) for uid, one in done.members]) == (3, [("a", 2), ("b", 1)])
    assert shop.seen() == {"a": [1, 2, 3], "b": [1, 2]}
    found = read_group(shop.where, "shop")
    assert (found.number, found.checkpoint, found.job) == (2, 2, "0" * 32)


def test_what_is_repeated_changes_nothing(shop: Shop) -> None:
    one = shop.staged(1, {A: [1], B: [1]})
    shop.committer().commit(permit(1), one)
    before = read_group(shop.where, "shop")
    again = shop.committer(restored=CheckpointId(1), predecessor=JobId("0" * 32))
    done = again.commit(permit(1), one)
    assert done.outcome is CommitOutcome.ALREADY_COMMITTED
    assert {one.outcome for _, one in done.members} == {CommitOutcome.ALREADY_COMMITTED}
    assert read_group(shop.where, "shop") == before


def test_several_checkpoints_of_one_notification_are_one_record(shop: Shop) -> None:
    first, second = shop.staged(1, {A: [1]}), shop.staged(2, {A: [2], B: [5]})
    shop.committer().commit_all(permit(2), [first, second])
    found = read_group(shop.where, "shop")
    assert (found.number, found.checkpoint) == (1, 2)
    assert shop.seen() == {"a": [1, 2], "b": [5]}


def test_a_member_without_rows_keeps_its_version(shop: Shop) -> None:
    committer = shop.committer()
    committer.commit(permit(1), shop.staged(1, {A: [1], B: [1]}))
    committer.commit(permit(2), shop.staged(2, {A: [2]}))
    assert shop.seen() == {"a": [1, 2], "b": [1]}
    after = shop.committer(restored=CheckpointId(2), predecessor=JobId("0" * 32))
    after.commit(permit(3), shop.staged(3, {B: [3]}))
    assert shop.seen() == {"a": [1, 2], "b": [1, 3]}


def test_a_table_that_was_there_is_named_before_its_first_commit(tmp_path: Path) -> None:
    shop = two_delta(tmp_path)
    former = us.DeltaSink(str(tmp_path / "b")).create_writer()
    former.open(context(lineage=LineageId("other")), [])
    former.write(batch(9))
    former.flush(end_of_input=True)
    made = former.prepare_commit(CheckpointId(1))
    other = us.DeltaSink(str(tmp_path / "b")).create_committer()
    assert other is not None
    other.open(context(lineage=LineageId("other")))
    other.commit(permit(1, LineageId("other")), CommitRequest(CheckpointId(1), tuple(made)))
    shop.sinks[B] = us.DeltaSink(str(tmp_path / "b"), on_foreign="append")
    shop.committer().commit(permit(1), shop.staged(1, {A: [1]}))
    assert shop.seen() == {"a": [1], "b": [9]}


@pytest.mark.parametrize("kind", WITH_VERSIONS)
def test_half_a_commit_is_not_seen_and_is_finished_by_the_next(
    tmp_path: Path, kind: Callable[[Path], Shop]
) -> None:
    """The second member's file is away for a while."""
    shop = kind(tmp_path)
    committer = shop.committer()
    committer.commit(permit(1), shop.staged(1, {A: [1], B: [1]}))
    second = shop.staged(2, {A: [2], B: [2]})
    file = max((p for p in tmp_path.rglob("*.parquet")), key=lambda p: p.stat().st_mtime_ns)
    file.rename(tmp_path / "away")
    with pytest.raises(CorruptSnapshot):
        committer.commit(permit(2), second)
    assert sorted(DeltaTable(str(tmp_path / "a")).to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    assert shop.seen() == {"a": [1], "b": [1]}, "readers of the record see none of it"
    (tmp_path / "away").rename(file)
    again = shop.committer(
        state=committer.snapshot_state(), restored=CheckpointId(2), predecessor=JobId("0" * 32)
    )
    outcomes = dict(again.commit(permit(2), second).members)
    assert outcomes[A].outcome is CommitOutcome.ALREADY_COMMITTED
    assert outcomes[B].outcome is CommitOutcome.COMMITTED
    assert shop.seen() == {"a": [1, 2], "b": [1, 2]}


class SlowSink(us.DeltaSink):
    """Something happens before each of its commits."""

    before: Callable[[], object]

    def create_committer(self) -> Committer | None:
        before = self.before

        class SlowTable(DeltaSinkTable):
            def append(self, commit: TableCommit) -> None:
                before()
                super().append(commit)

        made = super().create_committer()
        assert isinstance(made, DeltaCommitter)
        made._tables = SlowTable
        return made


class SecondSink(us.DeltaSink):
    """Its commits begin after another one has."""

    first: threading.Event

    def create_committer(self) -> Committer | None:
        first = self.first

        class Second(DeltaCommitter):
            def commit_all(self, permit: CommitPermit, requests: Sequence[CommitRequest]) -> CommitResult:
                assert first.wait(WAIT_S)
                return super().commit_all(permit, requests)

        made = super().create_committer()
        assert isinstance(made, DeltaCommitter)
        made.__class__ = Second
        return made


def test_members_are_committed_at_the_same_time(tmp_path: Path) -> None:
    shop = two_delta(tmp_path)
    meeting = threading.Barrier(2, timeout=WAIT_S)  # broken, if one comes alone
    for uid in (A, B):
        shop.sinks[uid] = SlowSink(str(tmp_path / uid))
        shop.sinks[uid].before = meeting.wait  # type: ignore[attr-defined]
    shop.committer().commit(permit(1), shop.staged(1, {A: [1], B: [1]}))
    assert shop.seen() == {"a": [1], "b": [1]}


def test_a_member_that_fails_is_reported_when_the_others_have_ended(tmp_path: Path) -> None:
    """A commit that is still under way would meet the one of the restored committer."""
    shop = two_delta(tmp_path)
    begun = threading.Event()
    shop.sinks[A] = SecondSink(str(tmp_path / A))
    shop.sinks[A].first = begun  # type: ignore[attr-defined]
    shop.sinks[B] = SlowSink(str(tmp_path / B))
    shop.sinks[B].before = lambda: (begun.set(), time.sleep(0.3))  # type: ignore[attr-defined]
    one = shop.staged(1, {A: [1], B: [1]})
    next((tmp_path / "a").rglob("*.parquet")).unlink()
    with pytest.raises(CorruptSnapshot):
        shop.committer().commit(permit(1), one)
    assert DeltaTable(str(tmp_path / "b")).to_pyarrow_table()["id"].to_pylist() == [1]
    with pytest.raises(NotFound):
        shop.seen()


def test_one_that_wakes_up_behind_its_successor_records_nothing(tmp_path: Path) -> None:
    """It has committed its tables, and stood still before the record."""
    shop = two_delta(tmp_path)
    sleeper = shop.committer()
    first = shop.staged(1, {A: [1], B: [1]})
    sleeper.commit(permit(1), first)
    before = read_group(shop.where, "shop")
    successor = shop.committer(job=JobId("b" * 32), restored=CheckpointId(1), predecessor=JobId("0" * 32))
    successor.commit(permit(2), shop.staged(2, {A: [2], B: [2]}))
    with pytest.raises(Fenced, match=f"job {'b' * 32} has taken over"):
        sleeper._record(FileGroupLog(shop.where, "shop"), CheckpointId(2))
    assert shop.seen() == {"a": [1, 2], "b": [1, 2]}
    assert read_group(shop.where, "shop").number == before.number + 1


def test_another_line_is_refused_and_writes_nothing(shop: Shop) -> None:
    shop.committer().commit(permit(1), shop.staged(1, {A: [1], B: [1]}))
    with pytest.raises(ConfigError, match="another line of jobs"):
        shop.sink.check_new_line("")
    shop.sink.check_new_line(context().lineage)
    with pytest.raises(ConfigError, match="another line of jobs"):
        shop.committer(lineage=LineageId("other"))


def test_a_line_that_appends_fences_nobody_and_takes_nothing_back(shop: Shop, tmp_path: Path) -> None:
    """A bounded job next to the running one; then that one starts again, and has no more rows of b."""
    running = shop.committer()
    running.commit(permit(1), shop.staged(1, {A: [1], B: [1]}))
    other = Shop(
        msgspec.structs.replace(shop.options, on_foreign="append"),
        shop.where,
        {uid: sink.appending() for uid, sink in shop.sinks.items()},  # type: ignore[attr-defined]
        shop.ids,
        lineage=LineageId("other"),
    )
    try:
        bounded = other.committer(job=JobId("b" * 32))
        bounded.commit(permit(1, other.lineage), other.staged(1, {A: [10], B: [10]}))
        assert shop.seen() == {"a": [1, 10], "b": [1, 10]}
        running.commit(permit(2), shop.staged(2, {A: [2]}))
        assert shop.seen() == {"a": [1, 2, 10], "b": [1, 10]}
        bounded.commit(permit(2, other.lineage), other.staged(2, {B: [20]}))
        shop.sink.check_new_line(context().lineage)
        restarted = shop.committer(
            state=running.snapshot_state(), restored=CheckpointId(2), predecessor=JobId("0" * 32)
        )
        restarted.commit(permit(3), shop.staged(3, {A: [3]}))
        assert shop.seen() == {"a": [1, 2, 3, 10], "b": [1, 10, 20]}
        restarted.commit(permit(4), shop.staged(4, {A: [4]}))
        assert shop.seen() == {"a": [1, 2, 3, 4, 10], "b": [1, 10, 20]}
    finally:
        for one in other.made:
            one.close()


@pytest.mark.parametrize("kind", WITH_VERSIONS)
def test_rows_that_a_replay_writes_come_with_the_next_commit_to_their_table(
    tmp_path: Path, kind: Callable[[Path], Shop]
) -> None:
    """It writes to each table by itself, next to the group, whose own rows are whole in every record."""
    shop = kind(tmp_path)
    committer = shop.committer()
    committer.commit(permit(1), shop.staged(1, {A: [1], B: [1]}))
    replayed(shop, A, 70)
    committer.commit(permit(2), shop.staged(2, {A: [2], B: [2]}))
    assert shop.seen() == {"a": [1, 2, 70], "b": [1, 2]}, "it has written one table so far"
    replayed(shop, B, 70)
    committer.commit(permit(3), shop.staged(3, {A: [3]}))
    assert shop.seen() == {"a": [1, 2, 3, 70], "b": [1, 2]}, "no row of the group is for the other one"
    committer.commit(permit(4), shop.staged(4, {B: [4]}))
    assert shop.seen() == {"a": [1, 2, 3, 70], "b": [1, 2, 4, 70]}


def replayed(shop: Shop, uid: OperatorUid, id_: int) -> None:
    """A job of another line commits a row to a table of the group, as a replay of dead letters does."""
    sink = shop.sinks[uid].appending()  # type: ignore[attr-defined]
    there = changed(context(lineage=LineageId("replay")), sink_uid=OperatorUid(f"{uid}-replay"))
    writer, committer = sink.create_writer(), sink.create_committer()
    shop.made += [writer, committer]
    writer.open(there, [])
    writer.write(batch(id_))
    writer.flush(end_of_input=True)
    committer.open(there)
    staged = tuple(writer.prepare_commit(CheckpointId(1)))
    committer.commit(permit(1, LineageId("replay")), CommitRequest(CheckpointId(1), staged))


def test_the_committables_of_a_snapshot_are_enough_to_commit_them(shop: Shop) -> None:
    """As `savepoint finalize` does it, without the pipeline; a member has nothing pending."""
    committer = shop.committer()
    committer.commit(permit(1), shop.staged(1, {A: [1], B: [1]}))
    second = shop.staged(2, {A: [2]})
    finalizing: Committer = committer_of("group", second.committables)
    assert isinstance(finalizing, GroupCommitter)
    shop.made.append(finalizing)
    finalizing.restore_state(committer.snapshot_state())
    finalizing.open(changed(context(restored=2), sink_uid=OperatorUid("shop"), finalizing=True))
    assert finalizing.commit(permit(2), second).outcome is CommitOutcome.COMMITTED
    assert shop.seen() == {"a": [1, 2], "b": [1]}


def test_output_of_a_sink_that_has_left_the_group_is_not_dropped(tmp_path: Path) -> None:
    shop = two_delta(tmp_path)
    one = shop.staged(1, {A: [1], B: [1]})
    del shop.sinks[B]
    with pytest.raises(ConfigError, match=r"has output of sink 'b', which is not in the group.*finalize"):
        shop.committer().commit(permit(1), one)
    with pytest.raises(NotFound):
        shop.seen()


def test_old_records_are_removed_and_what_is_no_record_is_passed_over(tmp_path: Path) -> None:
    log = FileGroupLog(str(tmp_path), "shop")
    (tmp_path / "shop").mkdir()
    for number in (1, RECORDS_KEPT, RECORDS_KEPT + 99):
        (tmp_path / "shop" / f"{number:012d}.json").write_text("{}")
    (tmp_path / "shop" / ".hidden.json").write_text("{}")
    (tmp_path / "shop" / "notes.txt").write_text("")
    newest = GroupCommit(
        group="shop",
        number=RECORDS_KEPT + 100,
        lineage="l",
        job="j",
        checkpoint=1,
        committed_ms=0,
        tables={},
    )
    assert log.append(newest)
    assert not log.append(newest), "its number is taken"
    assert log.newest() == newest
    left = sorted(path.name for path in (tmp_path / "shop").glob("0*.json"))
    assert left == [f"{n:012d}.json" for n in (RECORDS_KEPT, RECORDS_KEPT + 99, RECORDS_KEPT + 100)]


def test_nothing_that_is_stored_has_a_password(tmp_path: Path) -> None:
    sink = us.SqlSink("postgresql+psycopg://me:geheim@localhost/shop", "a")
    env = us.Environment()
    rows = env.from_collection([{"id": 1}], name="rows")
    with described():
        rows.sink_to(sink, group=us.CommitGroup("shop")).uid("a")
        (node,) = [one for one in env.stream_graph().nodes if one.name == "shop committer"]
    assert isinstance(node.operator.sink, GroupSink)  # type: ignore[attr-defined]
    wrapped = decode_member(node.operator.sink.wrapped(A, b"x"))  # type: ignore[attr-defined]
    assert wrapped.options.database == "postgresql+psycopg://me@localhost/shop"
    assert "geheim" not in json.dumps(str(wrapped))
