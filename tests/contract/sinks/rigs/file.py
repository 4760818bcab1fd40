"""A folder of files, as DuckDB and pyarrow read it."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tests.contract.sinks.rig import Combination, Foreign, Way, appended
from tests.contract.sinks.rigs.delta import plain
from tests.contract.sinks.values import KINDS
from tests.old_duckdb import MISREADS_FOLDERS
from unistream.connector.file import FileSink
from unistream.port.sink import Sink


def _put(rig: FileRig, _victim: int, theirs: pa.RecordBatch) -> Any:
    return lambda: rig.put(theirs, "theirs")


def _mark(rig: FileRig, _victim: int, _theirs: pa.RecordBatch) -> Any:
    def touch() -> None:
        rig.folder.mkdir(exist_ok=True)
        (rig.folder / "_SUCCESS").touch()

    return touch


FOREIGN = {"another file": Foreign(_put, appended), "a marker": Foreign(_mark)}
WAYS = {
    "parquet": Way("append", "column"),
    "parquet in folders": Way("append", "partition", {"partition_by": ["v"]}),
    "json": Way("append", "column", {"format": "json"}),
    "json in folders": Way("append", "partition", {"format": "json", "partition_by": ["v"]}),
}
FOLDERS = ("parquet in folders", "json in folders")


class FileRig:
    kinds = tuple(KINDS)
    ways = WAYS
    refused = tuple((kind, way) for kind in ("bytes", "list") for way in FOLDERS)
    staging = ("file.staged",)
    steps = ("file.before_record", "file.recorded", "file.first_renamed")
    look = "file.before_record"
    foreign = FOREIGN
    refusals = ()
    background = ""

    @staticmethod
    def is_possible(one: Combination) -> bool:
        return one.kind != "names" or one.way not in FOLDERS  # such a value is refused when it comes

    def __init__(self, folder: Path, _fixture: Callable[[str], Any]) -> None:
        self.folder = folder / "out"
        self._way = WAYS["parquet"]

    def is_empty(self) -> bool:
        return not self.folder.exists()

    def sink(self, way: Way) -> Sink:
        self._way = way
        return FileSink(str(self.folder), on_foreign="append", **way.options)

    def fill(self, way: Way, rows: pa.RecordBatch) -> None:
        self.put(rows, "old")

    def put(self, rows: pa.RecordBatch, name: str) -> None:
        """A file for each row: by pyarrow, or as plain text."""
        table = plain(rows)
        for number, row in enumerate(table.to_pylist()):
            folder, one = self.folder, table.slice(number, 1)
            if self._way.place == "partition":
                text = _text(row.pop("v"))
                folder /= "v=" + ("__HIVE_DEFAULT_PARTITION__" if text is None else quote(text, safe=""))
                one = one.drop_columns(["v"])
            folder.mkdir(parents=True, exist_ok=True)
            if self._way.options.get("format") == "json":
                line = json.dumps({key: _in_json(value) for key, value in row.items()})
                (folder / f"{name}-{number}.jsonl").write_text(line + "\n")
            else:
                pq.write_table(one, folder / f"{name}-{number}.parquet")

    def shown(self, value: Any, way: Way) -> Any:
        if way.place == "partition":
            return _text(value)
        return _in_json(value) if way.options.get("format") == "json" else value

    def readers(self, way: Way, schema: pa.Schema) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        is_json, in_folders = way.options.get("format") == "json", way.place == "partition"
        if not is_json:
            flavor = ds.partitioning(pa.schema([("v", pa.string())]), flavor="hive") if in_folders else None
            found = ds.dataset(self.folder, format="parquet", partitioning=flavor)
            yield "pyarrow", found.to_table(columns=["id", "v", "n"]).to_pylist()
        if in_folders and MISREADS_FOLDERS:
            return
        files = f"'{self.folder}/**/*.{'jsonl' if is_json else 'parquet'}'"
        of_json = ", format = 'newline_delimited', columns = {id: 'BIGINT', v: 'JSON', n: 'BIGINT'}"
        if in_folders:
            of_json = of_json.replace("v: 'JSON', ", "")
        hive = ", hive_partitioning = true, hive_types = {v: VARCHAR}" if in_folders else ""
        read = f"read_json({files}{of_json}{hive})" if is_json else f"read_parquet({files}{hive})"
        with duckdb.connect() as connection:
            rows = connection.sql(f"SELECT id, v, n FROM {read}").arrow().read_all().to_pylist()
        if is_json and not in_folders:
            rows = [one | {"v": None if one["v"] is None else json.loads(one["v"])} for one in rows]
        yield "DuckDB", rows


def _text(value: Any) -> str | None:
    """In the name of a folder."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        case dt.date():
            return value.isoformat()
        case _:
            return str(value)


def _in_json(value: Any) -> Any:
    match value:
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat() + ("Z" if value.tzinfo else "")
        case dt.date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value
