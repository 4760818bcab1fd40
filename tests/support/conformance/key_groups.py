"""Key groups: ranges, owners, hashes of hash codes and of keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tests.support.conformance.case import Comparison, Json, Shape, SkipCase, entry
from unistream.base.errors import ConfigError
from unistream.model import key_groups as kg

ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "String": pa.string(),
    "Integer": pa.int32(),
    "Long": pa.int64(),
    "Double": pa.float64(),
    "Float": pa.float32(),
    "Boolean": pa.bool_(),
    "Byte": pa.int8(),
    "Short": pa.int16(),
}
BAD_ARGUMENT: Final = "IllegalArgumentException"  # Java's name for a `ConfigError`
_TUPLE: Final = re.compile(r"^Tuple\d+<(.*)>$")
_GROUPS: Final = re.compile(r"^keyGroupFor((?:_\d+)+)$")
_OWNERS: Final = re.compile(r"^subtaskFor_mp(\d+)_p((?:_\d+)+)$")


def _ranges(case: Json) -> Comparison:
    maximum, parallelism = case["maxParallelism"], case["parallelism"]
    owners = case["operatorIndexOfKeyGroup"]
    sampled = bool(owners) and isinstance(owners[0], list)
    groups = [pair[0] for pair in owners] if sampled else list(range(maximum))
    expected = {
        "ranges": case["keyGroupRangePerSubtask"],
        "owners": [pair[1] for pair in owners] if sampled else owners,
        "by table": [pair[1] for pair in owners] if sampled else owners,
    }
    table = kg.subtask_table(maximum, parallelism)
    actual = {
        "ranges": [list(kg.key_group_range(maximum, parallelism, i)) for i in range(parallelism)],
        "owners": [kg.subtask_of_key_group(maximum, parallelism, group) for group in groups],
        "by table": [int(table[group]) for group in groups],
    }
    return Comparison(expected, actual)


def _default_max_parallelism(case: Json) -> Comparison:
    return Comparison(case["defaultMaxParallelism"], kg.default_max_parallelism(case["parallelism"]))


def _hashes(case: Json) -> Comparison:
    hashes = np.array([case["hashCode"]], dtype=np.int64).astype(np.int32).view(np.uint32)
    actual: Json = {"murmur": kg.murmur(hashes).tolist()[0]}
    actual |= _groups(case, lambda maximum: int(kg.groups_of_hashes(hashes, maximum)[0]))
    return Comparison({key: case[key] for key in actual}, actual)


def _groups(case: Json, group: Callable[[int], int]) -> Json:
    """``keyGroupFor_1_2_…``: one key group per max parallelism of the name."""
    return {
        key: [group(int(number)) for number in match[1].split("_")[1:]]
        for key in case
        if (match := _GROUPS.match(key)) is not None
    }


def _java_keys(case: Json) -> Comparison:
    records = _record(case["javaType"], case["value"])
    names = records.schema.names

    def group(maximum: int) -> int:
        return int(kg.key_groups(records, names, maximum)[0])

    actual: Json = {"hashCode": kg.key_hashes(records, names).view(np.int32).tolist()[0]}
    actual |= _groups(case, group)
    for key in case:
        match = _OWNERS.match(key)
        if match is not None:
            maximum = int(match[1])
            actual[key] = [
                kg.subtask_of_key_group(maximum, int(number), group(maximum))
                for number in match[2].split("_")[1:]
            ]
    return Comparison({key: case[key] for key in actual}, actual)


def _record(java_type: str, value: Any) -> pa.RecordBatch:
    """One row whose columns are the key."""
    match = _TUPLE.match(java_type)
    if match is None:
        columns = [_column(java_type, value)]
    else:
        items = json.loads(value) if isinstance(value, str) else value
        columns = [_column(t.strip(), item) for t, item in zip(match[1].split(","), items, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=[f"k{i}" for i in range(len(columns))])


def _column(java_type: str, value: Any) -> pa.Array:
    kind = ARROW_TYPES.get(java_type)
    if kind is None:
        raise SkipCase(f"a key is one or several columns of Arrow types; {java_type} is none of them")
    if value is None:
        return pa.array([None], kind)
    if java_type in ("Double", "Float"):
        value = float(value)
    elif java_type == "Boolean":
        value = value in ("true", True)
    elif java_type != "String":
        value = int(value)
    return pa.array([value], kind)


def _preconditions(case: Json) -> Comparison:
    """Either a max parallelism (`value`), or a case in words with its two numbers."""
    expected = case["error"]
    try:
        if "value" in case:
            kg.check_max_parallelism(case["value"])
        else:
            kg.key_group_range(
                _number(case["case"], "maxParallelism"), _number(case["case"], "parallelism"), 0
            )
    except ConfigError:
        return Comparison(expected, BAD_ARGUMENT)
    return Comparison(expected, None)


def _number(text: str, name: str) -> int:
    match = re.search(rf"\b{name}\s*=?\s*(-?\d+)", text)
    if match is None:
        raise SkipCase(f"words only: it does not say which {name}")
    return int(match[1])


def _intersections(case: Json) -> Comparison:
    found = kg.intersect((case["a"][0], case["a"][1]), (case["b"][0], case["b"][1]))
    return Comparison(case["intersection"], None if found is None else list(found))


SHAPES: Final[tuple[Shape, ...]] = (
    entry("ranges", "maxParallelism", "keyGroupRangePerSubtask", play=_ranges),
    entry("defaultMaxParallelism", "parallelism", "defaultMaxParallelism", play=_default_max_parallelism),
    entry("hashes", "hashCode", "murmur", play=_hashes),
    entry("javaKeys", "javaType", "hashCode", play=_java_keys),
    entry("preconditionErrors", "error", play=_preconditions),
    entry("keyGroupRangeIntersections", "a", "b", "intersection", play=_intersections),
)
