"""A watched folder: which files are new, as a table and in any order of events; and by real folders."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.harness.source_driver import SourceDriver
from unistream.base.errors import ConfigError, Unreachable
from unistream.connector.catalogue import create_discovery
from unistream.connector.common import decoded_split, discovery_options
from unistream.connector.file import FileSource
from unistream.connector.file.decode import decode
from unistream.connector.file.discovery import WatchedFolder
from unistream.connector.file.listing import Listing, splits_of
from unistream.connector.file.split import FileSplit
from unistream.connector.file.watch import (
    REMEMBERED_MS,
    FoundFile,
    Seen,
    decode_seen,
    is_settled,
    look,
)
from unistream.core.checkpoint.split_assignment import SplitAssigner
from unistream.model.graph import SourceInfo
from unistream.model.messages import Split
from unistream.model.splits import FoundSplits, KnownSplits

COMPILES_WITHIN_S: Final = 120.0
AGE: Final = 10
A, A2, B = FoundFile("a", 1, "1", 0), FoundFile("a", 1, "2", 50), FoundFile("b", 1, "1", 95)
YOUNG_A2: Final = A2._replace(modified_ms=99)
AHEAD: Final = FoundFile("c", 1, "1", 5_000)


@pytest.mark.parametrize(
    ("looks", "new", "changed", "state"),
    [
        pytest.param([[A]], ["a"], [], 1, id="a new file is read"),
        pytest.param([[A], [A], [A]], ["a"], [], 1, id="once"),
        pytest.param([[A, B]], ["a"], [], 1, id="a young one waits"),
        pytest.param([[A, B], [A, B._replace(modified_ms=80)]], ["a", "b"], [], 2, id="until it is older"),
        pytest.param([[AHEAD]], ["c"], [], 1, id="a time in the future says nothing"),
        pytest.param([[A._replace(modified_ms=None)]], ["a"], [], 1, id="nor does one that is not known"),
        pytest.param([[A], [A2], [A2]], ["a"], ["a"], 1, id="a change is named, once"),
        pytest.param([[A], [YOUNG_A2]], ["a"], ["a"], 1, id="also while it goes on"),
        pytest.param([[A], [], [A]], ["a"], [], 1, id="one that was not listed for a while is the same"),
        pytest.param([[A], [], [A2]], ["a", "a"], [], 1, id="one that was removed may come again"),
        pytest.param([[A], [], [YOUNG_A2]], ["a"], [], 1, id="and waits like any other"),
        pytest.param([[A], [], [YOUNG_A2], [A2]], ["a", "a"], [], 1, id="and is read then"),
        pytest.param([[A], [], []], ["a"], [], 1, id="what is gone is remembered"),
    ],
)
def test_what_is_new(looks: list[list[FoundFile]], new: list[str], changed: list[str], state: int) -> None:
    seen = Seen()
    found: list[FoundFile] = []
    other: list[FoundFile] = []
    for listed in looks:
        one = look(listed, seen, now_ms=100, min_age_ms=AGE)
        seen = one.seen
        found += one.new
        other += one.changed
    assert [file.path for file in found] == new
    assert [file.path for file in other] == changed
    assert len(seen.files) == state


def test_what_is_gone_for_long_is_forgotten() -> None:
    seen = look([A], Seen(), now_ms=100, min_age_ms=0).seen
    gone = look([], seen, now_ms=200, min_age_ms=0).seen
    assert len(look([], gone, now_ms=199 + REMEMBERED_MS, min_age_ms=0).seen.files) == 1
    assert look([], gone, now_ms=200 + REMEMBERED_MS, min_age_ms=0).seen == Seen()


def test_one_look_takes_no_more_files_than_a_message_holds() -> None:
    files = [FoundFile(f"{n:06}", 1, "", 0) for n in range(501)]
    first = look(files, Seen(), now_ms=100, min_age_ms=0, at_most=500)
    assert first.new == tuple(files[:-1])
    assert look(files, first.seen, now_ms=100, min_age_ms=0).new == tuple(files[-1:])
    assert len(first.seen.encode()) < 30 * len(files)


class WatchedJob(RuleBasedStateMachine):
    """A folder, the assigner of its splits, and readers that go back to a checkpoint, also at another
    parallelism: no file is read twice, and at the end each one that is there was read."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000
        self.files: list[FoundFile] = []
        self.info = SourceInfo(connector="file", options={}, bounded=False, pull=True)
        self.assigner = SplitAssigner(self.info, 2)
        self.readers: list[list[str]] = [[], []]
        self.read: Counter[str] = Counter()
        self.mark = 0
        self.checkpoint()

    @rule()
    def write(self) -> None:
        self.now += 1
        self.files.append(FoundFile(f"{self.now}", 1, "", self.now))

    @rule(which=st.integers(0, 2))
    def change_while_it_is_young(self, which: int) -> None:
        for number, file in enumerate(self.files[which : which + 1], which):
            if not is_settled(file, self.now, AGE):
                self.files[number] = FoundFile(file.path, file.size + 1, "", self.now)

    @rule(which=st.integers(0, 2))
    def remove_what_was_read(self, which: int) -> None:
        gone = [file for file in self.files[which : which + 1] if self.read[file.path]]
        self.files = [file for file in self.files if file not in gone]

    @rule(waited_ms=st.sampled_from([1, AGE, 2 * AGE]))
    def discover(self, waited_ms: int) -> None:
        self.now += waited_ms
        known = self.assigner.found
        seen = Seen() if known is None else decode_seen(known.position)
        found = look(self.files, seen, now_ms=self.now, min_age_ms=AGE)
        assert not found.changed
        splits = [Split(id=file.path, data=b"") for file in found.new]
        self.assigner.discovered(splits, position=found.seen.encode())

    @rule(index=st.integers(0, 3), reads=st.booleans())
    def assign(self, index: int, reads: bool) -> None:
        index %= len(self.readers)
        self.assigner.request(index)
        for given in self.assigner.take():
            self.readers[given.index] += [split.id for split in given.splits]
        if reads and self.readers[index]:
            self.read[self.readers[index].pop()] += 1

    @rule()
    def checkpoint(self) -> None:
        self.mark += 1
        unfinished = [name for reader in self.readers for name in reader]
        self.state = self.assigner.snapshot(self.mark), unfinished, self.read.copy()
        self.assigner.completed(self.mark)

    @rule(parallelism=st.integers(1, 4))
    def restore(self, parallelism: int) -> None:
        content, unfinished, read = self.state
        self.assigner = SplitAssigner.restore(self.info, parallelism, content)
        self.readers = [unfinished[index::parallelism] for index in range(parallelism)]
        self.read = read.copy()

    @invariant()
    def nothing_is_read_twice(self) -> None:
        assert not [name for name, times in self.read.items() if times > 1]

    def teardown(self) -> None:
        for _ in range(2):
            self.discover(2 * AGE)
            while self.assigner.unassigned or any(self.readers):
                for index in range(len(self.readers)):
                    self.assign(index, reads=True)
        self.nothing_is_read_twice()
        assert {file.path for file in self.files} <= self.read.keys()


WatchedJob.TestCase.settings = settings(max_examples=25, stateful_step_count=40)
TestWatchedJob = WatchedJob.TestCase


# --- folders --------------------------------------------------------------------------------------

SCHEMA: Final = pa.schema([("n", pa.int64())])


class FixedClock:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def put(folder: Path, name: str, n: int, age_s: float = 1_000) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"n": {n}}}\n')
    os.utime(path, (1_000_000 - age_s, 1_000_000 - age_s))
    return path


def watching(folder: object, **options: Any) -> FileSource:
    return FileSource(str(folder), format="json", schema=SCHEMA, continuous=True, **options)


def find(source: FileSource, before: FoundSplits | None = None, at_s: int = 1_000_000) -> FoundSplits:
    info = source.info()
    discovery = create_discovery(info)
    assert isinstance(discovery, WatchedFolder)
    discovery._clock = FixedClock(at_s * 1000)
    known = None if before is None else KnownSplits(ids=frozenset(), position=before.position)
    return discovery.find(known)


def numbers(source: FileSource, splits: Sequence[Split]) -> list[int]:
    with SourceDriver(source, splits, COMPILES_WITHIN_S) as driver:
        return sorted(row["n"] for row in driver.all_rows())


def test_files_that_come_later_are_read_once(tmp_path: Path) -> None:
    put(tmp_path, "a.json", 1)
    source = watching(tmp_path, interval="2 s")
    info = source.info()
    assert (info.bounded, info.pull, info.discovery_interval_ms) == (False, True, 2_000)
    first = find(source)
    assert numbers(source, first.splits) == [1]
    put(tmp_path, "b/b.json", 2)
    second = find(source, first)
    assert numbers(source, second.splits) == [2]
    assert find(source, second).splits == ()


def test_what_is_still_written_waits(tmp_path: Path) -> None:
    put(tmp_path, "a.json", 1, age_s=5)
    put(tmp_path, "b.json.tmp", 2)
    put(tmp_path, ".c.json", 3)
    source = watching(tmp_path, ignore_suffixes=[".tmp"])
    first = find(source)
    assert first.splits == ()
    assert numbers(source, find(source, first, at_s=1_000_006).splits) == [1]
    assert numbers(
        watching(tmp_path, min_age="1 s", ignore_suffixes=".tmp"),
        find(watching(tmp_path, min_age="1 s", ignore_suffixes=".tmp")).splits,
    ) == [1]
    os.rename(tmp_path / "b.json.tmp", tmp_path / "b.json")
    assert numbers(source, find(source, first).splits) == [2]


def test_a_file_that_changes_is_named_and_not_read_again(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", 1)
    source, lenient = watching(tmp_path), watching(tmp_path, on_change="skip")
    first = find(source)
    put(tmp_path, "a.json", 2, age_s=999)
    with pytest.raises(ConfigError, match=f"file {path} has changed, or was removed, since it was found"):
        find(source, first)
    skipped = find(lenient, first)
    assert skipped.splits == ()
    assert find(source, skipped).splits == (), "it was named once"
    with pytest.raises(ConfigError, match=f"file {path} has changed"):
        numbers(source, first.splits)
    assert numbers(lenient, first.splits) == []


def test_a_file_that_is_removed_before_it_is_read_is_named(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", 1)
    source = watching(tmp_path)
    first = find(source)
    path.unlink()
    assert find(source, first).splits == ()
    with pytest.raises(ConfigError, match=f"file {path} has changed, or was removed"):
        numbers(source, first.splits)
    assert numbers(watching(tmp_path, on_change="skip"), first.splits) == []


@pytest.mark.parametrize("format", ["parquet", "orc", "avro", "csv", "json"])
@pytest.mark.parametrize("left", [b"", None], ids=["is empty now", "is gone"])
def test_a_file_that_changes_between_the_listing_and_its_footer(
    tmp_path: Path, format: Any, left: bytes | None
) -> None:
    """Or before a reader opens it, where there is no footer."""
    path = tmp_path / "a"
    listed = [FoundFile(str(path), 500, "1.0"), FoundFile(str(path), 0, "1.0")]
    if left is not None:
        path.write_bytes(left)
    for on_change in ("fail", "skip"):
        source = FileSource(str(tmp_path), format=format, schema=SCHEMA, continuous=True, on_change=on_change)
        info = source.info()
        for file in listed:
            try:
                splits = splits_of([file], [file], discovery_options(info, Listing, "file"), info)
                found: Any = numbers(source, splits)
            except ConfigError as error:
                found = str(error)
            assert found == [] if on_change == "skip" else f"file {path} has changed, or was" in found


@pytest.mark.parametrize("on_change", ["fail", "skip"])
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, on_change: Any) -> None:
    path = put(tmp_path, "a.json", 1)
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(1_000)))
    source = watching(tmp_path, on_change=on_change, block_bytes=100, min_age=0)
    [split] = find(source, at_s=2_000_000_000).splits
    chunks = decode(decoded_split(split, FileSplit, "file"), source._spec())
    first = next(chunks)
    path.write_text("")
    if on_change == "fail":
        with pytest.raises(ConfigError, match=f"file {path} has changed"):
            list(chunks)
    else:
        assert first.records.num_rows > 0
        assert list(chunks) == []


def test_a_schema_is_that_of_the_first_file_that_is_still_there(tmp_path: Path) -> None:
    listed = [FoundFile(str(tmp_path / "a.json"), 5), FoundFile(str(put(tmp_path, "b.json", 1)), 9)]
    skipping = FileSource(str(tmp_path), format="json", continuous=True, on_change="skip")
    assert skipping._of_first(listed) == ([listed[1].path], SCHEMA, None)
    failing = FileSource(str(tmp_path), format="json", continuous=True)
    with pytest.raises(ConfigError, match="does not exist or was removed"):
        failing._of_first(listed)


def test_a_new_file_of_an_old_name_is_another_split(tmp_path: Path) -> None:
    put(tmp_path, "a.json", 1).unlink()
    put(tmp_path, "a.json", 1)
    source = watching(tmp_path)
    first = find(source)
    (tmp_path / "a.json").unlink()
    gone = find(source, first)
    put(tmp_path, "a.json", 2, age_s=500)
    again = find(source, gone)
    assert numbers(source, again.splits) == [2]
    assert again.splits[0].id != first.splits[0].id


def test_a_folder_that_is_away_is_an_outage_and_then_nothing_is_read_twice(tmp_path: Path) -> None:
    put(tmp_path / "in", "a.json", 1)
    source = watching(tmp_path / "in")
    first = find(source)
    (tmp_path / "in").rename(tmp_path / "away")
    with pytest.raises(Unreachable, match=r"a watched folder is not there now: path .* does not exist"):
        find(source, first)
    with pytest.raises(ConfigError, match="does not exist"):
        find(source)
    (tmp_path / "in").mkdir()
    empty = find(source, first)
    (tmp_path / "in").rmdir()
    (tmp_path / "away").rename(tmp_path / "in")
    assert find(source, empty).splits == ()


def test_an_empty_folder_waits_for_its_first_file(tmp_path: Path) -> None:
    source = watching(tmp_path)
    first = find(source)
    assert first.splits == ()
    put(tmp_path, "a.json", 1)
    assert numbers(source, find(source, first).splits) == [1]
    with pytest.raises(ConfigError, match="no files match"):
        _ = FileSource(str(tmp_path / "*.csv"), format="csv", continuous=True).schema


def test_a_job_that_read_a_folder_once_can_go_on_watching_it(tmp_path: Path) -> None:
    put(tmp_path, "a.json", 1)
    once = FileSource(str(tmp_path), format="json", schema=SCHEMA)
    ids = frozenset(split.id for split in create_discovery(once.info()).discover())
    put(tmp_path, "b.json", 2)
    source = watching(tmp_path)
    discovery = create_discovery(source.info())
    assert isinstance(discovery, WatchedFolder)
    assert numbers(source, discovery.find(KnownSplits(ids=ids)).splits) == [2]


def test_parquet_and_folders_of_columns_are_watched(tmp_path: Path) -> None:
    def write(day: int) -> None:
        path = tmp_path / f"day={day}" / "a.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table({"n": [day] * 4}), path, row_group_size=2)
        os.utime(path, (1, 1))

    write(1)
    source = FileSource(str(tmp_path), continuous=True, split_bytes=1)
    assert source.schema.names == ["n", "day"]
    first = find(source)
    assert len(first.splits) == 2
    write(2)
    assert numbers(source, find(source, first).splits) == [2] * 4
    pq.write_table(pa.table({"n": [3]}), tmp_path / "b.parquet")
    os.utime(tmp_path / "b.parquet", (1, 1))
    with pytest.raises(ConfigError, match=r"b\.parquet is in no such folder"):
        find(source, first)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"interval": "1 s"}, "are for a file source with continuous=True"),
        ({"min_age": 1}, "are for a file source with continuous=True"),
        ({"continuous": True, "interval": 0}, "interval of a file source must be above 0"),
        ({"continuous": True, "on_change": "read"}, "on_change of a file source must be fail or skip"),
        ({"ignore_suffixes": [""]}, "an empty suffix"),
    ],
)
def test_what_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        FileSource("/in", **options)


@pytest.mark.parametrize(("path", "age"), [("/in", 10_000), ("s3://b/in", 0), ("hdfs://h/in", 10_000)])
def test_objects_appear_as_a_whole(path: str, age: int) -> None:
    options = FileSource(path, schema=SCHEMA, continuous=True).info().options
    assert options["watch"]["min_age_ms"] == age
