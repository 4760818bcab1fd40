"""Rows come back once, key by key and in the order of time, whatever memory there is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unistream.base.errors import ProtocolError
from unistream.model.columns.key_buckets import buckets_of
from unistream.model.elements import Batch
from unistream.model.key_groups import key_hashes
from unistream.port.sorting import KeyedRows
from unistream.worker.sort import KeySorter
from unistream.worker.sort.order import sorted_order

Rows = list[tuple[Any, int]]  # key, time
LARGE = 2**40


def batches(rows: Rows, size: int, kind: pa.DataType, *, timed: bool = True) -> list[Batch]:
    """`n`: the position of a row among all."""
    made = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        records = pa.record_batch(
            {"k": pa.array([key for key, _ in part], kind), "n": np.arange(start, start + len(part))}
        )
        times = pa.array([time for _, time in part], pa.int64()) if timed else None
        made.append(Batch(records, times))
    return made


def grouped(
    added: Sequence[Batch], folder: Path, memory: int, keys: Sequence[str] = ("k",), batch_rows: int = 50
) -> tuple[list[KeyedRows], int]:
    sorter = KeySorter(keys, folder / "sort", memory, batch_rows)
    for batch in added:
        sorter.add(batch)
    found = list(sorter.sorted())
    assert not (folder / "sort").exists() or not list((folder / "sort").iterdir()), "files are removed"
    sorter.close()
    assert not (folder / "sort").exists()
    return found, sorter.spilled_bytes


def check(found: Sequence[KeyedRows], rows: Rows, batch_rows: int = 50) -> None:
    """Each row once; a key once, its rows together and in order; `ends_key` as it says."""
    numbers = [n for part in found for n in part.batch.records.column("n").to_pylist()]
    assert sorted(numbers) == list(range(len(rows)))
    keys = [rows[n][0] for n in numbers]
    runs = [key for place, key in enumerate(keys) if place == 0 or keys[place - 1] != key]
    assert len(runs) == len(set(runs)), "the rows of a key are together"
    for place in range(1, len(numbers)):
        if keys[place] == keys[place - 1]:
            assert rows[numbers[place]][1] >= rows[numbers[place - 1]][1]
    at = 0
    for part in found:
        assert 0 < part.batch.num_rows <= batch_rows
        of_part = keys[at : at + part.batch.num_rows]
        begins = [place for place in range(1, len(of_part)) if of_part[place] != of_part[place - 1]]
        assert part.starts.tolist() == [0, *begins]
        at += part.batch.num_rows
        assert part.ends_key == (at == len(keys) or keys[at] != keys[at - 1])
        if part.batch.timestamps is not None:
            places = part.batch.records.column("n").to_pylist()
            assert part.batch.timestamps.to_pylist() == [rows[n][1] for n in places]


times = st.one_of(st.integers(-5, 5), st.integers(-(2**62), 2**62))
some_rows = st.lists(st.tuples(st.integers(-3, 3), times), max_size=200)


@settings(deadline=None)
@given(rows=some_rows, size=st.integers(1, 40), memory=st.sampled_from([1, 300, 3_000, LARGE]))
def test_any_rows(rows: Rows, size: int, memory: int) -> None:
    with TemporaryDirectory() as folder:
        found, _ = grouped(batches(rows, size, pa.int64()), Path(folder), memory)
    check(found, rows)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        pytest.param(pa.string(), ["a", None, "", "b"], id="text and null"),
        pytest.param(pa.float64(), [0.0, float("inf"), None], id="floats"),
        pytest.param(pa.string(), ["Aa", "BB"], id="the same hash"),
        pytest.param(pa.dictionary(pa.int32(), pa.string()), ["x", "y", None], id="dictionaries"),
        pytest.param(pa.timestamp("us"), [1, 2**40, None], id="times"),
    ],
)
@pytest.mark.parametrize("memory", [1, 4_000, LARGE])
def test_keys_of_all_types(kind: pa.DataType, keys: list[Any], memory: int, tmp_path: Path) -> None:
    rows = [(keys[n % len(keys)], (n * 7) % 90) for n in range(400)]
    found, spilled = grouped(batches(rows, 30, kind), tmp_path, memory)
    check(found, rows)
    assert (spilled > 0) == (memory < LARGE)


def test_keys_of_several_columns(tmp_path: Path) -> None:
    records = pa.record_batch({"a": [1, 1, 2, 2, 1], "b": ["x", "y", "x", "x", "x"], "n": [0, 1, 2, 3, 4]})
    rows = list(zip([(1, "x"), (1, "y"), (2, "x"), (2, "x"), (1, "x")], [5, 4, 3, 2, 1], strict=True))
    for memory in (1, LARGE):
        batch = Batch(records, pa.array([time for _, time in rows], pa.int64()))
        found, _ = grouped([batch], tmp_path, memory, ("a", "b"))
        check(found, rows)


@pytest.mark.parametrize("timed", [True, False])
def test_a_key_with_more_rows_than_the_memory(timed: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [(7 if n % 10 else n, int(rng.integers(0, 1000)) if timed else 0) for n in range(3_000)]
    found, spilled = grouped(batches(rows, 100, pa.int64(), timed=timed), tmp_path, 6_000)
    check(found, rows)
    assert spilled > 3_000 * 24
    assert any(not part.ends_key for part in found)


def test_equal_times_of_one_key_may_be_more_than_the_memory(tmp_path: Path) -> None:
    rows = [(7, 5)] * 500
    found, _ = grouped(batches(rows, 50, pa.int64()), tmp_path, 3_000)
    check(found, rows)


def test_many_keys_with_one_hash(tmp_path: Path) -> None:
    """More than there are buckets, and more than the memory."""
    pairs = ["Aa", "BB"]
    keys = [a + b + c + d + e + f + g for a in pairs for b in pairs for c in pairs for d in pairs
            for e in pairs for f in pairs for g in pairs]  # fmt: skip
    rows = [(keys[n % len(keys)], -n) for n in range(1_000)]
    found, _ = grouped(batches(rows, 100, pa.string()), tmp_path, 2_000)
    check(found, rows)


def test_nothing(tmp_path: Path) -> None:
    assert grouped([Batch(pa.record_batch({"k": pa.array([], pa.int64())}))], tmp_path, 1) == ([], 0)


def test_close_in_the_middle_leaves_no_file(tmp_path: Path) -> None:
    sorter = KeySorter(["k"], tmp_path / "sort", 1)
    for batch in batches([(n, n) for n in range(100)], 10, pa.int64()):
        sorter.add(batch)
    next(sorter.sorted())
    assert list((tmp_path / "sort").iterdir())
    sorter.close()
    sorter.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_changes_is_found(tmp_path: Path) -> None:
    sorter = KeySorter(["k"], tmp_path / "sort", 1)
    for batch in batches([(n % 2, n) for n in range(100)], 10, pa.int64()):
        sorter.add(batch)
    for file in (tmp_path / "sort").iterdir():
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    with pytest.raises(ProtocolError, match="checksum"):
        list(sorter.sorted())


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2**20), st.one_of(st.integers(0, 9), st.integers(-(2**63), 2**63 - 1))),
        max_size=60,
    )
)
def test_the_order_is_that_of_a_stable_sort(pairs: list[tuple[int, int]]) -> None:
    codes = np.array([code for code, _ in pairs], np.int64)
    at = np.array([time for _, time in pairs], np.int64)
    expected = sorted(range(len(pairs)), key=lambda n: pairs[n])
    assert sorted_order(codes, at).tolist() == expected
    by_code = sorted(range(len(pairs)), key=lambda n: pairs[n][0])
    assert sorted_order(codes, None).tolist() == by_code


@pytest.mark.parametrize("producers", [1, 2, 5])
@pytest.mark.parametrize("piece", [1, 9, 40, 300])
@pytest.mark.parametrize("spread", [3, 1_000, 2**62])
def test_rows_of_producers_that_send_them_in_the_order_of_time(
    producers: int, piece: int, spread: int
) -> None:
    """Short and long runs take different ways. Many times are equal where the spread is small."""
    chance = np.random.default_rng(producers * piece)
    sent = [np.sort(chance.integers(-spread, spread, 600)) for _ in range(producers)]
    at = np.concatenate([times[i : i + piece] for i in range(0, 600, piece) for times in sent])
    codes = chance.integers(0, 7, len(at))
    assert sorted_order(codes, at).tolist() == np.lexsort((np.arange(len(at)), at, codes)).tolist()


@pytest.mark.parametrize("keys", [1, 5, 400])
@pytest.mark.parametrize(
    ("share", "writes"),
    [
        pytest.param(20, False, id="less than a chunk"),
        pytest.param(5, False, id="with a copy of all of them"),
        pytest.param(0.7, True, id="more than the memory"),
    ],
)
def test_rows_are_written_only_if_they_do_not_fit(
    keys: int, share: float, writes: bool, tmp_path: Path
) -> None:
    """`share`: the memory over the size of the rows. Sorting needs a copy of a bucket, and 32 bytes a row."""
    random = np.random.default_rng(2)
    rows = [(int(random.integers(0, keys)), int(random.integers(0, 99))) for _ in range(8_000)]
    added = batches(rows, 100, pa.int64())
    memory = int(share * sum(batch.nbytes for batch in added))
    found, spilled = grouped(added, tmp_path, memory)
    check(found, rows)
    assert (spilled > 0) == writes


# --- rows that come bucket by bucket --------------------------------------------------------------


def in_buckets(
    rows: Rows, folder: Path, *, count: int, memory: int, size: int, early: float, seed: int = 0
) -> tuple[list[KeyedRows], int]:
    """As a task gets them: those of a bucket before its end, and some of later buckets, too."""
    sorter, chance = KeySorter(["k"], folder / "sort", memory, 50), np.random.default_rng(seed)
    (whole,) = batches(rows, len(rows), pa.int64())
    buckets = buckets_of(key_hashes(whole.records, ["k"]), count)
    due = np.where(chance.random(len(rows)) < early, chance.integers(0, buckets + 1), buckets)
    found: list[KeyedRows] = []
    for number in range(count):
        places = np.flatnonzero(due == number)
        for start in range(0, len(places), size):
            sorter.add(whole.take(pa.array(places[start : start + size])))
        found += sorter.sorted_until(number, count)
        keys = {key for part in found for key in part.batch.records.column("k").to_pylist()}
        assert keys == {key for (key, _), bucket in zip(rows, buckets, strict=True) if bucket <= number}
    found += sorter.sorted()
    sorter.close()
    assert not (folder / "sort").exists()
    return found, sorter.spilled_bytes


@pytest.mark.parametrize("count", [2, 16, 64])
@pytest.mark.parametrize("early", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("memory", [1, 20_000, LARGE])
def test_a_bucket_is_sorted_when_it_ends(count: int, early: float, memory: int, tmp_path: Path) -> None:
    rows = [(n * 7 % 301, (n * 31) % 1_000) for n in range(3_000)]
    size = 300 if memory == 1 else 100  # each batch is a file of its own then
    found, spilled = in_buckets(rows, tmp_path, count=count, memory=memory, size=size, early=early)
    check(found, rows)
    assert spilled > 0 if memory == 1 else spilled >= 0
    if memory == LARGE:
        assert spilled == 0


def test_rows_that_come_by_bucket_need_the_memory_of_one(tmp_path: Path) -> None:
    rows = [(n * 7 % 301, n) for n in range(20_000)]  # 480,000 bytes
    found, spilled = in_buckets(rows, tmp_path, count=16, memory=300_000, size=500, early=0)
    check(found, rows)
    assert spilled == 0
    _, spilled = grouped(batches(rows, 500, pa.int64()), tmp_path, 300_000)
    assert spilled > 0, "in no order they do not fit"


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(-20, 20), times), min_size=1, max_size=200),
    count=st.sampled_from([2, 8, 64]),
    memory=st.sampled_from([1, 3_000, LARGE]),
    early=st.sampled_from([0, 0.3]),
    seed=st.integers(0, 99),
)
def test_any_rows_by_bucket(rows: Rows, count: int, memory: int, early: float, seed: int) -> None:
    with TemporaryDirectory() as folder:
        found, _ = in_buckets(rows, Path(folder), count=count, memory=memory, size=7, early=early, seed=seed)
    check(found, rows)


@pytest.mark.parametrize("memory", [1, LARGE])
def test_a_row_of_a_bucket_that_has_ended_is_refused(memory: int, tmp_path: Path) -> None:
    """Its key would be processed twice, each time with some of its rows."""
    (whole,) = batches([(n, n) for n in range(100)], 100, pa.int64())
    buckets = buckets_of(key_hashes(whole.records, ["k"]), 16)
    first = whole.filter(pa.array(buckets == 3))
    sorter = KeySorter(["k"], tmp_path / "sort", memory)
    sorter.add(first)
    assert sum(part.batch.num_rows for part in sorter.sorted_until(3, 16)) == first.num_rows

    def again() -> None:
        sorter.add(first)
        list(sorter.sorted())

    with pytest.raises(ProtocolError, match=r"rows of bucket 1[2-5] after its end"):
        again()
    sorter.close()
