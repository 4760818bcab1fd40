"""Buckets of keys: how many, and which rows are in one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from unistream.model.columns.key_buckets import BUCKETS_MAX, bucket_count, buckets_of
from unistream.model.key_groups import key_groups, key_hashes, subtask_table

KEYS = pa.record_batch({"k": np.arange(100_000)})


@pytest.mark.parametrize(
    ("consumers", "buckets"), [(1, 16), (2, 16), (4, 16), (5, 8), (16, 4), (32, 2), (33, 0), (1000, 0)]
)
def test_as_many_as_leave_large_pieces(consumers: int, buckets: int) -> None:
    assert bucket_count(consumers) == buckets


@pytest.mark.parametrize("count", [2, 4, 16, 64])
def test_few_buckets_are_ranges_of_many(count: int) -> None:
    few, many = buckets_of(key_hashes(KEYS, ["k"]), count), buckets_of(key_hashes(KEYS, ["k"]), BUCKETS_MAX)
    assert np.array_equal(few, many // (BUCKETS_MAX // count))


@pytest.mark.parametrize("level", range(5))
def test_keys_are_spread_at_every_level(level: int) -> None:
    shares = np.bincount(buckets_of(key_hashes(KEYS, ["k"]), BUCKETS_MAX, level), minlength=BUCKETS_MAX)
    assert shares.max() < 2 * len(KEYS) / BUCKETS_MAX


def test_the_keys_of_one_consumer_are_in_all_buckets() -> None:
    consumer = subtask_table(128, 4)[key_groups(KEYS, ["k"], 128)]
    buckets = buckets_of(key_hashes(KEYS, ["k"]), 16)
    shares = np.bincount(consumer.astype(np.int64) * 16 + buckets, minlength=64)
    assert shares.min() > 0.8 * len(KEYS) / 64


def test_equal_keys_are_in_one_bucket_whatever_is_beside_them() -> None:
    records = pa.record_batch({"n": [1, 2, 3], "a": ["x", None, "x"], "b": [5, 5, 5]})
    found = buckets_of(key_hashes(records, ["a", "b"]), 64).tolist()
    assert found[0] == found[2]
    alone = [buckets_of(key_hashes(records.slice(n, 1), ["a", "b"]), 64).tolist() for n in range(3)]
    assert [[bucket] for bucket in found] == alone
