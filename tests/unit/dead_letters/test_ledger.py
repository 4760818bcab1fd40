"""Which letters are chosen, and what a replay that was cut off has left."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import unistream as us
from unistream.api.environment import Environment
from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.dead_letters.ledger import Ledger, ReplayEnd, ReplayOrder, TableLock
from unistream.dead_letters.replay import Chosen, Replay
from unistream.dead_letters.table import Letters, letters_at, letters_in, rows_at
from unistream.operator.common import decoded_row
from unistream.port.dead_letters import LETTER_SCHEMA


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))


def letters(*rows: dict[str, Any]) -> pa.Table:
    """By id; others are of operator "a", ValueError, attempt 1."""
    usual = {"operator": "A", "operator_uid": "a", "error_type": "ValueError", "attempt": 1, "row": "{}"}
    return pa.Table.from_pylist([{**usual, **row} for row in rows], schema=LETTER_SCHEMA)


ROWS = letters(
    {"letter": "1a"},
    {"letter": "1b", "error_type": "KeyError"},
    {"letter": "2c", "operator": "B", "operator_uid": "b"},
)


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        pytest.param(Chosen(), ["1a", "1b", "2c"], id="all"),
        pytest.param(Chosen(operator="b"), ["2c"], id="of an operator by uid"),
        pytest.param(Chosen(operator="A"), ["1a", "1b"], id="of an operator by name"),
        pytest.param(Chosen(error_type="KeyError"), ["1b"], id="of an error"),
        pytest.param(Chosen(ids=("1",)), ["1a", "1b"], id="by the begin of the id"),
        pytest.param(Chosen(ids=("1a", "2")), ["1a", "2c"], id="several"),
        pytest.param(Chosen(operator="a", ids=("2",)), [], id="none is both"),
    ],
)
def test_letters_that_are_chosen(chosen: Chosen, ids: list[str]) -> None:
    assert ROWS.filter(chosen.mask(ROWS))["letter"].to_pylist() == ids


def replay(folder: Path, letters: Letters | None = None, environment: Environment | None = None) -> Replay:
    return Replay(
        letters=letters or Letters(ROWS),
        ledger=Ledger(str(folder)),
        environment=environment or Environment(),
        pipeline="p:p",
        target="local",
    )


def note(folder: Path, *ids: str, replay_id: str = "r") -> None:
    place = folder / "_unistream_replays" / "replayed"
    place.mkdir(parents=True, exist_ok=True)
    table = pa.table({"letter": list(ids), "replay": [replay_id] * len(ids)})
    pq.write_table(table, place / f"part-{replay_id}.parquet")
    (place / ".part-staged.parquet").write_bytes(b"not yet there")


def test_letters_that_were_replayed_are_not_chosen_again(tmp_path: Path) -> None:
    note(tmp_path, "1a", "2c")
    assert replay(tmp_path)._choose(Chosen()).letters["letter"].to_pylist() == ["1b"]
    note(tmp_path, "1b", replay_id="s")
    assert replay(tmp_path).run(Chosen()).replay is None


def test_letters_of_several_operators_need_a_choice(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"letters of 2 operators \(a, b\); give one by --operator"):
        replay(tmp_path).run(Chosen())


# --- of sources -------------------------------------------------------------------------------------


def lines(folder: Path, *of: tuple[str, int, bytes]) -> Letters:
    """Letters of a file source: path, byte and line."""
    (folder / "letters").mkdir()
    columns = {
        "path": [str(folder / path) for path, _, _ in of],
        "line": [None] * len(of),
        "byte": [byte for _, byte, _ in of],
        "reason": ["no"] * len(of),
        "raw": [raw for _, _, raw in of],
    }
    pq.write_table(pa.table(columns), folder / "letters" / "part.parquet")
    return letters_in(rows_at(str(folder / "letters")), "letters")


def places(letters: pa.Table) -> list[str]:
    """Path and byte of letters."""
    return [one.partition("~")[0] for one in letters["letter"].to_pylist()]


def reading(*sources: tuple[str, Path]) -> Environment:
    """A pipeline of file sources, each with its uid and its path."""
    env = Environment()
    for uid, path in sources:
        source = us.FileSource(str(path), format="json", schema=pa.schema([("n", pa.int64())]))
        env.from_source(source, us.WatermarkStrategy.no_watermarks(), f"of {uid}").uid(uid).print()
    return env


GOOD, BAD = b'{"n": 1}', b'{"n": "x"}'


@pytest.mark.parametrize(
    ("operator", "source", "ids"),
    [
        pytest.param(None, "a", ["a/1:0", "a/2:5"], id="there is one"),
        pytest.param("a", "a", ["a/1:0", "a/2:5"], id="by uid"),
        pytest.param("of a", "a", ["a/1:0", "a/2:5"], id="by name"),
        pytest.param("a/2", "a", ["a/2:5"], id="by path"),
    ],
)
def test_records_that_are_rows_now_are_chosen(
    tmp_path: Path, operator: str | None, source: str, ids: list[str]
) -> None:
    letters = lines(tmp_path, ("a/1", 0, GOOD), ("a/2", 5, GOOD), ("a/2", 9, BAD))
    environment = reading(("a", tmp_path / "a"), ("b", tmp_path / "b"))
    if operator == "a/2":
        operator = str(tmp_path / operator)
    selected = replay(tmp_path, letters, environment)._choose(Chosen(operator=operator))
    assert selected.operator == source
    assert places(selected.letters) == [str(tmp_path / one) for one in ids]
    assert selected.unread == 1


def test_records_that_are_still_no_rows_stay(tmp_path: Path) -> None:
    letters = lines(tmp_path, ("a", 0, BAD), ("a", 9, b"{"))
    said: list[str] = []
    made = replay(tmp_path, letters, reading(("a", tmp_path / "a")))
    made.on_step = said.append
    outcome = made.run(Chosen())
    assert (outcome.replay, outcome.letters, outcome.unread) == (None, 0, 2)
    first = letters.rows["letter"][0].as_py()
    assert said == [
        f"2 letters are still no rows, and stay as they are; {first}: field 'n' is of JSON type string, "
        "where the schema needs a number"
    ]
    assert not (tmp_path / "letters" / "_unistream_replays").exists()


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        pytest.param(["c"], "no source of the pipeline reads '.*/a', which these letters are of", id="none"),
        pytest.param(["a", "c"], r"not all of the letters are of one source \('a'\)", id="not all"),
        pytest.param(["a", "b"], r"not all of the letters are of one source \('a', 'b'\)", id="two"),
    ],
)
def test_records_of_no_source_or_several(tmp_path: Path, sources: list[str], message: str) -> None:
    letters = lines(tmp_path, ("a", 0, GOOD), ("b", 9, GOOD))
    environment = reading(*((one, tmp_path / one) for one in sources))
    with pytest.raises(ConfigError, match=message):
        replay(tmp_path, letters, environment).run(Chosen())
    if sources == ["a", "b"]:
        selected = replay(tmp_path, letters, environment)._choose(Chosen(operator="b"))
        assert places(selected.letters) == [f"{tmp_path}/b:9"]


def test_a_file_that_is_rewritten_or_read_twice_has_other_letters(tmp_path: Path) -> None:
    """Their place is the same, and one of them was replayed."""
    letters = lines(tmp_path, ("a", 0, GOOD), ("a", 0, b'{"n": 2}'), ("a", 0, GOOD))
    environment = reading(("a", tmp_path / "a"))
    note(tmp_path / "letters", letters.rows["letter"][0].as_py())
    made = replay(tmp_path / "letters", letters, environment)
    left = made._choose(Chosen()).letters
    assert [decoded_row(one)["n"][0].as_py() for one in left["row_ipc"].to_pylist()] == [2, 1]
    note(tmp_path / "letters", *left["letter"].to_pylist(), replay_id="s")
    assert made._choose(Chosen()).letters.num_rows == 0


# --- a replay that was cut off -----------------------------------------------------------------------


def begun(folder: Path, host: str | None = None) -> ReplayOrder:
    import socket

    order = ReplayOrder(
        id="r",
        operator="a",
        pipeline="p:p",
        letters=1,
        host=host or socket.gethostname(),
        pid=1,
        begun_ms=1,
    )
    Ledger(str(folder)).begin(order, ROWS.slice(0, 1).select(["letter"]))
    return order


def test_a_replay_that_has_committed_nothing_is_withdrawn(tmp_path: Path) -> None:
    ledger, order = Ledger(str(tmp_path)), begun(tmp_path)
    assert ledger.unfinished() == [order]
    assert replay(tmp_path)._finished(order) is None
    assert ledger.unfinished() == []
    assert not Path(ledger.letters_file("r")).exists()


def test_a_replay_whose_letters_are_recorded_had_ended(tmp_path: Path) -> None:
    ledger, order = Ledger(str(tmp_path)), begun(tmp_path)
    note(tmp_path, "1a")
    outcome = replay(tmp_path)._finished(order)
    assert outcome is not None
    assert (outcome.replay, outcome.letters, outcome.result) == ("r", 1, None)
    assert ledger.unfinished() == []
    ledger.end(ReplayEnd(id="r", ended_ms=2))


def test_a_replay_of_another_machine_is_left_alone(tmp_path: Path) -> None:
    begun(tmp_path, host="elsewhere")
    with pytest.raises(ConfigError, match=r"was begun on elsewhere \(process 1\) and is not done"):
        replay(tmp_path).run(Chosen(operator="a"))


def test_an_order_that_cannot_be_read_is_not_skipped(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / "_unistream_replays" / "r" / "order.json").write_text("{")
    with pytest.raises(CorruptSnapshot, match=r"order.json is unreadable"):
        Ledger(str(tmp_path)).unfinished()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with TableLock(str(tmp_path)):
        with pytest.raises(ConfigError, match="another process replays letters"):
            TableLock(str(tmp_path))
        TableLock(str(tmp_path / "other")).close()
    TableLock(str(tmp_path)).close()


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        pytest.param(
            {
                "topic": ["t"],
                "partition": [3],
                "offset": [7],
                "timestamp": [None],
                "reason": ["r"],
                "raw": [b"\xff"],
            },
            {"letter": "t/3/7~HASH", "operator": "t", "error": "r", "row": "\ufffd"},
            id="of Kafka",
        ),
        pytest.param(
            {
                "topic": ["t"],
                "partition": [3],
                "offset": [7],
                "timestamp": [None],
                "reason": ["its key: r"],
                "raw": pa.nulls(1, pa.binary()),
            },
            {"letter": "t/3/7~HASH", "row": ""},
            id="of Kafka, without a value",
        ),
        pytest.param(
            {"path": ["/a"], "line": [2], "byte": [9], "reason": ["r"], "raw": [b"x"]},
            {"letter": "/a:9~HASH", "operator": "/a", "error": "r", "row": "x"},
            id="of files",
        ),
    ],
)
def test_letters_of_sources_can_be_read(
    tmp_path: Path, columns: dict[str, Any], found: dict[str, Any]
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "part.parquet")
    read = letters_in(rows_at(str(tmp_path)), "letters")
    (row,) = read.rows.to_pylist()
    row["letter"] = re.sub("~[0-9a-f]{8}$", "~HASH", row["letter"])
    assert {name: row[name] for name in found} == found
    assert read.records is not None
    assert read.records.num_rows == 1


@pytest.mark.parametrize(
    ("write", "message"),
    [
        pytest.param(
            lambda _: None, "is no table of dead letters: it has no column letter", id="nothing there"
        ),
        pytest.param(
            lambda folder: pq.write_table(pa.table({"n": [1]}), folder / "a.parquet"),
            "it has no column letter, row, row_ipc; its columns are n",
            id="another table",
        ),
        pytest.param(
            lambda folder: (folder / "a.json").write_text("{}"),
            "neither a Delta table nor a folder",
            id="JSON",
        ),
    ],
)
def test_what_is_no_table_of_letters(tmp_path: Path, write: Any, message: str) -> None:
    (tmp_path / "table").mkdir()
    write(tmp_path / "table")
    with pytest.raises(ConfigError, match=message):
        letters_in(rows_at(str(tmp_path / "table")), "the table")


@pytest.mark.parametrize("columns", [1, 3_000], ids=["short", "with much to say of its columns"])
def test_a_table_without_letters_is_refused_before_its_rows_are_read(tmp_path: Path, columns: int) -> None:
    """The pages of its first file are damaged, so a reader of them reports something else."""
    path = tmp_path / "part-0.parquet"
    pq.write_table(pa.table({f"n{at}": range(50_000 // columns) for at in range(columns)}), path)
    content = path.read_bytes()
    path.write_bytes(b"\x00" * 2_000 + content[2_000:])
    with pytest.raises(ConfigError, match="has no column letter, row, row_ipc; its columns are n0"):
        letters_at(str(tmp_path))


def test_a_delta_table_without_letters_is_refused_by_its_log(tmp_path: Path) -> None:
    uri = str(tmp_path / "fares")
    write_deltalake(uri, pa.table({"fare": [1]}))
    for file in Path(uri).glob("*.parquet"):
        file.unlink()
    with pytest.raises(ConfigError, match="has no column letter, row, row_ipc; its columns are fare"):
        letters_at(uri)
