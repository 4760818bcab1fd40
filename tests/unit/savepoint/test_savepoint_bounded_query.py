"""The process of a query: it tells rows, keeps its limits, and opens nothing once it is sealed."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import eventually
from unistream.base.errors import ConfigError, CorruptSnapshot, Transient, UnistreamError
from unistream.savepoint.bounded_query import (
    SQL_CHARACTERS_MAX,
    BoundedQuery,
    QueryLimits,
    ResultColumn,
)
from unistream.savepoint.query_process import bounded_rows

ENDLESS = "SELECT count(*) FROM range(100000000000) a, range(1000000) b WHERE a.range % 7 = b.range % 5"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = pa.table({"k": [1, 2], "value": ["a", "b"]})
    made = us.SavepointWriter().with_state("op", "s", rows, keys=["k"])
    return Path(made.write(tmp_path_factory.mktemp("bounded") / "sp"))


def asked(path: Path, sql: str, **limits: int) -> BoundedQuery:
    return BoundedQuery(sql, lambda: str(path), limits=QueryLimits(**limits))


def test_values_are_exact_texts(path: Path) -> None:
    values = {
        "9223372036854775807": "9223372036854775807",
        "1.10::DECIMAL(5, 2)": "1.10",
        "'nan'::DOUBLE": "nan",
        "NULL": None,
        "x'00ff'": r"\x00\xFF",
        "[1, NULL]": "[1, NULL]",
        "TIMESTAMP_NS '2020-01-01 00:00:00.123456789'": "2020-01-01 00:00:00.123456789",
        "TIMESTAMPTZ '2020-01-01 01:00:00+01'": "2020-01-01 00:00:00+00",
        "repeat('é', 31)": "é" * 30,
        "(SELECT max(value) FROM op_s)": "b",
    }
    sql = f"SELECT range, {', '.join(values)} -- a remark\n FROM range(9) ORDER BY range DESC;\n"
    found = asked(path, sql, rows=2, cell_characters=30).result()
    assert found.rows == [["8", *values.values()], ["7", *values.values()]]
    assert found.columns[:2] == (
        ResultColumn(name="range", type="BIGINT"),
        ResultColumn(name="9223372036854775807", type="BIGINT"),
    )
    assert (found.more, found.cut) == (True, 2)


@pytest.mark.parametrize(
    ("sql", "limits", "kind", "why"),
    [
        (ENDLESS, {"seconds": 1}, ConfigError, "it takes more than 1 s"),
        ("SELECT repeat('x', 2000000000)", {}, ConfigError, "takes more than the 1024 MiB of memory"),
        ("FROM op_s", {"state_bytes": 10}, ConfigError, "and at most 10 b are read here"),
        ("SELECT 1" + " " * SQL_CHARACTERS_MAX, {}, ConfigError, "more than 20,000 characters"),
    ],
    ids=["time", "memory", "state", "text"],
)
def test_what_is_refused_is_one_sentence(
    path: Path, sql: str, limits: dict[str, int], kind: type[UnistreamError], why: str
) -> None:
    with pytest.raises(kind) as refusal:
        asked(path, sql, **limits).result()
    assert why in str(refusal.value)


def test_a_damaged_file_is_named(path: Path) -> None:
    [file] = path.rglob("*.arrow")
    content = file.read_bytes()
    try:
        file.write_bytes(content[:-1])
        with pytest.raises(CorruptSnapshot, match=file.name):
            asked(path, "FROM op_s").result()
    finally:
        file.write_bytes(content)


def test_it_ends_when_nobody_waits_for_it(path: Path) -> None:
    query, said = asked(path, ENDLESS), []

    def run() -> None:
        with pytest.raises(Transient, match="nobody waits for it") as refusal:
            query.result()
        said.append(refusal.value)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: query.is_running, "its process runs")
    query.stop()
    thread.join()
    assert said
    with pytest.raises(Transient):
        query.result()


def test_what_is_sealed_opens_nothing_and_knows_nothing() -> None:
    program = """
import os, socket
from unistream.savepoint.query_process import seal
seal()
refused = 0
for attempt in (lambda: open("/etc/passwd"), lambda: open("/tmp/x", "w"), socket.socket, os.pipe):
    try:
        attempt()
    except OSError:
        refused += 1
print(refused, len(os.environ))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["4", "0"]


@pytest.mark.parametrize(
    ("limits", "kept", "more", "cut"),
    [
        ({"rows": 3}, 3, False, 0),
        ({"rows": 2}, 2, True, 0),
        ({"answer_bytes": 10}, 1, True, 0),
        ({"answer_bytes": 0}, 0, True, 0),
        ({"cell_characters": 3}, 3, False, 3),
        ({"cell_characters": 3, "rows": 1}, 1, True, 1),
    ],
)
def test_rows_are_answered_as_far_as_the_limits_allow(
    limits: dict[str, int], kept: int, more: bool, cut: int
) -> None:
    columns = (ResultColumn(name="a", type="VARCHAR"), ResultColumn(name="b", type="VARCHAR"))
    found = bounded_rows(columns, [("äbcd", None)] * 3, QueryLimits(**limits))
    assert (len(found.rows), found.more, found.cut) == (kept, more, cut)
