"""`unistream dead-letters` for tables that only their sinks can open: of Iceberg, or of a database."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.integration.replayed_rows import DATABASE, MENDED, ROWS

pytestmark = [pytest.mark.usefixtures("replay_folder")]

EVERY = sorted([*range(ROWS), 1_000])
BAD = [i for i in range(ROWS) if i % 3 == 1]
STILL_BAD = [i for i in BAD if i % 6 == 1]
UID = "fares-dead-letters"


@pytest.fixture(params=["iceberg", "sqlite", "postgresql"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "iceberg":
        return "replayed_rows:letters_in_iceberg"
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgres").new_database())
    monkeypatch.setenv(DATABASE, url)
    return "replayed_rows:letters_in_a_database"


def ids() -> list[int]:
    return sorted(DeltaTable("lake/fares").to_pyarrow_table()["id"].to_pylist())


def test_each_letter_is_replayed_once(
    pipeline: str, said: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, more = f"{pipeline}#{UID}", ("--record", "replays") if pipeline.endswith("database") else ()
    _, err = said("dead-letters", "list", table, *more, code=2)
    assert "does not exist" in err
    said("run", pipeline, "-t", "local", "-p", "2")
    assert ids() == [i for i in EVERY if i not in BAD]
    (group,) = said("dead-letters", "list", table, *more, "--json")
    assert (group["operator_uid"], group["letters"], group["replayed"]) == ("fares", len(BAD), 0)
    shown = said("dead-letters", "show", table, *more, "-n", "100", "--json")
    assert sorted(json.loads(one["row"])["id"] for one in shown) == BAD

    monkeypatch.setenv(MENDED, "some")
    replay = ("dead-letters", "replay", table, pipeline, "-t", "local", *more, "--json")
    first = said(*replay)
    assert (first["letters"], first["failed_again"]) == (len(BAD), len(STILL_BAD))
    assert ids() == [i for i in EVERY if i not in STILL_BAD]
    (group,) = said("dead-letters", "list", table, *more, "--json")
    assert (group["letters"], group["replayed"]) == (len(BAD) + len(STILL_BAD), len(BAD))
    assert group["attempts"] == 2

    monkeypatch.setenv(MENDED, "all")
    assert said(*replay)["letters"] == len(STILL_BAD)
    assert ids() == EVERY
    assert said(*replay)["letters"] == 0, "a second time there is nothing to do"
    assert ids() == EVERY


def test_what_cannot_be_read(
    tmp_path: Path, said: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATABASE, f"sqlite:///{tmp_path / 'letters.db'}")
    pipeline = "replayed_rows:letters_in_a_database"
    said("run", pipeline, "-t", "local", "-p", "1")
    table = f"{pipeline}#{UID}"
    (group,) = said("dead-letters", "list", table, "--json")
    assert (group["letters"], group["replayed"]) == (len(BAD), None), "it is not known which were replayed"
    out, _ = said("dead-letters", "show", table, "-n", "1")
    assert f"{len(BAD) - 1} more" in out
    for words, sentence in [
        (("replay", table, pipeline, "-t", "local"), "give one by --record, and always the same one"),
        (("list", f"{pipeline}#dead"), f"has no sink 'dead'; its sinks are '{UID}', 'lake'"),
        (("list", f"{pipeline}#lake"), "cannot read its letters back: give the path of its Delta table"),
        (("list", "lake/fares", "--record", "replays"), "--record is for a table in a database"),
        (("list", "nowhere:at_all#x"), "nowhere"),
    ]:
        _, err = said("dead-letters", *words, code=2)
        assert sentence in err, words
    assert ids() == [i for i in EVERY if i not in BAD]
