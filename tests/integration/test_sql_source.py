"""Jobs that read tables of databases: once in windows, and as they grow, while others write and workers die;
and what only PostgreSQL has: its types, its limits, tables that were made again."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import WAIT_S, eventually
from tests.integration.crash_runs import RECOVERING, Crashes, run_to_end
from tests.modes import STREAMING
from tests.postgres import PostgresServer
from tests.support.harness.source_driver import SourceDriver
from unistream.base.errors import ConfigError, Unreachable, UserCodeError
from unistream.connector.catalogue import create_discovery
from unistream.connector.collect import CollectSink, read_collected
from unistream.model.splits import FoundSplits, KnownSplits
from unistream.port.source import GrowingDiscovery, Rows
from unistream.testing import MiniCluster

EVENTS, KEYS, WINDOW_MS = 6_000, 7, 10_000
AGES = {1: "10 minutes", 2: "50 minutes", 3: "3 days"}


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    made = postgres.new_database()
    yield made
    postgres.drop_database(made)


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as db:
        for statement in statements:
            db.execute(statement)  # type: ignore[call-overload]


def find(source: us.SqlSource, known: FoundSplits | None = None) -> FoundSplits:
    discovery = create_discovery(source.info())
    assert isinstance(discovery, GrowingDiscovery)
    before = (
        None if known is None else KnownSplits(ids=frozenset(), origin=known.origin, position=known.position)
    )
    return discovery.find(before)


def read(source: us.SqlSource, found: FoundSplits | None = None) -> list[dict[str, Any]]:
    with SourceDriver(source, (found or find(source)).splits, 60.0) as driver:
        batches = [polled.records for polled in driver.polled() if isinstance(polled, Rows)]
    return pa.Table.from_batches(batches, source.schema).to_pylist()


# --- jobs -----------------------------------------------------------------------------------------


def in_sqlite(folder: Path) -> str:
    """Events in no order, of which some have no place in the column by which they are divided."""
    random = Random(5)
    rows = [
        (n, random.randrange(KEYS), f"2026-01-01 00:{n * 25 // 60_000:02}:{n * 25 % 60_000 / 1000:06.3f}")
        for n in range(EVENTS)
    ]
    random.shuffle(rows)
    with closing(sqlite3.connect(folder / "events.db")) as db, db:
        db.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, k INTEGER, seen DATETIME, part INTEGER)")
        db.executemany("INSERT INTO events VALUES (?, ?, ?, nullif(?1 % 4, 0))", rows)
    return f"sqlite:///{folder / 'events.db'}"


def counted(source: us.SqlSource, folder: Path, mode: str, target: str) -> Counter[tuple[int, int]]:
    """(key, start of window in ms) -> rows."""
    env = us.Environment(
        {
            "execution.runtime-mode": mode,
            "pipeline.auto-watermark-interval": "1 ms",
            "parallelism.default": "2",
        },
        target=target,
    )
    times = us.WatermarkStrategy.for_bounded_out_of_orderness("0 s").with_timestamp_column("seen")
    windows = (
        env.from_source(source, times, "events")
        .uid("events")
        .key_by("k")
        .window(us.TumblingEventTimeWindows.of("10 s"))
        .aggregate(rows=us.count())
        .uid("count")
    )
    windows.sink_to(CollectSink(str(folder / "out"))).uid("out")
    if target == "spark":
        assert env.execute("windows").state == "FINISHED"
    else:
        graph, code = env.job_graph("windows")
        with MiniCluster(task_managers=2, slots=2) as cluster:
            result = cluster.submit(graph, code).wait(WAIT_S)
        assert result.state == "FINISHED", result.failure
        assert result.late_rows == {}
    found = read_collected(str(folder / "out")).to_pylist()
    windows_of = {(row["k"], int(row["window_start"].timestamp() * 1000)): row["rows"] for row in found}
    assert len(windows_of) == len(found)
    return Counter(windows_of)


@pytest.mark.parametrize("split_by", ["id", "part", "seen"])
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_windows_count_every_row_of_a_table(tmp_path: Path, mode: str, split_by: str) -> None:
    """Each split says its least event time, so that no row is late in a stream."""
    source = us.SqlSource(in_sqlite(tmp_path), "events", split_by=split_by, rows_per_split=400)
    assert counted(source, tmp_path, mode, "local") == truth(tmp_path)


@pytest.mark.spark
def test_spark_reads_the_same(tmp_path: Path) -> None:
    source = us.SqlSource(in_sqlite(tmp_path), "events", rows_per_split=400)
    assert counted(source, tmp_path, "BATCH", "spark") == truth(tmp_path)


def truth(folder: Path) -> Counter[tuple[int, int]]:
    start_ms = 1_767_225_600_000
    with closing(sqlite3.connect(folder / "events.db")) as db:
        rows = db.execute("SELECT k, id FROM events").fetchall()
    return Counter((k, start_ms + id * 25 // WINDOW_MS * WINDOW_MS) for k, id in rows)


def test_a_look_reads_no_more_than_it_needs(tmp_path: Path) -> None:
    env = us.Environment({"parallelism.default": "1"}, target="local")
    source = us.SqlSource(in_sqlite(tmp_path), "events", columns=["id"])
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "events").uid("events")
    assert rows.take(3).to_pylist() == [{"id": n} for n in range(3)]


# --- a table that grows ---------------------------------------------------------------------------


class Writers:
    """Transactions that commit in another order than they began, some of them not at all."""

    def __init__(self, url: str) -> None:
        self._dsn = url.replace("+psycopg", "")
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(3)]
        self.written: set[int] = set()
        for thread in self._threads:
            thread.start()

    def _write(self, number: int) -> None:
        random = Random(number)
        with psycopg.connect(self._dsn) as db:
            while not self._ended.wait(random.random() / 50):
                ids = [db.execute("INSERT INTO t (name) VALUES ('x') RETURNING id").fetchone()[0]]  # type: ignore[index]
                self._ended.wait(random.random() / 10)
                ids += [db.execute("INSERT INTO t (name) VALUES ('y') RETURNING id").fetchone()[0]]  # type: ignore[index]
                if random.random() < 0.8:
                    db.commit()
                    self.written |= set(ids)
                else:
                    db.rollback()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()


@contextmanager
def writing(url: str) -> Iterator[Writers]:
    execute(
        url,
        "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, "
        "made timestamptz NOT NULL DEFAULT now())",
    )
    writers = Writers(url)
    try:
        yield writers
    finally:
        writers.end()


def copied(url: str) -> list[int]:
    with psycopg.connect(url.replace("+psycopg", "")) as db:
        there = db.execute("SELECT to_regclass('copy')").fetchone()
        if there == (None,):
            return []
        return sorted(id for (id,) in db.execute("SELECT id FROM copy"))


def growing(url: str, column: str, parallelism: int) -> us.Environment:
    config = {**STREAMING, **RECOVERING, "parallelism.default": str(parallelism)}
    env = us.Environment({**config, "execution.checkpointing.interval": "200 ms"})
    source = us.SqlSource(
        url, "t", increasing=column, bounded=False, margin="2 s", interval="200 ms", rows_per_split=20
    )
    rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "table").uid("table")
    rows.sink_to(us.SqlSink(url, "copy")).uid("copy")
    return env


@pytest.mark.parametrize("column", ["id", "made"])
def test_each_row_of_a_table_that_grows_is_read_once(url: str, column: str) -> None:
    """By several writers, through a lost worker, and with another parallelism from a savepoint."""
    with MiniCluster(task_managers=3, slots=1) as cluster, writing(url) as writers:
        job: Any = cluster.execute_async(growing(url, column, 2), "growth")
        eventually(lambda: len(copied(url)) > 60, "rows come")
        cluster.kill(cluster.task_managers()[0].id)
        many = len(copied(url)) + 60
        eventually(lambda: len(copied(url)) > many, "rows come again")
        savepoint = job.stop()
        job = cluster.execute_async(growing(url, column, 1), "growth", savepoint=savepoint)
        many = len(copied(url)) + 60
        eventually(lambda: len(copied(url)) > many, "rows come from the savepoint on")
        writers.end()
        eventually(lambda: len(copied(url)) >= len(writers.written), "all rows come")
        job.cancel()
        assert job.wait(WAIT_S).state == "CANCELED"
    assert copied(url) == sorted(writers.written)


def test_a_worker_process_is_killed_while_a_table_is_read(tmp_path: Path, url: str, crashes: Crashes) -> None:
    execute(
        url,
        "CREATE TABLE t (id bigint PRIMARY KEY, name text)",
        "INSERT INTO t SELECT i, 'n' || i FROM generate_series(1, 20000) AS i",
    )

    def copying_slowly(env: us.Environment, _: Path) -> None:
        def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
            import threading

            threading.Event().wait(0.1)
            return batch

        source = us.SqlSource(url, "t", rows_per_split=500)
        stream = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "table").uid("table")
        paused = stream.map_batches(slow, returns=stream.schema).uid("slow")
        paused.sink_to(us.SqlSink(url, "copy")).uid("copy")

    crashes.arm("snapshot.uploaded:3")
    often = {"execution.checkpointing.interval": "200 ms", **RECOVERING}
    run_to_end(tmp_path, crashes, copying_slowly, often)
    assert copied(url) == list(range(1, 20_001))


# --- PostgreSQL -----------------------------------------------------------------------------------

REFUSED = "rows have no type for it; read its text"


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("v numeric", r"column 'v' NUMERIC: the database does not say how many digits"),
        ("v numeric(100)", "it has more than 76 digits"),
        ("v integer[]", rf"column 'v' integer\[\]: {REFUSED}"),
        ("v interval", f"column 'v' interval: {REFUSED}"),
        ("v timetz", f"column 'v' time with time zone: {REFUSED}"),
        ("v inet", f"column 'v' inet: {REFUSED}"),
    ],
)  # fmt: skip
def test_a_type_that_rows_have_not_is_refused_when_the_line_is_written(
    url: str, columns: str, says: str
) -> None:
    execute(url, f"CREATE TABLE t (id int PRIMARY KEY, {columns})", "INSERT INTO t VALUES (1)")
    env = us.Environment()
    with pytest.raises(ConfigError, match=says):
        env.from_source(us.SqlSource(url, "t"), us.WatermarkStrategy.no_watermarks(), "t")
    text = us.SqlSource(url, "t", types={"v": pa.string()})
    assert read(text) == [{"id": 1, "v": None}]


@pytest.mark.parametrize(("kind", "given"), [("timestamp", "UTC"), ("timestamptz", None)])
def test_a_time_has_a_zone_or_has_none(url: str, kind: str, given: str | None) -> None:
    execute(url, f"CREATE TABLE t (v {kind})")
    with pytest.raises(ConfigError, match=r"column 'v' is timestamp.*take it as it is, types=\{'v'"):
        _ = us.SqlSource(url, "t", types={"v": pa.timestamp("ms", given)}).schema


def test_values_come_as_they_are(url: str) -> None:
    """All in one table: what is between them is of the same line."""
    execute(
        url,
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN price AS numeric(8, 3)",
        "CREATE TABLE t (id int PRIMARY KEY, a smallint, b text, c char(3), d bytea, e uuid, f jsonb, "
        "g date, h timestamp, i timestamptz, j time, k mood, l price, m boolean, n real, o float8, "
        "p numeric(40, 2), "
        'q oid, "r % :s" varchar(9), s int[], t bytea)',
        "INSERT INTO t VALUES (1, -32768, E'a\\r\\n\"b\",\\\\', 'ab', '\\x00ff', "
        "'d5a1c1c0-0000-4000-8000-000000000001', '{\"a\": [1]}', '2026-02-03', '2026-02-03 04:05:06.5', "
        "'2026-02-03 04:05:06+02', '23:59:59', 'ok', 1.5, true, 0.1, 'NaN', 1e37, "
        "4000000000, '', '{1,2}', '')",
        "INSERT INTO t VALUES (2)",
    )
    first, second = read(us.SqlSource(url, "t", types={"s": pa.string()}))
    assert set(list(second.values())[1:]) == {None}
    shown = {name: str(value) for name, value in first.items()}
    assert shown == {
        "id": "1", "a": "-32768", "b": 'a\r\n"b",\\', "c": "ab ", "d": "b'\\x00\\xff'",
        "e": "d5a1c1c0-0000-4000-8000-000000000001", "f": '{"a": [1]}', "g": "2026-02-03",
        "h": "2026-02-03 04:05:06.500000", "i": "2026-02-03 02:05:06+00:00", "j": "23:59:59", "k": "ok",
        "l": "1.500", "m": "True", "n": "0.10000000149011612", "o": "nan",
        "p": "10000000000000000000000000000000000000.00", "q": "4000000000", "r % :s": "", "s": "{1,2}",
        "t": "b''",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value"),
    [("date", "infinity"), ("timestamptz", "-infinity"), ("numeric(9, 2)", "NaN"), ("date", "0044-03-15 BC")],
)
def test_a_value_that_no_row_can_have_is_named_with_its_row(url: str, kind: str, value: str) -> None:
    execute(
        url,
        f"CREATE TABLE t (a int, b text, v {kind}, PRIMARY KEY (a, b))",
        f"INSERT INTO t VALUES (1, 'x', NULL), (1, 'y', '{value}')",
    )
    with pytest.raises(UserCodeError, match=f"row a = '1', b = 'y': column 'v': '{value}' is no .*types="):
        read(us.SqlSource(url, "t"))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text '1,5'", pa.float64()),
        ("text ''", pa.int64()),
        ("text E'1\\n2'", pa.int64()),
        ("bigint '9007199254740993'", pa.float64()),
        ("float8 '1e300'", pa.float32()),
    ],
)
def test_a_value_that_a_given_type_cannot_have_is_named(url: str, value: str, kind: pa.DataType) -> None:
    source = us.SqlSource(url, query=f"SELECT 7 AS id, {value} AS v", types={"v": kind}, split_by="id")
    with pytest.raises(UserCodeError, match=f"row id = '7': column 'v': .* is no {kind}"):
        read(source)


@pytest.mark.parametrize(
    ("statements", "options"),
    [
        pytest.param(
            ['CREATE TABLE t ("concat" int PRIMARY KEY)', "INSERT INTO t SELECT generate_series(1, 120)"],
            {},
            id="a column has the name of a function",
        ),
        pytest.param(
            [
                "CREATE TABLE t (id int PRIMARY KEY)",
                "CREATE TABLE heir () INHERITS (t)",
                "INSERT INTO t SELECT generate_series(1, 1500)",
                "INSERT INTO heir SELECT generate_series(2, 1500)",
            ],
            {"rows_per_split": 700},
            id="rows of a table that inherits have the same keys",
        ),
        pytest.param(
            [
                "CREATE TABLE t (id int PRIMARY KEY, v text)",
                "INSERT INTO t SELECT i, CASE WHEN i > 1100 THEN repeat('x', 300000) END "
                "FROM generate_series(1, 1340) AS i",
            ],
            {},
            id="rows are larger than those before",
        ),
    ],
)
def test_each_row_comes_once(url: str, statements: list[str], options: dict[str, Any]) -> None:
    execute(url, *statements)
    with psycopg.connect(url.replace("+psycopg", "")) as db:
        expected = Counter(row[0] for row in db.execute("SELECT * FROM t"))
    found = read(us.SqlSource(url, "t", **options))
    assert Counter(next(iter(row.values())) for row in found) == expected


def test_a_table_may_have_a_column_more_while_it_is_read(url: str) -> None:
    execute(
        url, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT i FROM generate_series(1, 200) AS i"
    )
    source = us.SqlSource(url, "t", rows_per_split=10)
    rows = []
    with SourceDriver(source, find(source).splits, 60.0) as driver:
        for polled in driver.polled():
            if isinstance(polled, Rows):
                rows += polled.records["id"].to_pylist()
                if len(rows) == 100:  # by then a driver has prepared what it asks again
                    execute(url, "ALTER TABLE t ADD COLUMN more int")
    assert rows == list(range(1, 201))


def wrong_password(server: PostgresServer, url: str) -> str:
    return server.new_role(url).replace("hunter2", "hunter3")


def no_right(server: PostgresServer, url: str) -> str:
    return server.new_role(url)


def as_it_is(_: PostgresServer, url: str) -> str:
    return url


def asking(sql: str, **options: str) -> dict[str, str]:
    return {"query": f"SELECT {sql}", **options}


@pytest.mark.parametrize(
    ("where", "options", "expected"),
    [
        pytest.param(wrong_password, {}, (ConfigError, "authentication failed.*give the URL"), id="a login"),
        pytest.param(no_right, {}, (ConfigError, "permission denied.*grant its role"), id="a right"),
        pytest.param(as_it_is, asking("setval('s', 9) AS id"), (ConfigError, "read-only"), id="a write"),
        pytest.param(
            as_it_is, asking("1 AS id, 2 AS id"), (ConfigError, "more than one column 'id'"), id="a name"
        ),
        pytest.param(
            as_it_is,
            asking("pg_sleep(9)::text AS id", query_timeout="200 ms"),
            (Unreachable, "took longer than 0.2 s.*query_timeout"),
            id="it takes too long",
        ),
        pytest.param(
            as_it_is,
            asking("pg_terminate_backend(pg_backend_pid()) AS id"),
            (Unreachable, "did not answer"),
            id="a lost connection can be made again",
        ),
    ],
)
def test_what_a_server_refuses_and_what_it_may_do_next_time(
    postgres: PostgresServer,
    url: str,
    where: Callable[[PostgresServer, str], str],
    options: dict[str, Any],
    expected: tuple[type[Exception], str],
) -> None:
    execute(url, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE SEQUENCE s")
    error, says = expected
    with pytest.raises(error, match=says) as refused:
        read(us.SqlSource(where(postgres, url), None if options else "t", **options))
    assert "hunter" not in str(refused.value)


def test_a_table_that_was_made_again_is_another_one(url: str) -> None:
    create = "CREATE TABLE t (id int PRIMARY KEY)"
    execute(url, create, "INSERT INTO t VALUES (1), (2)")
    source = us.SqlSource(url, "t", increasing="id", bounded=False, margin=0)
    first = find(source)
    assert [row["id"] for row in read(source, first)] == [1, 2]
    execute(url, "TRUNCATE t", "INSERT INTO t VALUES (3)")
    second = find(source, first)
    assert [row["id"] for row in read(source, second)] == [3]
    execute(url, "DROP TABLE t", create, "INSERT INTO t VALUES (4)")
    with pytest.raises(ConfigError, match=r"was dropped and made again.*allow-non-restored-state"):
        find(source, second)
    with pytest.raises(ConfigError, match="was dropped and made again"):
        read(source, first)


@pytest.mark.parametrize(
    ("kind", "values", "starts"),
    [
        pytest.param("numeric(9, 2)", ["1.50", "2", "10"], ["1.50", "10.00"], id="numbers, not texts"),
        pytest.param("numeric", ["1.0", "1.00", "2"], ["1.0", "2"], id="one value in two forms"),
        pytest.param("text", ["B", "a", "é"], ["B", "é"], id="texts, in the order of the database"),
        pytest.param("date", ["-infinity", "2026-01-01", "infinity"], ["-infinity", "infinity"], id="no end"),
        pytest.param("float8", ["-1e300", "0", "NaN"], ["-1e+300", "NaN"], id="floats"),
    ],
)  # fmt: skip
def test_a_table_is_divided_as_the_database_orders_it(
    url: str, kind: str, values: list[str], starts: list[str]
) -> None:
    rows = ", ".join(f"('{value}')" for value in [*values, *values])
    execute(url, f"CREATE TABLE t (v {kind})", f"INSERT INTO t VALUES {rows}, (NULL)")
    source = us.SqlSource(url, "t", split_by="v", rows_per_split=4, types={"v": pa.string()})
    found = find(source)
    assert [split.id for split in found.splits[1:-1]] == [f"1 [{starts[1]}, {starts[1]}]"]
    assert found.splits[0].id.startswith(f"0 [{starts[0]}, ")
    texts = Counter(row["v"] for row in read(source, found))
    assert sum(texts.values()) == 7
    assert texts[None] == 1


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize(
    ("kind", "expected"), [("timestamp", [2, 3]), ("timestamptz", [2, 3]), ("date", [3])]
)
def test_the_margin_is_the_same_in_every_time_zone(
    url: str, monkeypatch: pytest.MonkeyPatch, zone: str, kind: str, expected: list[int]
) -> None:
    """Times without a zone are of UTC. That of the environment goes before that of the session."""
    ages = ", ".join(f"({n}, (now() - interval '{age}') AT TIME ZONE 'UTC')" for n, age in AGES.items())
    execute(
        url,
        "SET timezone = 'UTC'; CREATE TABLE t (id int PRIMARY KEY, made timestamp)",
        f"INSERT INTO t VALUES {ages}",
        f"SET timezone = 'UTC'; ALTER TABLE t ALTER made TYPE {kind} USING made::{kind}",
    )
    monkeypatch.setenv("PGTZ", zone)
    source = us.SqlSource(url, "t", increasing="made", bounded=False, margin="30 min")
    found = sorted(row["id"] for row in read(source))
    assert [id for id in found if not (kind == "date" and id == 2)] == expected, (
        "the day of the second is over"
    )


def test_pages_of_large_rows_have_fewer_of_them(url: str) -> None:
    """The text of a page is a value of PostgreSQL, which has none of more than 1 GB."""
    rows = "SELECT i, repeat('x', 2000000) FROM generate_series(1, 600) AS i"
    execute(url, "CREATE TABLE t (id int PRIMARY KEY, v text)", f"INSERT INTO t {rows}")
    found = read(us.SqlSource(url, "t", columns=["id", "v"]))
    assert [row["id"] for row in found] == list(range(1, 601))
    assert {len(row["v"]) for row in found} == {2_000_000}
