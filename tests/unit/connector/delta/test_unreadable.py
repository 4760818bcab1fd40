"""Tables that stay unreadable, or that this version may not write: the error says so, and is no outage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.contract.sinks.run import SinkRun
from tests.unit.connector.delta.delta_tables import append, rewrite
from unistream.base.errors import ConfigError, Unreachable
from unistream.connector.delta import DeltaSink, DeltaSource
from unistream.connector.delta.access import failed
from unistream.connector.delta.table import DeltaSinkTable

ROWS = pa.table({"id": [1]})


def made(folder: Path) -> Path:
    for _ in range(3):
        append(folder, ROWS)
    return folder


def entry(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020d}.json"


def needing(reader: list[str], writer: list[str]) -> Callable[[Path], None]:
    changed: dict[str, Any] = {"minReaderVersion": 3 if reader else 1, "minWriterVersion": 7}
    changed |= {"writerFeatures": [*writer, *reader], **({"readerFeatures": reader} if reader else {})}
    return lambda table: rewrite(table, 0, {"protocol": changed})


def with_schema(text: str) -> Callable[[Path], None]:
    return lambda table: rewrite(table, 0, {"metaData": {"schemaString": text}})


def with_junk_as_checkpoint(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    for path in table.glob("_delta_log/*.parquet"):
        path.write_text("junk")
    entry(table, 0).unlink()


GEOMETRY = json.dumps(
    {"type": "struct", "fields": [{"name": "id", "type": "geometry", "nullable": True, "metadata": {}}]}
)
UNREADABLE = [
    pytest.param(needing(["news"], []), "Feature 'news' is not supported; it needs a newer", id="a feature"),
    pytest.param(
        *(needing(["catalogManaged"], []), "Max catalog version .*; it needs a newer version of deltalake"),
        id="a table that a catalog manages",
    ),
    pytest.param(
        lambda table: rewrite(table, 0, {"protocol": {"minReaderVersion": 99}}),
        *("reader version 99; it needs a newer version of deltalake",),
        id="a later protocol",
    ),
    pytest.param(
        lambda table: entry(table, 1).unlink(), "its log is damaged: .*found gap", id="a version is missing"
    ),
    pytest.param(
        lambda table: entry(table, 0).unlink(), "its log is damaged: .*No table metadata", id="no beginning"
    ),
    pytest.param(
        lambda table: entry(table, 2).write_text("{"), "its log is damaged: .*Json error", id="half an entry"
    ),
    pytest.param(with_schema("{}"), "its log is damaged: .*missing field", id="a schema that is none"),
    pytest.param(with_schema(GEOMETRY), "Unsupported Delta table type", id="a type"),
    pytest.param(with_junk_as_checkpoint, "its log is damaged: .*EOF", id="a checkpoint that is junk"),
]


@pytest.mark.parametrize(("change", "text"), UNREADABLE)
def test_a_table_that_stays_unreadable_is_no_outage(
    tmp_path: Path, change: Callable[[Path], None], text: str
) -> None:
    table = made(tmp_path / "t")
    change(table)
    uri = str(table)
    for act in (
        lambda: DeltaSink(uri).check(ROWS.schema),
        lambda: DeltaSinkTable.open(uri, {}),
        lambda: DeltaSource(uri).schema,
        lambda: DeltaSink(uri).range_target("at").look(),
    ):
        with pytest.raises(ConfigError, match=f"table {uri} cannot be read: .*{text}"):
            act()


def test_a_store_that_does_not_answer_is_an_outage() -> None:
    options = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "max_retries": "0",
    }
    with pytest.raises(Unreachable, match=r"table s3://bucket/t could not be read: .*refused"):
        DeltaSinkTable.open("s3://bucket/t", options)


def test_a_store_for_which_nobody_has_a_key_says_where_it_is_given() -> None:
    said = "Operation not supported: an error occurred while loading credentials: no token of a role"
    found = failed("s3://lake/t", OSError(said))
    assert isinstance(found, Unreachable), "the role of a machine may come"
    assert str(found).startswith(
        "table s3://lake/t: no key for its store was found (no token of a role); give a key that may list, "
        "read and write that folder: s3.access-key and s3.secret-key"
    )


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "key": "id"}], ids=["append", "upsert"])
@pytest.mark.parametrize("feature", ["news", "rowTracking"])
def test_a_table_that_may_not_be_written_refuses_the_first_commit(
    tmp_path: Path, feature: str, options: dict[str, Any]
) -> None:
    """Also if it got the feature when the job was running: deltalake reports that as it reports a conflict,
    after which a commit is tried again."""
    table = made(tmp_path / "t")
    needing([], [feature])(table)
    with (
        SinkRun(DeltaSink(str(table), on_foreign="append", **options)) as run,
        pytest.raises(ConfigError, match=f"has the feature {feature}, which this sink does not keep"),
    ):
        run.commit(1, pa.record_batch({"id": [2]}))


def test_rows_of_a_table_for_additions_only_are_not_replaced(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "true"})
    sink = DeltaSink(str(table), on_foreign="append", mode="overwrite-partitions")
    with (
        SinkRun(sink, checkpointing=False) as run,
        pytest.raises(ConfigError, match="takes rows only"),
    ):
        run.commit(1, pa.record_batch({"id": [2]}))


def file_of(folder: Path) -> Path:
    (folder / "f").write_text("")
    return folder / "f"


def link_to(folder: Path, target: Path) -> Path:
    os.symlink(target, folder / "link")
    return folder / "link"


@pytest.mark.parametrize(
    ("place", "text"),
    [
        pytest.param(file_of, "Invalid table location", id="a file"),
        pytest.param(lambda folder: file_of(folder) / "t", "/f is a file", id="below a file"),
        pytest.param(
            lambda folder: link_to(folder, folder / "no"), "is a link to nothing", id="a broken link"
        ),
        pytest.param(
            lambda folder: link_to(folder, folder / "link") / "t",
            "is a link to nothing",
            id="a link to itself",
        ),
    ],
)
def test_a_place_that_can_be_no_table_is_refused_before_the_start(
    tmp_path: Path, place: Callable[[Path], Path], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        DeltaSink(str(place(tmp_path))).check(ROWS.schema)


def test_a_link_to_a_folder_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    link = link_to(tmp_path, tmp_path / "lake")
    with SinkRun(DeltaSink(f"{link}/t")) as run:
        run.commit(1, pa.record_batch({"id": [2]}))
    assert DeltaTable(tmp_path / "lake" / "t").to_pyarrow_table().to_pylist() == [{"id": 2}]


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(lambda folder: link_to(folder, folder / "link") / "t", id="a link to itself"),
        pytest.param(lambda folder: file_of(folder) / "t", id="below a file"),
    ],
)
def test_a_file_that_can_never_be_written_is_no_outage(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    with (
        SinkRun(DeltaSink(str(place(tmp_path)))) as run,
        pytest.raises(ConfigError, match=r"could not write .*\[Errno"),
    ):
        run.commit(1, pa.record_batch({"id": [2]}))


def test_a_name_that_is_too_long_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no name of a file or folder: it has more than 255 bytes"):
        DeltaSink(str(tmp_path / ("x" * 300)))
