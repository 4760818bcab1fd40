"""Key groups of whole columns, against Java's definitions one value at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError
from unistream.model import key_groups as kg


def _java_string_hash(text: str) -> int:
    result = 0
    units = np.frombuffer(text.encode("utf-16-le"), dtype="<u2")
    for unit in units.tolist():
        result = (31 * result + unit) & 0xFFFFFFFF
    return result


TEXTS = ["", "a", "key-17", "höhe", "中文", "😀x", "x" * 300, "😀😀", "\x00b"]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_strings_in_a_sliced_column_with_nulls(kind: pa.DataType) -> None:
    values = [None, *TEXTS, None, *reversed(TEXTS)]
    array = pa.array(values, pa.string()).cast(kind).slice(1, len(values) - 3)
    expected = [0 if v is None else _java_string_hash(v) for v in values[1:-2]]
    assert kg.hash_array(array, "k").tolist() == expected


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        pytest.param(pa.int64(), [5, None, -1, 1 << 32], [5, 0, 0, 1], id="int64"),
        pytest.param(pa.int32(), [5, None, -1], [5, 0, 0xFFFFFFFF], id="int32"),
        pytest.param(pa.uint8(), [200, None], [200, 0], id="uint8"),
        pytest.param(pa.bool_(), [True, None, False], [1231, 0, 1237], id="bool"),
        pytest.param(pa.timestamp("us"), [7, None], [7, 0], id="timestamp by its number"),
        pytest.param(pa.date32(), [7, None], [7, 0], id="date by its number"),
        pytest.param(pa.float64(), [0.0, None, float("nan")], [0, 0, 0x7FF80000], id="double"),
        pytest.param(pa.null(), [None, None], [0, 0], id="null"),
    ],
)
def test_columns_with_nulls_and_offset(kind: pa.DataType, values: list[Any], expected: list[int]) -> None:
    array = pa.array([values[0], *values], kind).slice(1)
    assert kg.hash_array(array, "k").tolist() == expected


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.int32()), pa.decimal128(5), pa.float16()], ids=str)
def test_what_cannot_be_a_key_is_named(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match="column 'k'"):
        kg.hash_array(pa.nulls(2, kind), "k")


def test_a_missing_key_column_is_named() -> None:
    with pytest.raises(ConfigError, match="key column 'x' is not one of k"):
        kg.key_groups(pa.record_batch({"k": [1]}), ["x"], 128)
