"""Tables with features that writers have to know: rows are written as they ask for it, or the sink is refused
by name where it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import unistream as us
from unistream.connector.delta import read_table

COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.string())])
BOTH = {"deletionVectors", "timestampNtz", "v2Checkpoint", "columnMapping", "typeWidening"}
ROW = {"mode": "upsert", "key": "a"}


def table(
    folder: Path, *features: str, conf: dict[str, str] | None = None, marked: dict[str, Any] | None = None
) -> Path:
    """The table as its creator wrote it: ``a long, b string, c struct<d:long>``; `marked`: metadata of `c.d`,
    or, by ``"b"``, of that column."""
    (folder / "_delta_log").mkdir(parents=True)
    marks = marked or {}
    inner = {"type": "struct", "fields": [_field("d", "long", marks.get("c.d"))]}
    fields = [_field("a", "long", None), _field("b", "string", marks.get("b")), _field("c", inner, None)]
    actions = [
        {"protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": sorted(BOTH & set(features)),
            "writerFeatures": list(features),
        }},
        {"metaData": {
            "id": "t",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [],
            "configuration": conf or {},
            "createdTime": 1,
        }},
    ]  # fmt: skip
    lines = "\n".join(map(json.dumps, actions))
    (folder / "_delta_log" / f"{0:020d}.json").write_text(lines + "\n")
    return folder


def _field(name: str, kind: object, metadata: dict[str, object] | None) -> dict[str, object]:
    number = "abcd".index(name) + 1
    names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{name}"}
    return {"name": name, "type": kind, "nullable": True, "metadata": names | (metadata or {})}


REFUSED: dict[str, tuple[list[str], dict[str, str], dict[str, Any], str]] = {
    "column mapping": (["columnMapping"], {"delta.columnMapping.mode": "name"}, {}, r"column mapping \(name"),
    "a constraint": (["checkConstraints"], {"delta.constraints.pos": "a > 0"}, {}, r"a constraint \(pos\)"),
    "a generated column": (
        ["generatedColumns"],
        {},
        {"b": {"delta.generationExpression": "a * 2"}},
        r"column 'b' is generated \(a \* 2\)",
    ),
    "an identity column": (
        ["identityColumns"],
        {},
        {"b": {"delta.identity.start": 1, "delta.identity.step": 1}},
        "column 'b' is an identity column",
    ),
    "an invariant inside of a struct": (
        ["invariants"],
        {},
        {"c.d": {"delta.invariants": '{"expression":{"expression":"d > 3"}}'}},
        "column 'c.d' has an invariant",
    ),
    "a default value": (["allowColumnDefaults"], {}, {"b": {"CURRENT_DEFAULT": "'q'"}}, "a default value"),
    "identity columns that it has no more": (["identityColumns"], {}, {}, "the feature identityColumns"),
    "row tracking": (["rowTracking", "domainMetadata"], {}, {}, "features domainMetadata, rowTracking"),
    "times in commits": (["inCommitTimestamp"], {}, {}, "the feature inCommitTimestamp"),
    "clusters": (["clustering"], {}, {}, "the feature clustering"),
    "wider types": (["typeWidening"], {}, {}, "the feature typeWidening"),
    "Iceberg next to it": (["icebergCompatV2"], {}, {}, "the feature icebergCompatV2"),
    "what nobody knows yet": (["fromTheFuture"], {}, {}, "the feature fromTheFuture"),
}


@pytest.mark.parametrize(
    "options", [{}, ROW, {"mode": "overwrite-partitions"}], ids=["", "upsert", "overwrite"]
)
@pytest.mark.parametrize("feature", REFUSED)
def test_a_table_is_refused_by_the_name_of_what_the_sink_does_not_keep(
    tmp_path: Path, feature: str, options: dict[str, Any]
) -> None:
    features, conf, marked, message = REFUSED[feature]
    folder = table(tmp_path / "t", *features, conf=conf, marked=marked)
    rows = us.Environment().from_collection([{"a": 1, "b": "x"}]).key_by("a")
    with pytest.raises(us.ConfigError, match=message):
        rows.sink_to(us.DeltaSink(str(folder), **options))
    assert [one.name for one in folder.iterdir()] == ["_delta_log"]
    assert DeltaTable(folder).version() == 0


def test_a_table_of_before_features_had_names_is_refused_too(tmp_path: Path) -> None:
    folder = table(tmp_path / "t")
    log = folder / "_delta_log" / f"{0:020d}.json"
    _, metadata = log.read_text().splitlines()
    log.write_text('{"protocol": {"minReaderVersion": 1, "minWriterVersion": 6}}\n' + metadata + "\n")
    with pytest.raises(us.ConfigError, match="the feature identityColumns"):
        us.DeltaSink(str(folder)).check(COLUMNS)


def test_a_table_that_takes_rows_only_takes_rows_only(tmp_path: Path) -> None:
    folder = str(table(tmp_path / "t", "appendOnly", conf={"delta.appendOnly": "true"}))
    us.DeltaSink(folder).check(COLUMNS)
    for options in (ROW, {"mode": "overwrite-partitions"}):
        with pytest.raises(us.ConfigError, match="takes rows only"):
            us.DeltaSink(folder, **options).check(COLUMNS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "features",
    [
        ["invariants", "checkConstraints", "generatedColumns", "columnMapping"],
        ["appendOnly", "changeDataFeed", "deletionVectors", "timestampNtz", "v2Checkpoint"],
    ],
    ids=["of which it makes no use", "that rows are written with"],
)
def test_a_table_with_features_takes_rows(tmp_path: Path, features: list[str]) -> None:
    folder = table(tmp_path / "t", *features)
    env = us.Environment()
    env.from_collection([{"a": 1, "b": "x"}]).sink_to(us.DeltaSink(str(folder))).uid("sink")
    with us.testing.MiniCluster() as cluster:
        cluster.execute(env)
    (row,) = read_table(str(folder), {}).to_pylist()
    assert (row["a"], row["b"]) == (1, "x")
