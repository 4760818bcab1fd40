"""Names of folders, tables, topics and operators: rows are found there by somebody else, or it is refused."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import unistream as us
from tests.contract.sinks.run import SinkRun
from tests.names import ODD
from unistream.base.config import HA_CLUSTER_ID
from unistream.base.errors import ConfigError, NotFound
from unistream.connector.group import read_group
from unistream.operator.process.batch import BatchCollector
from unistream.operator.process.context import Collector as RowCollector
from unistream.operator.process.user_metrics import UserMetrics
from unistream.port.metrics import Uncounted
from unistream.port.sink import Sink
from unistream.rest.requests import target
from unistream.storage.location import open_location

ROWS: Final = pa.table({"id": [1, 2]})
NO_TIMES: Final = us.WatermarkStrategy.no_watermarks()


def catalogue(folder: Path, warehouse: str = "w") -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"{folder}/{warehouse}"}


def in_files(folder: Path, name: str) -> int:
    return sum(pq.read_table(path).num_rows for path in (folder / name).glob("part-*"))


def in_delta(folder: Path, name: str) -> int:
    return DeltaTable(str(folder / name)).to_pyarrow_table().num_rows


def in_iceberg(folder: Path, table: str) -> int:
    with load_catalog("c", **catalogue(folder)) as catalog:
        return catalog.load_table(table).scan().to_arrow().num_rows


def in_sqlite(folder: Path, table: str) -> int:
    connection = sqlite3.connect(folder / "rows.db")
    [(found,)] = connection.execute('SELECT count(*) FROM "' + table.replace('"', '""') + '"')
    connection.close()
    return int(found)


@dataclass(frozen=True)
class Place:
    """`refused`: keys of `ODD`. `leads_out`: those that a user may mean to lead elsewhere, a path."""

    make: Callable[[Path, str], Sink]
    rows: Callable[[Path, str], int]
    refused: frozenset[str]
    leads_out: frozenset[str] = frozenset()


NO_PATHS: Final = frozenset({"NUL", "300 characters"})
UP: Final = frozenset({"two dots", "the folder above", "an absolute path"})
PLACES: Final = {
    "a folder of files": Place(lambda at, name: us.FileSink(str(at / name)), in_files, NO_PATHS, UP),
    "a Delta table": Place(
        lambda at, name: us.DeltaSink(str(at / name)),
        in_delta,
        NO_PATHS | {"encoded", "a backslash", "a line break", "a tab"},
        UP,
    ),
    "a warehouse of Iceberg": Place(
        lambda at, name: us.IcebergSink("ns.t", catalog="c", catalog_properties=catalogue(at, f"{name}/w")),
        lambda at, _: in_iceberg(at, "ns.t"),
        NO_PATHS | {"a part of a URL"},
        UP,
    ),
    "an Iceberg table": Place(
        lambda at, name: us.IcebergSink(f"ns.{name}", catalog="c", catalog_properties=catalogue(at)),
        lambda at, name: in_iceberg(at, f"ns.{name}"),
        NO_PATHS
        | {
            "a part of a URL",
            "a dot first",
            "two dots",
            "the folder above",
            "blanks",
            "a line break",
            "a tab",
        }
        | {"nothing", "a blank"},
    ),
    "a table of SQL": Place(
        lambda at, name: us.SqlSink(f"sqlite:///{at / 'rows.db'}", name),
        in_sqlite,
        frozenset({"NUL", "nothing", "a dot", "a dot first", "two dots", "an alias of a statement"})
        | {"the folder above"},
    ),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_rows_are_where_the_name_says(tmp_path: Path, place: Place) -> None:
    refused = set()
    for number, (what, name) in enumerate(ODD.items()):
        if what in place.leads_out:
            continue
        above = tmp_path / str(number)
        folder = above / "in"
        folder.mkdir(parents=True)
        why = refusal(lambda folder=folder, name=name: place.make(folder, name).check(ROWS.schema))
        if why is not None:
            refused.add(what)
            assert is_told(name, why)
            continue
        with SinkRun(place.make(folder, name)) as run:
            run.commit(1, *ROWS.to_batches())
        assert (what, place.rows(folder, name)) == (what, 2)
        assert list(above.iterdir()) == [folder], what
    assert refused == place.refused


# --- names of which there is no folder ----------------------------------------------------------------


def source(env: us.Environment, name: str = "rows") -> us.DataStream:
    return env.from_source(us.StaticSource(ROWS), NO_TIMES, name)


def grouped(name: str) -> Any:
    env = us.Environment()
    source(env).slot_sharing_group(name).sink_to(us.BlackholeSink())
    return env.job_graph("groups")


def with_late_rows(name: str) -> Any:
    times = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("id")
    rows = source(us.Environment()).assign_timestamps_and_watermarks(times)
    windows = rows.key_by("id").window(us.TumblingEventTimeWindows.of(10))
    return windows.side_output_late_data(name)


class Emits(us.ProcessFunction):
    def process_element(self, row: dict[str, Any], context: Any, out: us.Collector) -> None:
        out.emit(row)


def with_declared(name: str) -> Any:
    return source(us.Environment()).process(Emits(), side_outputs={name: ROWS.schema})


def savepoint_at(name: str) -> Any:
    """By a request, and by an option or argument."""
    return open_location(target(f"/in/{name}") or "")


def is_printable(name: str) -> bool:
    return name.isprintable() and 0 < len(name) <= 200


KAFKA: Final = {"bootstrap_servers": "127.0.0.1:9", "schema": ROWS.schema}
OF_TOPICS: Final = frozenset("._-") | frozenset(map(chr, [*range(48, 58), *range(65, 91), *range(97, 123)]))
NAMED: Final[dict[str, tuple[Callable[[str], Any], Callable[[str], bool]]]] = {
    "a topic": (
        lambda name: us.KafkaSource(topic=name, **KAFKA),
        lambda name: set(name) <= OF_TOPICS and 0 < len(name) < 250 and name not in (".", ".."),
    ),
    "a uid": (
        lambda name: source(us.Environment()).uid(name),
        lambda name: name.isprintable() and name != "",
    ),
    "an operator": (
        lambda name: source(us.Environment()).name(name),
        lambda name: name.isprintable() and name != "",
    ),
    "a source": (lambda name: source(us.Environment(), name), lambda name: name.isprintable() and name != ""),
    "a slot sharing group": (
        grouped,
        lambda name: name.isprintable() and 0 < len(name) <= 200,
    ),
    "a state": (
        lambda name: us.ValueStateDescriptor(name, pa.int64()),
        lambda name: (
            name != ""
            and all(one.isalnum() or one in "-_." for one in name)
            and not name.startswith((".", "__"))
        ),
    ),
    "an option": (lambda name: us.Environment({name: "1"}), lambda _: False),
    "a job": (
        lambda name: source(env := us.Environment()).sink_to(us.BlackholeSink()) and env.job_graph(name),
        is_printable,
    ),
    "a side output": (
        lambda name: source(us.Environment()).side_output(name, us.col("id") > 1),
        is_printable,
    ),
    "a side output that is read": (
        lambda name: source(us.Environment()).process(Emits()).get_side_output(name),
        is_printable,
    ),
    "a side output of late rows": (with_late_rows, is_printable),
    "a side output that is declared": (with_declared, is_printable),
    "a side output of a row": (lambda name: RowCollector().emit_side(name, {"id": 1}), is_printable),
    "a side output of a batch": (
        lambda name: BatchCollector().emit_side(name, ROWS.to_batches()[0]),
        is_printable,
    ),
    "a metric": (
        lambda name: UserMetrics(Uncounted()).count(name),
        lambda name: len(name) <= 80 and re.fullmatch("[A-Za-z][A-Za-z0-9_-]*", name) is not None,
    ),
    "a commit group": (
        lambda name: us.CommitGroup(name, "/groups"),
        lambda name: len(name) <= 200 and re.fullmatch(r"[\w-][\w.-]*", name) is not None,
    ),
    "a commit group that is read": (
        lambda name: read_group("/not/there", name),
        lambda _: False,
    ),
    "a cluster": (
        lambda name: us.Environment({HA_CLUSTER_ID.key: name}).config.get(HA_CLUSTER_ID),
        lambda name: len(name) <= 255 and re.fullmatch(r"[A-Za-z0-9_][\w.=-]*", name, re.ASCII) is not None,
    ),
    "a savepoint folder": (
        savepoint_at,
        lambda name: not set("\0%\\") & set(name) and ".." not in name and len(name) <= 255,
    ),
}


@pytest.mark.parametrize("place", NAMED)
def test_a_name_is_taken_or_refused_at_once(place: str) -> None:
    make, takes = NAMED[place]
    for name in ODD.values():
        why = refusal(lambda name=name: make(name))
        assert (why is None) is takes(name), (name, why)
        assert why is None or is_told(name, why)


def refusal(make: Callable[[], Any]) -> str | None:
    try:
        make()
    except (ConfigError, NotFound) as error:
        return str(error)
    return None


def is_told(name: str, why: str) -> bool:
    return not name.strip() or repr(name)[1:-1][:8] in why
