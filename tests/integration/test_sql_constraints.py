"""Rows that constraints of a table refuse are found before they are staged; the others can be committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

import unistream as us
from tests.contract.sinks.case import context, permit, request
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.model.elements import Batch

Row = tuple[Any, ...]
COLUMNS = ("id", "email", "customer", "fare")
KINDS = pa.schema(
    [("id", pa.int64()), ("email", pa.string()), ("customer", pa.int64()), ("fare", pa.float64())]
)
PLAIN = "id BIGINT, email VARCHAR(20), customer BIGINT, fare DOUBLE PRECISION"
KEYED = "id BIGINT PRIMARY KEY, email VARCHAR(20), customer BIGINT, fare DOUBLE PRECISION"
UPSERT = {"mode": "upsert", "key": "id"}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rows.db'}"
    return str(request.getfixturevalue("postgres").new_database())


def on(url: str) -> Callable[[str], list[Row]]:
    """Runs statements, and returns the rows of the last one."""
    engine = create_engine(url, poolclass=NullPool)

    def run(sql: str) -> list[Row]:
        found: list[Row] = []
        with engine.begin() as connection:
            for one in sql.split(";;"):
                result = connection.exec_driver_sql(one.replace("%", "%%"))
                found = [tuple(row) for row in result] if result.returns_rows else []
        return found

    return run


def batch(rows: Sequence[Row]) -> Batch:
    names = KINDS.names
    return Batch(
        pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=KINDS)
    )


def row(
    id: int | None = 1, email: str | None = None, customer: int | None = None, fare: float | None = 1
) -> Row:
    return id, email, customer, fare


def checked(sink: us.SqlSink, batches: Sequence[Sequence[Row]]) -> tuple[list[list[int]], list[Batch]]:
    """Which rows of each batch are refused, and the others."""
    check = sink.create_row_check()
    check.open()
    bad, kept = [], []
    try:
        for rows in batches:
            given = batch(rows)
            found = check.refused(given)
            assert all(found.values()), "each has its reason"
            bad.append(sorted(found))
            kept.append(given.take(pa.array([n for n in range(len(rows)) if n not in found], pa.int64())))
    finally:
        check.close()  # type: ignore[attr-defined]
    return bad, kept


def committed(sink: us.SqlSink, batches: Sequence[Batch]) -> None:
    """All of them as one checkpoint."""
    commit(sink, staged(sink, batches))


def staged(sink: us.SqlSink, batches: Sequence[Batch]) -> tuple[bytes, ...]:
    writer = sink.create_writer()
    try:
        writer.open(context(), [])
        for one in batches:
            writer.write(one)
        writer.flush(end_of_input=False)
        return tuple(writer.prepare_commit(CheckpointId(1)))
    finally:
        writer.close()


def commit(sink: us.SqlSink, made: Sequence[bytes]) -> None:
    committer = sink.create_committer()
    assert committer is not None
    try:
        committer.open(context())
        committer.commit(permit(1), request(1, *made))
    finally:
        committer.close()


CASES = [
    pytest.param(
        *(f"CREATE TABLE t ({KEYED});;INSERT INTO t (id) VALUES (5)", {}),
        [[row(1), row(5), row(1), row(2)], [row(2), row(3), row(3)]],
        [[1, 2], [0, 2]],
        id="a key that is there, twice in a batch, and in a batch before",
    ),
    pytest.param(
        *(
            f"CREATE TABLE t ({KEYED}, UNIQUE (email, customer));;"
            "INSERT INTO t (id, email, customer) VALUES (9, 'a', 1)",
            UPSERT,
        ),
        [
            [row(1, "a", 1), row(2, "a", None), row(3, "a", None), row(9, "a", 1)],
            [row(4, "b", 2), row(4, "b", 2)],
        ],
        [[0], []],
        id="with upsert the key refuses none, and another one does; a null is like no other",
    ),
    pytest.param(
        *(f"CREATE TABLE t ({KEYED}, UNIQUE (email))", UPSERT),
        [[row(1, "a"), row(2, "b")], [row(3, "a"), row(2, "b"), row(1, "c")]],
        [[], [0]],
        id="values of a row that is not committed are those of its key",
    ),
    pytest.param(
        *(f"CREATE TABLE t ({PLAIN}, CONSTRAINT positive CHECK (fare > 0))", {}),
        [[row(fare=1), row(fare=-1), row(fare=None), row(fare=0)]],
        [[1, 3]],
        id="a check; null is no violation",
    ),
    pytest.param(
        *(f"CREATE TABLE t ({KEYED}, CHECK (fare > customer))", UPSERT),
        [[row(1, fare=-1, customer=0), row(1, fare=1, customer=0), row(2, customer=7)]],
        [[0, 2]],
        id="a check of two columns, also in a row that is replaced in its batch",
    ),
    pytest.param(
        *(f"CREATE TABLE t ({PLAIN}, status VARCHAR(9) DEFAULT 'new' NOT NULL CHECK (status <> 'old'))", {}),
        [[row(1), row(2)]],
        [[]],
        id="columns that the rows do not have keep their defaults",
    ),
    pytest.param(
        *(f"CREATE TABLE t ({PLAIN});;CREATE UNIQUE INDEX u ON t (customer) WHERE fare > 10", {}),
        [
            [row(1, customer=1, fare=11), row(2, customer=1, fare=1)],
            [row(3, customer=1, fare=12), row(4, customer=2)],
        ],
        [[], [0]],
        id="an index of some rows, also against what is not committed",
    ),
    pytest.param(
        *(
            f"CREATE TABLE t ({PLAIN});;CREATE UNIQUE INDEX u ON t (lower(email));;"
            "INSERT INTO t (id, email) VALUES (1, 'A')",
            {},
        ),
        [[row(1, "a"), row(2, "b"), row(3, "B")]],
        [[0, 2]],
        id="an index of an expression",
    ),
    pytest.param(
        f"CREATE TABLE t ({PLAIN})", {}, [[row(1), row(1)]], [[]], id="a table without any takes all"
    ),
]

OF_POSTGRES = [
    pytest.param(
        "CREATE TABLE c (a BIGINT, b TEXT, PRIMARY KEY (a, b));;INSERT INTO c VALUES (1, 'x');;"
        f"CREATE TABLE t ({PLAIN}, FOREIGN KEY (customer, email) REFERENCES c)",
        {},
        [[row(1, "x", 1), row(2, "y", 1), row(3, None, 7)]],
        [[1]],
        id="a foreign key of two columns",
    ),
    pytest.param(
        f"CREATE TABLE t ({KEYED}, FOREIGN KEY (customer) REFERENCES t DEFERRABLE INITIALLY DEFERRED)",
        {},
        [[row(2, customer=1), row(1), row(3, customer=9), row(4, customer=3)], [row(5, customer=2)]],
        [[2, 3], []],
        id="a foreign key to the table itself: its rows are staged, or refused one after the other",
    ),
    pytest.param(
        "CREATE DOMAIN fare AS DOUBLE PRECISION CHECK (value > 0);;"
        "CREATE TABLE t (id BIGINT, email VARCHAR(20), customer NUMERIC(2, 0), fare fare)",
        {},
        [[row(fare=-1), row(customer=99), row(customer=100), row()]],
        [[0, 2]],
        id="a domain, and a number of few digits",
    ),
    pytest.param(
        f"CREATE TABLE t ({PLAIN});;CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF new.fare < 0 THEN RAISE 'a fare of %', new.fare; END IF; RETURN new; END $$;;"
        "CREATE TRIGGER f BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
        {},
        [[row(fare=1), row(fare=-1)], [row(fare=2)]],
        [[1], []],
        id="a trigger",
    ),
    pytest.param(
        f"CREATE TABLE t ({PLAIN}, EXCLUDE USING btree (customer WITH =))",
        {},
        [[row(1, customer=1), row(2, customer=1)], [row(3, customer=1), row(4, customer=2)]],
        [[1], [0]],
        id="an exclusion constraint",
    ),
    pytest.param(
        f"CREATE TABLE t ({PLAIN}) PARTITION BY RANGE (id);;"
        "CREATE TABLE p PARTITION OF t FOR VALUES FROM (0) TO (5)",
        {},
        [[row(1), row(7)]],
        [[1]],
        id="a row that no partition takes",
    ),
]


@pytest.mark.parametrize(("made", "options", "batches", "bad"), CASES)
def test_what_is_refused_is_found_and_the_rest_can_be_committed(
    url: str, made: str, options: dict[str, Any], batches: list[list[Row]], bad: list[list[int]]
) -> None:
    run = on(url)
    run(made)
    sink = us.SqlSink(url, "t", **options)
    before = run("SELECT count(*) FROM t")
    found, kept = checked(sink, batches)
    assert found == bad
    assert run("SELECT count(*) FROM t") == before, "nothing of the target is changed"
    committed(sink, kept)


@pytest.mark.parametrize(("made", "options", "batches", "bad"), OF_POSTGRES)
def test_what_only_postgresql_refuses(
    postgres: Any, made: str, options: dict[str, Any], batches: list[list[Row]], bad: list[list[int]]
) -> None:
    url = postgres.new_database()
    on(url)(made)
    sink = us.SqlSink(url, "t", **options)
    found, kept = checked(sink, batches)
    assert found == bad
    committed(sink, kept)


def test_a_row_that_came_between_check_and_commit_fails_the_job_and_loses_nothing(url: str) -> None:
    run = on(url)
    run(f"CREATE TABLE t ({KEYED})")
    sink = us.SqlSink(url, "t")
    bad, kept = checked(sink, [[row(1), row(2)]])
    made = staged(sink, kept)
    run("INSERT INTO t (id) VALUES (2)")
    with pytest.raises(
        ConfigError, match=r"(?s)refused committing to table t: .*start the job from its last"
    ):
        commit(sink, made)
    assert (bad, run("SELECT id FROM t")) == ([[]], [(2,)])
    run("DELETE FROM t")
    commit(sink, made)
    assert run("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
