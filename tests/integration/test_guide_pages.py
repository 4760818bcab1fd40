"""Pages of the guide whose code needs a job, a table or a folder say what is true: their code is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import unistream as us
from unistream.connector.kafka.decode import DEAD_LETTER_SCHEMA
from unistream.dagster.translator import lineage_of

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
FLIGHTS = pa.table(
    {
        "carrier": ["AA", "DL"],
        "departed": pa.array([1_767_225_600_000, 1_767_229_200_000], pa.timestamp("ms")),
        "delay": [1.0, 2.0],
    }
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which the code runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNISTREAM_HOME", str(tmp_path / "home"))
    return tmp_path


def run(page: str, *, uncomment: str | None = None) -> dict[str, Any]:
    """All blocks of a page, one after the other, and the names that they leave."""
    blocks = re.findall(r"```python\n(.*?)```", (GUIDE / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    names: dict[str, Any] = {"__name__": "guide"}
    for number, block in enumerate(blocks, 1):
        code = (
            block if uncomment is None else re.sub(rf"^# ({uncomment}.*)$", r"\1", block, flags=re.MULTILINE)
        )
        exec(compile(code, f"{page}, block {number}", "exec"), names)
    return names


def files_rows(folder: Path) -> list[dict[str, Any]]:
    """Of a file sink."""
    parts = [path for path in folder.rglob("part-*.parquet") if not path.name.startswith(".")]
    return [row for path in sorted(parts) for row in pq.ParquetFile(path).read().to_pylist()]


@pytest.mark.spark
def test_bootstrap(place: Path) -> None:
    run("bootstrap.md", uncomment="env.")
    found = [(one["user"], one["window_start"].timestamp(), one["n"]) for one in files_rows(place / "counts")]
    assert sorted(found) == [(1, 0.0, 1), (1, 0.06, 2), (2, 0.06, 1), (2, 0.12, 1)]


@pytest.mark.spark
def test_logs() -> None:
    lines = run("logs.md")["lines"]
    assert [(one.level, one.message) for one in lines] == [("WARNING", "amount 'much' is no number")]


def test_runtime_modes() -> None:
    names = run("runtime-modes.md")
    assert "bounded part, runs before the stream" in names["env"].explain()


def test_letters_of_kafka_are_published_again(place: Path) -> None:
    names = run("dead-letters.md")
    write_deltalake(str(place / "lake" / "flights-dead"), DEAD_LETTER_SCHEMA.empty_table())
    graph = lineage_of(names["publish_again"])
    assert [sink.uid for sink in graph.sinks] == ["topic"]


@pytest.mark.parametrize("page", ["hybrid.md", "backfill.md"])
def test_a_history_of_files_and_of_a_table(page: str, place: Path) -> None:
    (place / "archive" / "flights").mkdir(parents=True)
    pq.write_table(FLIGHTS, place / "archive" / "flights" / "2026.parquet")
    write_deltalake(str(place / "lake" / "flights"), FLIGHTS)
    names = run(page)
    if page == "hybrid.md":
        assert type(names["source"]).__name__ == "HybridSource"
    else:
        env = us.Environment()
        names["build"](env)
        assert "lake" in env.explain()
