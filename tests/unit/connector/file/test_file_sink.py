"""Folders of files: where rows go, what a store that is no disk holds, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from unistream.base.errors import ConfigError, CorruptSnapshot, Unreachable, UserCodeError
from unistream.base.ids import AttemptId, CheckpointId, JobId, LeaderEpoch, LineageId, OperatorUid, VertexId
from unistream.connector.common import rows_that_fill
from unistream.connector.file import FileSink
from unistream.connector.file.listing import list_files
from unistream.model.elements import Batch
from unistream.port.operator import CommitPermit
from unistream.port.sink import CommitOutcome, CommitRequest, SinkContext
from unistream.testing.harness.operators import CountingMetrics

JOB, LINEAGE = JobId("a" * 32), LineageId("lineage")
FullDisk = Callable[[int], AbstractContextManager[None]]


def context(*, attempt: int = 0, restored: int | None = None, index: int = 0) -> SinkContext:
    return SinkContext(
        job=JOB,
        lineage=LINEAGE,
        sink_uid=OperatorUid("sink"),
        attempt=AttemptId(JOB, VertexId("v"), index, attempt),
        index=index,
        parallelism=1,
        restored=None if restored is None else CheckpointId(restored),
        metrics=CountingMetrics(),
    )


def staged(sink: FileSink, *batches: Batch) -> list[bytes]:
    writer = sink.create_writer()
    writer.open(context(), ())
    for batch in batches:
        writer.write(batch)
    writer.flush(end_of_input=False)
    return list(writer.prepare_commit(CheckpointId(1)))


def commit(
    sink: FileSink, payloads: list[bytes], checkpoint: int = 1, restored: int | None = None
) -> CommitOutcome:
    committer = sink.create_committer()
    assert committer is not None
    committer.open(context(restored=restored))
    permit = CommitPermit(lineage=LINEAGE, checkpoint_id=CheckpointId(checkpoint), epoch=LeaderEpoch(1))
    return committer.commit(permit, CommitRequest(CheckpointId(checkpoint), tuple(payloads))).outcome


def rows(**columns: list[Any]) -> Batch:
    return Batch(pa.RecordBatch.from_pydict(columns))


def unfinish(folder: Path, file: Path) -> None:
    """Stages it again."""
    (folder / "_staged").mkdir(exist_ok=True)
    file.rename(folder / "_staged" / f"{file.name}.staged")


@pytest.fixture
def store() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def test_time_buckets_by_event_time_and_by_a_column(tmp_path: Path) -> None:
    times = pa.array([0, 3_600_000, 10], pa.int64())
    records = pa.RecordBatch.from_pydict({"n": [1, 2, 3], "at": times.cast(pa.timestamp("ms"))})
    for name, column in (("event", None), ("column", "at")):
        sink = FileSink(str(tmp_path / name), bucket_by_time="%Y-%m-%d/%H", time_column=column)
        commit(sink, staged(sink, Batch(records, times if column is None else None)))
        found = {
            str(path.parent.relative_to(tmp_path / name)): pq.ParquetFile(path).read()["n"].to_pylist()
            for path in (tmp_path / name).rglob("part-*")
        }
        assert found == {"1970-01-01/00": [1, 3], "1970-01-01/01": [2]}


def test_rows_without_a_time_have_no_bucket(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), bucket_by_time="%Y")
    with pytest.raises(UserCodeError, match="event time"):
        staged(sink, rows(n=[1]))


def test_json_lines_hold_every_value(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), format="json")
    commit(sink, staged(sink, rows(n=[1, None], t=["a\nb", "ü"], l=[[1], []])))
    [path] = tmp_path.glob("part-*.jsonl")
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"n": 1, "t": "a\nb", "l": [1]},
        {"n": None, "t": "ü", "l": []},
    ]


def test_a_file_is_written_out_when_its_rows_take_enough_memory(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), target_file_bytes=8 * 100)
    commit(sink, staged(sink, *(rows(n=list(range(100))) for _ in range(3)), rows(n=[1])))
    assert sorted(pq.ParquetFile(path).metadata.num_rows for path in tmp_path.glob("part-*")) == [
        1,
        100,
        100,
        100,
    ]


@pytest.mark.parametrize(
    ("batches", "files"),
    [
        pytest.param([250], [100, 100, 50], id="a batch larger than two files"),
        pytest.param([50, 250], [100, 100, 100], id="a file that has begun is filled"),
        pytest.param([99, 1, 1], [100, 1], id="the row that fills a file is its last"),
        pytest.param([0, 1, 0], [1], id="batches without rows"),
        pytest.param([0], [], id="no row at all"),
    ],
)
@pytest.mark.parametrize("partition_by", [[], ["k"]], ids=["one folder", "folders"])
def test_a_large_batch_is_divided_by_rows(
    tmp_path: Path, partition_by: list[str], batches: list[int], files: list[int]
) -> None:
    sink = FileSink(str(tmp_path), target_file_bytes=8 * 100, partition_by=partition_by)
    given = pa.RecordBatch.from_pydict({"n": list(range(sum(batches)))})
    if partition_by:
        given = given.append_column("k", pa.array(["a"] * given.num_rows, pa.string()))
    ends = [sum(batches[: place + 1]) for place in range(len(batches))]
    commit(sink, staged(sink, *(Batch(given.slice(e - n, n)) for n, e in zip(batches, ends, strict=True))))
    found = [pq.ParquetFile(path).read()["n"].to_pylist() for path in tmp_path.rglob("part-*")]
    assert sorted(row for rows in found for row in rows) == list(range(sum(batches)))
    assert sorted(map(len, found), reverse=True) == files


def test_no_file_is_larger_than_its_target_by_more_than_its_last_row() -> None:
    sizes = [1, 1, 500, 1, 40, 60, 1, 1, 300]
    rest = pa.RecordBatch.from_pydict({"t": pa.array(["x" * size for size in sizes])})
    found = []
    while rest.num_rows:
        found.append(rows_that_fill(rest, 100))
        rest = rest.slice(found[-1])
    assert found == [3, 3, 3]


def test_a_dictionary_that_is_larger_than_a_file_does_not_make_a_file_of_each_row() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 500, pa.int32()), pa.array(["x" * 9_000, "y"]))
    records = pa.RecordBatch.from_pydict({"t": words})
    assert records.nbytes > 12_000
    assert rows_that_fill(records, 2_000) == 500
    assert rows_that_fill(records, 8_000) == 1_000


def test_a_decided_commit_is_finished_by_whoever_opens_next(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), partition_by=["k"])
    payloads = staged(sink, rows(k=["a", "b"], n=[1, 2]))
    commit(sink, payloads)
    late = next(tmp_path.rglob("part-*"))
    unfinish(tmp_path, late)  # as if it had died before this one
    committer = sink.create_committer()
    assert committer is not None
    committer.open(context(restored=1))
    assert len(list(tmp_path.rglob("part-*"))) == 2
    assert commit(sink, payloads, restored=1) is CommitOutcome.ALREADY_COMMITTED


@pytest.mark.parametrize("take", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["away", "changed"])
def test_what_readers_do_with_finished_files_is_not_missed_by_whoever_opens_next(
    tmp_path: Path, take: Callable[[Path], object]
) -> None:
    sink = FileSink(str(tmp_path), partition_by=["k"])
    payloads = staged(sink, rows(k=["a", "b"], n=[1, 2]))
    commit(sink, payloads)
    first, second = sorted(tmp_path.rglob("part-*"))
    take(first)
    unfinish(tmp_path, second)  # as if the committer had died before this one
    assert commit(sink, payloads, restored=1) is CommitOutcome.ALREADY_COMMITTED
    assert second.exists(), "what is not finished yet is finished all the same"
    assert commit(sink, staged(sink, rows(k=["c"], n=[3])), 2, restored=1) is CommitOutcome.COMMITTED


def test_a_full_disk_leaves_no_part_of_a_file_and_none_of_a_record(
    tmp_path: Path, full_disk: FullDisk
) -> None:
    sink = FileSink(str(tmp_path))
    with full_disk(100), pytest.raises(Unreachable, match=r"could not write _staged/part-"):
        staged(sink, rows(n=list(range(1_000))))
    payloads = staged(sink, rows(n=[1]))
    with full_disk(10), pytest.raises(Unreachable, match="could not write the record"):
        commit(sink, payloads)
    assert [path for path in (tmp_path / "_unistream").rglob("*") if path.is_file()] == []
    assert commit(sink, payloads) is CommitOutcome.COMMITTED
    assert [pq.ParquetFile(path).read()["n"].to_pylist() for path in tmp_path.glob("*part-*")] == [[1]]


def test_an_allowed_rewind_writes_again(tmp_path: Path) -> None:
    commit(FileSink(str(tmp_path)), staged(FileSink(str(tmp_path)), rows(n=[1])), checkpoint=5)
    again = FileSink(str(tmp_path), on_rewind="allow_duplicates")
    assert commit(again, staged(again, rows(n=[2])), checkpoint=4, restored=3) is CommitOutcome.COMMITTED
    assert len(list(tmp_path.glob("part-*"))) == 2


# --- what readers see -----------------------------------------------------------------------------------


def seen_by_others(folder: Path) -> dict[str, int]:
    """Rows that those see who list the folder by themselves."""
    globs = ["*.parquet", "**/*.parquet", "*", "k=*/*"]
    shown = {
        f"DuckDB {glob}": duckdb.sql(f"from read_parquet('{folder}/{glob}')").count("n").fetchall()[0][0]
        for glob in globs
        if duckdb.sql(f"from glob('{folder}/{glob}')").fetchall()
    }
    shown |= {f"glob {glob}": rows_in(folder.glob(glob)) for glob in globs}
    return shown | {
        "pyarrow": ds.dataset(folder, format="parquet").count_rows(),
        "FileSource": rows_of(folder),
    }


def rows_in(found: Iterable[Path]) -> int:
    return sum(pq.read_metadata(path).num_rows for path in found if path.suffix == ".parquet")


def rows_of(folder: Path) -> int:
    with suppress(ConfigError):  # no file
        return sum(pq.read_metadata(path).num_rows for path, *_ in list_files([str(folder)], {}))
    return 0


@pytest.mark.parametrize("partition_by", [[], ["k"]], ids=["flat", "folders"])
def test_no_reader_takes_a_staged_file_for_one_of_the_folder(tmp_path: Path, partition_by: list[str]) -> None:
    sink = FileSink(str(tmp_path), partition_by=partition_by)
    commit(sink, staged(sink, rows(k=["a", "b"], n=[1, 2])))
    staged(sink, rows(k=["a", "c"], n=[3, 4]))
    assert {name: count for name, count in seen_by_others(tmp_path).items() if count not in (0, 2)} == {}
    assert seen_by_others(tmp_path)["DuckDB **/*.parquet"] == 2


def test_the_folder_of_staged_files_goes_with_the_last_of_them(tmp_path: Path) -> None:
    """And comes back for a task that has looked for it before."""
    sink = FileSink(str(tmp_path))
    writer = sink.create_writer()
    writer.open(context(), ())
    writer.write(rows(n=[1]))
    writer.flush(end_of_input=False)
    assert (tmp_path / "_staged").exists()
    writer.close()
    assert not (tmp_path / "_staged").exists()


@pytest.mark.parametrize("local", [True, False], ids=["disk", "store"])
def test_what_an_earlier_version_has_staged_is_committed(store: Any, tmp_path: Path, local: bool) -> None:
    """Next to the finished files; a savepoint may name it for years."""
    root = str(tmp_path) if local else "memory://lake/out"
    payloads = staged(FileSink(root, partition_by=["k"]), rows(k=["a"], n=[1]))
    made = msgspec.msgpack.decode(payloads[0])
    [file] = made["files"]
    system, path = fsspec.core.url_to_fs(root)
    old = f"{file['bucket']}.{file['name']}" if local else f"_staged/{file['bucket']}{file['name']}"
    system.makedirs(f"{path}/k=a", exist_ok=True)
    system.mv(f"{path}/_staged/{file['name']}.staged", f"{path}/{old}")
    del file["place"], file["upload"], file["tags"]
    payload = msgspec.msgpack.encode({**made, "format": 1, "files": [file]})
    assert commit(FileSink(root, partition_by=["k"]), [payload]) is CommitOutcome.COMMITTED
    assert [name.rpartition("/")[2] for name in system.find(f"{path}/k=a")] == [file["name"]]


def test_what_an_attempt_of_an_earlier_version_has_left_is_removed(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), partition_by=["k"])
    staged(sink, rows(k=["a"], n=[1]))
    [left] = tmp_path.rglob("*.staged")
    (tmp_path / "k=a").mkdir()
    old = tmp_path / "k=a" / f".{left.name.removesuffix('.staged')}"
    left.rename(old)
    sink.create_writer().open(context(attempt=1), ())
    assert not old.exists()


# --- a store that is no disk --------------------------------------------------------------------------


def test_in_a_store_files_are_staged_elsewhere_and_moved(store: Any) -> None:
    sink = FileSink("memory://lake/out", partition_by=["k"])
    payloads = staged(sink, rows(k=["a"], n=[1]))
    before = store.find("/lake/out")
    assert [path.startswith("/lake/out/_staged/part-") for path in before] == [True]
    assert commit(sink, payloads) is CommitOutcome.COMMITTED
    visible = [path for path in store.find("/lake/out") if "/_" not in path]
    assert [path.startswith("/lake/out/k=a/part-") for path in visible] == [True]
    assert commit(sink, payloads, restored=1) is CommitOutcome.ALREADY_COMMITTED
    assert pq.read_table(store.open(visible[0]))["n"].to_pylist() == [1]


def test_in_a_store_a_move_that_was_cut_off_is_finished(store: Any) -> None:
    sink = FileSink("memory://lake/out")
    payloads = staged(sink, rows(n=[1]))
    [path] = store.find("/lake/out")
    store.copy(path, path.replace("/_staged/", "/").removesuffix(".staged"))  # copied, not yet removed
    assert commit(sink, payloads) is CommitOutcome.COMMITTED
    assert [path for path in store.find("/lake/out") if "_staged" in path] == []


def test_a_file_that_another_committer_moves_first_is_finished(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FileSink("memory://lake/out")
    payloads = staged(sink, rows(n=[1]))
    move = type(store).mv

    def late(self: Any, source: str, target: str) -> None:
        move(self, source, target)
        move(self, source, target)  # ours, behind the other's

    monkeypatch.setattr(type(store), "mv", late)
    assert commit(sink, payloads) is CommitOutcome.COMMITTED
    assert len([path for path in store.find("/lake/out") if "/_" not in path]) == 1


def test_a_file_for_which_the_store_finds_no_place_is_finished_by_the_next_attempt(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FileSink("memory://lake/out")
    payloads = staged(sink, rows(n=[1]))

    def nowhere(_self: Any, _source: str, target: str) -> None:
        raise FileNotFoundError(target)

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "mv", nowhere)
        with pytest.raises(Unreachable, match="could not rename"):
            commit(sink, payloads)
    assert commit(sink, payloads, restored=1) is CommitOutcome.ALREADY_COMMITTED
    assert len([path for path in store.find("/lake/out") if "/_" not in path]) == 1


def test_in_a_store_a_restored_writer_removes_what_its_killed_attempt_left(store: Any) -> None:
    sink = FileSink("memory://lake/out")
    staged(sink, rows(n=[1]))
    writer = sink.create_writer()
    writer.open(context(attempt=1), ())
    assert store.find("/lake/out") == []


def test_what_a_subtask_that_had_finished_has_staged_stays_for_a_commit_that_is_still_to_come(
    tmp_path: Path,
) -> None:
    """Its checkpoint is complete, and a later one, in which it has no state any more; then a worker dies
    before the files have their names."""
    sink = FileSink(str(tmp_path / "out"))
    payloads = staged(sink, rows(n=[1]), rows(n=[2]))
    again = sink.create_writer()
    again.open(context(attempt=1, restored=3), ())
    state = again.snapshot_state(CheckpointId(4))
    once_more = sink.create_writer()
    once_more.open(context(attempt=2, restored=4), state)
    assert commit(sink, payloads, checkpoint=1) is CommitOutcome.COMMITTED


@pytest.mark.parametrize(
    "deals",
    [
        pytest.param([[[0, 1], [2]]], id="3 to 2"),
        pytest.param([[[0, 1], [2]], [[0], [1], []]], id="to 2, and to 3 again"),
        pytest.param([[[0], [1], [2], [], []], [[0, 1], [2, 3], [4]]], id="3 to 5, and to 3 again"),
        pytest.param([[[0, 1, 2]], [[0], [], []], [[0, 1], [2]]], id="to 1, to 3, to 2"),
    ],
)
@pytest.mark.parametrize("killed", [False, True], ids=["once", "once more behind a kill"])
@pytest.mark.parametrize("order", [1, -1], ids=["the first begins first", "the last begins first"])
def test_writers_that_go_on_at_another_parallelism_leave_each_others_files(
    tmp_path: Path, deals: list[list[list[int]]], killed: bool, order: int
) -> None:
    """`deals`: for each new parallelism, whose states each subtask gets. They stage before others begin."""
    sink, number = FileSink(str(tmp_path), format="json"), 0
    states: list[bytes] = [b""] * len(deals[0])
    expected: list[int] = []
    for checkpoint, deal in enumerate([[[] for _ in range(3)], *deals], 1):
        payloads, lives = [], 1 + (killed and checkpoint > 1)
        for life in range(lives):
            found: dict[int, tuple[bytes, ...]] = {}
            for index in range(len(deal))[::order]:
                writer = sink.create_writer()
                restored = None if checkpoint == 1 else checkpoint - 1
                attempt = 2 * checkpoint + life - 2
                writer.open(
                    context(attempt=attempt, restored=restored, index=index), [states[n] for n in deal[index]]
                )
                number += 1
                writer.write(rows(n=[number]))
                writer.flush(end_of_input=False)
                if life == lives - 1:
                    payloads += writer.prepare_commit(CheckpointId(checkpoint))
                    expected.append(number)
                found[index] = tuple(writer.snapshot_state(CheckpointId(checkpoint)))
        states = [state for index in sorted(found) for state in found[index]]
        assert commit(sink, payloads, checkpoint, restored=checkpoint - 1) is CommitOutcome.COMMITTED
    shown = [
        json.loads(line)["n"] for path in tmp_path.glob("part-*") for line in path.read_text().splitlines()
    ]
    assert sorted(shown) == sorted(expected)
    assert list(tmp_path.rglob("*.staged")) == [], "what the killed ones have left is gone"


# --- refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": ""}, "needs the path"),
        ({"path": "x", "format": "xml"}, "format must be"),
        ({"path": "x", "target_file_bytes": 0}, "above 0"),
        ({"path": "x", "on_rewind": "perhaps"}, "on_rewind"),
        ({"path": "x", "time_column": "at"}, "needs bucket_by_time"),
    ],
)
def test_arguments_that_cannot_work(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        FileSink(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"partition_by": ["nope"]}, "no column 'nope'"),
        ({"partition_by": ["n", "t"]}, "nothing is left"),
        ({"bucket_by_time": "%Y", "time_column": "n"}, "not a time"),
    ],
)
def test_streams_that_do_not_fit(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        FileSink(str(tmp_path), **options).check(pa.schema([("n", pa.int64()), ("t", pa.string())]))


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is not a folder"):
        FileSink(str(tmp_path / "file")).check(None)


@pytest.mark.parametrize("log", ["_delta_log/0.json", "metadata/v1.metadata.json", ".hoodie/x"])
def test_the_folder_of_a_table_is_refused(tmp_path: Path, log: str) -> None:
    (tmp_path / log).parent.mkdir()
    (tmp_path / log).write_text("{}")
    with pytest.raises(ConfigError, match=r"is an? \w+ table, whose readers would not see the files"):
        FileSink(str(tmp_path)).check(None)
    FileSink(str(tmp_path / "part")).check(None)


def test_a_committable_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path / "out"))
    [payload] = staged(sink, rows(n=[1]))
    with pytest.raises(CorruptSnapshot):
        commit(sink, [payload.replace(b"part-sink-", b"../-sink--")])


def test_a_file_that_a_kill_kept_from_its_name_is_no_other_line(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path))
    records = tmp_path / "_unistream"
    records.mkdir()
    (records / ".line.json.9e91def6de6fe62f.tmp").write_bytes(b"{")
    sink.check_new_line("a" * 32)
    (records / "0123456789ab-files").mkdir()
    with pytest.raises(ConfigError, match="another line of jobs"):
        sink.check_new_line("a" * 32)
