"""Key groups against vectors computed by Flink 2.3.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError
from unistream.model import key_groups as kg

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "keygroups.json").read_text())
MAX_PARALLELISMS = (1, 2, 10, 128, 4096, 32768)
SUBTASK_PARALLELISMS = (1, 2, 3, 4, 8, 128)

ARROW_TYPES = {
    "String": pa.string(),
    "Integer": pa.int32(),
    "Long": pa.int64(),
    "Double": pa.float64(),
    "Float": pa.float32(),
    "Boolean": pa.bool_(),
    "Byte": pa.int8(),
    "Short": pa.int16(),
}
SKIPPED = {
    "List<Integer>": "a key is one or several columns; a list is not a key type",
    "Character": "Arrow has no character type",
}


def _column(java_type: str, value: Any) -> pa.Array:
    kind = ARROW_TYPES[java_type]
    if java_type in ("Double", "Float"):
        value = float(value)
    elif java_type == "Boolean":
        value = value in ("true", True)
    elif java_type != "String":
        value = int(value)
    return pa.array([value], kind)


def _records(case: dict[str, Any]) -> pa.RecordBatch:
    java_type, value = case["javaType"], case["value"]
    if java_type in SKIPPED:
        pytest.skip(SKIPPED[java_type])
    if java_type.startswith("Tuple"):
        parts = java_type[java_type.index("<") + 1 : -1].split(",")
        columns = [_column(part.strip(), item) for part, item in zip(parts, json.loads(value), strict=True)]
    else:
        columns = [_column(java_type, value)]
    return pa.RecordBatch.from_arrays(columns, names=[f"k{i}" for i in range(len(columns))])


@pytest.mark.parametrize("case", VECTORS["ranges"], ids=lambda c: f"{c['maxParallelism']}/{c['parallelism']}")
def test_ranges_and_owners(case: dict[str, Any]) -> None:
    maximum, parallelism = case["maxParallelism"], case["parallelism"]
    ranges = [list(kg.key_group_range(maximum, parallelism, i)) for i in range(parallelism)]
    assert ranges == case["keyGroupRangePerSubtask"]
    table = kg.subtask_table(maximum, parallelism)
    owners = case["operatorIndexOfKeyGroup"]
    pairs = owners if owners and isinstance(owners[0], list) else list(enumerate(owners))
    assert pairs
    for group, owner in pairs:
        assert kg.subtask_of_key_group(maximum, parallelism, group) == owner
        assert table[group] == owner


@pytest.mark.parametrize("case", VECTORS["defaultMaxParallelism"], ids=lambda c: str(c["parallelism"]))
def test_default_max_parallelism(case: dict[str, Any]) -> None:
    assert kg.default_max_parallelism(case["parallelism"]) == case["defaultMaxParallelism"]


def test_murmur_and_key_groups_of_hash_codes() -> None:
    cases = VECTORS["hashes"]
    hashes = np.array([c["hashCode"] for c in cases], dtype=np.int64).astype(np.int32).view(np.uint32)
    assert kg.murmur(hashes).tolist() == [c["murmur"] for c in cases]
    for position, maximum in enumerate(MAX_PARALLELISMS):
        expected = [c["keyGroupFor_1_2_10_128_4096_32768"][position] for c in cases]
        assert kg.groups_of_hashes(hashes, maximum).tolist() == expected


@pytest.mark.parametrize("case", VECTORS["javaKeys"], ids=lambda c: f"{c['javaType']}={c['value']!r}")
def test_java_keys(case: dict[str, Any]) -> None:
    records = _records(case)
    names = records.schema.names
    assert kg.key_hashes(records, names).view(np.int32).tolist() == [case["hashCode"]]
    groups = [int(kg.key_groups(records, names, m)[0]) for m in MAX_PARALLELISMS]
    assert groups == case["keyGroupFor_1_2_10_128_4096_32768"]
    owners = [kg.subtask_of_key_group(128, p, groups[3]) for p in SUBTASK_PARALLELISMS]
    assert owners == case["subtaskFor_mp128_p_1_2_3_4_8_128"]


@pytest.mark.parametrize("case", VECTORS["preconditionErrors"], ids=str)
def test_preconditions(case: dict[str, Any]) -> None:
    if "case" in case:
        words = case["case"].replace(">", " ").split()
        parallelism, maximum = (int(w) for w in words if w.isdigit())
        with pytest.raises(ConfigError):
            kg.key_group_range(maximum, parallelism, 0)
    elif case["error"] is None:
        kg.check_max_parallelism(case["value"])
        assert kg.key_group_range(case["value"], 1, 0) == (0, case["value"] - 1)
    else:
        with pytest.raises(ConfigError):
            kg.check_max_parallelism(case["value"])


@pytest.mark.parametrize("case", VECTORS["keyGroupRangeIntersections"], ids=str)
def test_intersections(case: dict[str, Any]) -> None:
    found = kg.intersect(tuple(case["a"]), tuple(case["b"]))
    assert (None if found is None else list(found)) == case["intersection"]


# --- whole columns against Java's definitions, one value at a time --------------------------------


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
