"""`unistream dead-letters`: what a stranger does with it, twice, in the wrong order, and with kills."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.integration.crash_runs import (
    OF_MATRIX,
    OF_REPLAYS,
    Command,
    Crashes,
    commands_in,
    in_the_gate,
    points_in_code,
)
from tests.integration.replayed_rows import KAFKA, LAKE, LINES, MENDED, ROWS, TOPIC, line
from tests.support.servers.kafka_tools import produce_values
from unistream.base.object_stores import delta_options
from unistream.testing.devtools.object_store import make_bucket, options_of

pytestmark = [pytest.mark.usefixtures("replay_folder")]

EVERY = sorted([*range(ROWS), 1_000])
MODULES = os.pathsep.join([str(Path(__file__).parents[2]), str(Path(__file__).parent)])
BAD = [i for i in range(ROWS) if i % 3 == 1]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables that the pipeline has written, once for all tests."""
    folder = tmp_path_factory.mktemp("ran")
    with commands_in(folder) as start:
        run = start("run", "replayed_rows:pipeline", "-t", "local", "-p", "2", env={"PYTHONPATH": MODULES})
        assert run.wait() == 0, run.err
        assert f"fares: {len(BAD)} dead letters" in run.out
    return folder / "lake"


@pytest.fixture
def lake(ran: Path, tmp_path: Path) -> None:
    shutil.copytree(ran, tmp_path / "lake")


def ids() -> list[int]:
    return sorted(DeltaTable("lake/fares").to_pyarrow_table()["id"].to_pylist())


REPLAY = ("dead-letters", "replay", "lake/dead", "replayed_rows:pipeline", "-t", "local")


def test_letters_on_an_object_store(
    s3: str, said: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bucket(s3, "unistream")
    lake = f"s3://unistream/letters/{uuid4().hex[:12]}"
    options = [word for key, value in options_of(s3).items() for word in ("-D", f"{key}={value}")]
    monkeypatch.setenv(LAKE, lake)
    said("run", "replayed_rows:pipeline", "-t", "local", "-p", "2", *options)
    table, pipeline = f"{lake}/dead", ["replayed_rows:pipeline", "-t", "local", *options]
    (group,) = said("dead-letters", "list", table, *options, "--json")
    assert (group["operator"], group["letters"], group["replayed"]) == ("fares", len(BAD), 0)
    shown = said("dead-letters", "show", table, *options, "--json", "-n", "100")
    assert sorted(json.loads(one["row"])["id"] for one in shown) == BAD
    monkeypatch.setenv(MENDED, "all")
    outcome = said("dead-letters", "replay", table, *pipeline, "--json")
    assert (outcome["letters"], outcome["failed_again"]) == (len(BAD), 0)
    assert said("dead-letters", "replay", table, *pipeline, "--json")["letters"] == 0, "each once"
    (group,) = said("dead-letters", "list", table, *options, "--json")
    assert group["replayed"] == len(BAD)
    fares = DeltaTable(f"{lake}/fares", storage_options=delta_options(lake, {})).to_pyarrow_table()
    assert sorted(fares["id"].to_pylist()) == EVERY


@pytest.mark.usefixtures("lake")
def test_the_story_of_a_stranger(said: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _, err = said("dead-letters", "list", "lake/fares", code=2)
    assert "is no table of dead letters: it has no column letter" in err
    _, err = said("dead-letters", "list", "lake/of-nobody", code=2)
    assert "there is no table or folder at" in err
    assert ids() == [i for i in EVERY if i not in BAD]
    (group,) = said("dead-letters", "list", "lake/dead", "--json")
    assert {key: group[key] for key in ("operator_uid", "error_type", "letters", "replayed", "attempts")} == {
        "operator_uid": "fares",
        "error_type": "ValueError",
        "letters": len(BAD),
        "replayed": 0,
        "attempts": 1,
    }
    shown = said("dead-letters", "show", "lake/dead", "-n", "3", "--json")
    assert len(shown) == 3
    assert json.loads(shown[0]["row"])["text"].endswith("$")
    assert shown[0]["error_at"].partition(":")[0].endswith("replayed_rows.py")

    monkeypatch.setenv(MENDED, "some")
    first = said(*REPLAY, "--json")
    still_bad = [i for i in BAD if i % 6 == 1]
    assert (first["letters"], first["failed_again"]) == (len(BAD), len(still_bad))
    assert ids() == [i for i in EVERY if i not in still_bad]

    groups = said("dead-letters", "list", "lake/dead", "--json")
    (group,) = groups
    assert (group["letters"], group["replayed"], group["attempts"]) == (
        len(BAD) + len(still_bad),
        len(BAD),
        2,
    )
    again = [
        one for one in said("dead-letters", "show", "lake/dead", "-n", "99", "--json") if one["attempt"] == 2
    ]
    first_ones = {one["letter"] for one in said("dead-letters", "show", "lake/dead", "-n", "99", "--json")}
    assert {one["replay_of"] for one in again} <= first_ones

    monkeypatch.setenv(MENDED, "all")
    second = said(*REPLAY, "--json")
    assert (second["letters"], second["failed_again"]) == (len(still_bad), 0)
    assert ids() == EVERY

    third = said(*REPLAY, "--json")
    assert (third["replay"], third["letters"]) == (None, 0)
    out, _ = said(*REPLAY)
    assert "there is nothing to replay" in out
    assert ids() == EVERY


@pytest.mark.usefixtures("lake")
def test_corrected_rows_are_replayed_and_no_others(
    said: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = said("dead-letters", "show", "lake/dead", "-n", "99", "--json")
    letters = {json.loads(one["row"])["id"]: one for one in shown}
    one, other, *_ = sorted(letters)
    edits = tmp_path / "edits.jsonl"

    def corrected(**rows: object) -> None:
        lines = [{"letter": letters[int(name[1:])]["letter"], "row": row} for name, row in rows.items()]
        edits.write_text("\n".join(map(json.dumps, lines)))

    corrected(**{f"_{one}": {"id": "free"}})
    _, err = said(*REPLAY, "--edits", str(edits), code=2)
    assert "is no int64, which column 'id' has" in err
    monkeypatch.setenv(MENDED, "some")  # of the odd ones it makes letters still
    whole = json.dumps(json.loads(letters[other]["row"]) | {"id": 2_002, "text": "5"})
    corrected(**{f"_{one}": {"id": 2_000}, f"_{other}": whole})
    outcome = said(*REPLAY, "--edits", str(edits), "--json")
    assert (outcome["letters"], outcome["failed_again"]) == (2, 0)
    assert ids() == sorted([i for i in EVERY if i not in BAD] + [2_000, 2_002])
    out, _ = said(*REPLAY, "--edits", str(edits))
    assert "there is nothing to replay" in out
    (group,) = said("dead-letters", "list", "lake/dead", "--json")
    assert (group["letters"], group["replayed"]) == (len(BAD), 2)


@OF_MATRIX
@pytest.mark.usefixtures("lake")
def test_only_some_letters(said: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MENDED, "all")
    (one, *_) = said("dead-letters", "show", "lake/dead", "--json")
    done = said(*REPLAY, "--letter", one["letter"][:10], "--json")
    assert done["letters"] == 1
    assert said(*REPLAY, "--error", "KeyError", "--json")["letters"] == 0
    assert said(*REPLAY, "-n", "4", "--json")["letters"] == 4
    assert len(ids()) == len(EVERY) - len(BAD) + 5


@OF_MATRIX
def test_state_is_refused_and_nothing_is_begun(
    said: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    said("run", "replayed_rows:stateful", "-t", "local", "-p", "1", "--json")
    words = ("dead-letters", "replay", "totals-dead", "replayed_rows:stateful", "-t", "local")
    _, err = said(*words, code=2)
    assert "has state, which the job has and a replay does not" in err
    assert not Path("totals-dead/_unistream_replays").exists()
    _, err = said("dead-letters", "replay", "totals-dead", "replayed_rows:pipeline", "-t", "local", code=2)
    assert "the pipeline has no operator 'totals'" in err
    monkeypatch.setenv(MENDED, "all")
    assert said(*words, "--from-empty-state", "--json")["letters"] == 2
    found = [pq.read_table(path)["id"].to_pylist() for path in Path("totals").glob("part-*.parquet")]
    assert sorted(i for part in found for i in part) == list(range(6))


@OF_MATRIX
@pytest.mark.usefixtures("lake")
def test_a_job_that_fails_is_gone_on_with(said: Callable[..., Any], tmp_path: Path) -> None:
    """The operator does not send letters any more, and still fails: nothing is half-done."""
    failing = "import unistream as us\nfrom replayed_rows import *\n\ndef pipeline(env):\n" + (
        "    rows = env.from_collection([{'id': 0, 'text': ''}]).uid('texts')\n"
        "    rows.map(fare, returns=FARES).uid('fares').sink_to(us.DeltaSink('lake/other')).uid('lake')\n"
    )
    (tmp_path / "fails.py").write_text(failing)
    words = ("dead-letters", "replay", "lake/dead", "fails:pipeline", "-t", "local")
    _, err = said(*words, "-D", "restart-strategy.type=none", code=1)
    assert "function 'fare' raised ValueError" in err
    (group,) = said("dead-letters", "list", "lake/dead", "--json")
    assert group["replayed"] == 0
    os.environ[MENDED] = "all"
    try:
        assert said(*REPLAY, "--json")["letters"] == len(BAD)
    finally:
        del os.environ[MENDED]
    assert ids() == EVERY


# --- letters of sources -----------------------------------------------------------------------------

READABLE = [i for i in range(LINES) if i % 10 != 7]
DECIMAL = [i for i in READABLE if i % 3 == 1]


def doubled() -> list[tuple[int, float]]:
    """Id and double fare of all rows. Types differ, since the pipeline was mended in between."""
    tables = [pq.read_table(path) for path in Path("lake/doubled").glob("part-*.parquet")]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted((row["id"], row["double"]) for row in rows)


def check_records(said: Callable[..., Any], pipeline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline has run over the lines: its letters are replayed before and after it is mended."""
    first = [(i, 2 * i) for i in READABLE if i not in DECIMAL]
    assert doubled() == first
    words = ("dead-letters", "replay", "lake/dead", pipeline, "-t", "local")
    out, err = said(*words)
    letters = LINES - len(first)
    assert f"nothing was replayed: {letters} letters are still no rows" in out
    assert "letters are still no rows, and stay as they are" in err
    assert doubled() == first

    monkeypatch.setenv(MENDED, "all")
    done = said(*words, "-n", str(letters), "--json")
    unread = letters - len(DECIMAL)
    assert (done["letters"], done["unread"], done["failed_again"]) == (len(DECIMAL), unread, 0)
    every = sorted([*first, *((i, 2 * i + 1) for i in DECIMAL)])
    assert doubled() == every
    shown = said("dead-letters", "show", "lake/dead", "-n", "99", "--json")
    assert sum(one["replayed"] for one in shown) == len(DECIMAL)
    assert sum(one["letters"] for one in said("dead-letters", "list", "lake/dead", "--json")) == letters
    again = said(*words, "--json")
    assert (again["replay"], again["letters"], again["unread"]) == (None, 0, unread), "each once"
    assert doubled() == every


@pytest.fixture
def some_lines(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for part in (0, 1):
        content = "".join(line(i) + "\n" for i in range(part, LINES, 2))
        (tmp_path / "in" / f"{part}.json").write_text(content)


@pytest.mark.usefixtures("some_lines")
def test_lines_that_are_rows_now(said: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    said("run", "replayed_rows:lines", "-t", "local", "-p", "2")
    _, err = said("dead-letters", "replay", "lake/dead", "replayed_rows:pipeline", "-t", "local", code=2)
    assert "no source of the pipeline reads" in err
    check_records(said, "replayed_rows:lines", monkeypatch)


@pytest.mark.kafka
def test_records_that_are_rows_now(
    kafka: str, topic: str, said: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    produce_values(kafka, topic, [line(i).encode() for i in range(LINES)])
    monkeypatch.setenv(KAFKA, kafka)
    monkeypatch.setenv(TOPIC, topic)
    said("run", "replayed_rows:records", "-t", "local", "-p", "2")
    check_records(said, "replayed_rows:records", monkeypatch)


# --- kills ------------------------------------------------------------------------------------------

KILLS = {
    "before its job starts": ("replay.begun",),
    "its worker in the middle": ("task.batch:2",),
    "its worker with all rows staged": ("delta.staged",),
    "when the last checkpoint is durable, before any commit": ("manifest.created",),
    "when its commits may have begun": ("notify.sent:3",),
    "behind its first commit": ("commit.recorded",),
    "when the result is to be recorded": ("result.before_record",),
    "when the result is recorded": ("result.recorded",),
    "when its checkpoints are removed": ("retention.deleted",),
    "when its job has finished": ("replay.finished",),
    "when that is noted": ("replay.recorded",),
}


def test_every_named_place_of_a_replay_has_a_row_here() -> None:
    killed = {point.partition(":")[0] for points in KILLS.values() for point in points}
    assert {one for one in killed if one.startswith(OF_REPLAYS)} == set(points_in_code(OF_REPLAYS))


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    with commands_in(tmp_path) as start:
        yield start


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 3))
def test_letters_are_replayed_once_whatever_is_killed(
    what: str, said: Callable[..., Any], command: Callable[..., Command], crashes: Crashes
) -> None:
    mended = {"PYTHONPATH": MODULES, MENDED: "all"}
    armed = {**crashes.environment(*KILLS[what]), "UNISTREAM_TESTING": "1", **mended}
    killed = command(*REPLAY, env=armed)
    code = killed.wait()
    assert code in (0, -signal.SIGKILL), killed.err
    killed.assert_nothing_is_left()
    assert crashes.happened, f"nobody was killed: {killed.out} {killed.err}"
    again = command(*REPLAY, "--json", env=mended)
    assert again.wait() == 0, again.err
    assert ids() == EVERY, (what, killed.err, again.err)
    (group,) = said("dead-letters", "list", "lake/dead", "--json")
    assert (group["letters"], group["replayed"]) == (len(BAD), len(BAD))
    third = command(*REPLAY, "--json", env=mended)
    assert third.wait() == 0, third.err
    assert json.loads(third.out)["letters"] == 0
    assert ids() == EVERY


@pytest.mark.usefixtures("some_lines")
@pytest.mark.parametrize("what", in_the_gate(list(KILLS), 4))
def test_lines_are_replayed_once_whatever_is_killed(
    what: str, said: Callable[..., Any], command: Callable[..., Command], crashes: Crashes
) -> None:
    said("run", "replayed_rows:lines", "-t", "local", "-p", "2")
    words = ("dead-letters", "replay", "lake/dead", "replayed_rows:lines", "-t", "local")
    mended = {"PYTHONPATH": MODULES, MENDED: "all"}
    points = [point.replace("delta.staged", "file.staged") for point in KILLS[what]]
    killed = command(*words, env={**crashes.environment(*points), "UNISTREAM_TESTING": "1", **mended})
    assert killed.wait() in (0, -signal.SIGKILL), killed.err
    killed.assert_nothing_is_left()
    assert crashes.happened, f"nobody was killed: {killed.out} {killed.err}"
    for _ in range(2):
        again = command(*words, "--json", env=mended)
        assert again.wait() == 0, again.err
    assert json.loads(again.out)["letters"] == 0
    decimal = [(i, 2 * i + 1) for i in DECIMAL]
    assert doubled() == sorted([*((i, 2 * i) for i in READABLE if i not in DECIMAL), *decimal])
