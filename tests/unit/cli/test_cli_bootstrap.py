"""`unistream bootstrap`: what it checks before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unistream.cli.main import main

PIPELINES = """
import pyarrow as pa
import unistream as us

TIMES = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")

def fenced(env, times=TIMES):
    rows = us.StaticSource(pa.table({"user": [1], "at": [10]}))
    source = us.HybridSource(rows, rows, fence=1772323200000, timestamp_column="at")
    env.from_source(source, times, "rows").uid("rows").sink_to(us.BlackholeSink()).uid("out")

def timeless(env):
    fenced(env, us.WatermarkStrategy.no_watermarks())

def alone(env):
    rows = us.StaticSource(pa.table({"user": [1], "at": [10]}))
    env.from_source(rows, TIMES, "rows").uid("rows").sink_to(us.BlackholeSink()).uid("out")
"""


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in the current folder."""
    name = f"histories_{abs(hash(str(tmp_path))):x}"
    (tmp_path / f"{name}.py").write_text(PIPELINES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "")
    return name


@pytest.mark.parametrize("until", ["1772323200000", "2026-03-01", "2026-03-01T01:00:00+01:00"])
def test_a_dry_run_says_how_far_event_time_will_be_and_makes_nothing(
    until: str, capsys: pytest.CaptureFixture[str], pipelines: str, tmp_path: Path
) -> None:
    words = ["bootstrap", f"{pipelines}:fenced", "--savepoint", "START", "--until", until, "-t", "local"]
    assert main([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out == (
        f"would write {tmp_path / 'START'}; windows and timers until 1772323199999 ms fire\n"
    )
    assert main([*words, "--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"savepoint": str(tmp_path / "START"), "watermark": 1772323199999}
    assert not (tmp_path / "START").exists()


def test_without_watermarks_nothing_fires(capsys: pytest.CaptureFixture[str], pipelines: str) -> None:
    words = ["bootstrap", f"{pipelines}:timeless", "--savepoint", "START", "-t", "local", "--dry-run"]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["watermark"] is None
    assert main(words) == 0
    assert "there are no watermarks, so no window fires" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("pipeline", "words", "why"),
    [
        ("alone", (), "bootstrap: the pipeline has no HybridSource"),
        ("fenced", ("--until", "soon"), "--until 'soon' is no time"),
        ("fenced", ("--until", "5"), "until is 5 ms, and the fence of source 'rows' is 1772323200000 ms"),
        ("fenced", (), "bootstrap needs Spark's engine: use the target spark"),
    ],
)
def test_bad_input_is_one_sentence_and_2(
    pipeline: str, words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str], pipelines: str
) -> None:
    start = ["bootstrap", f"{pipelines}:{pipeline}", "--savepoint", "START", "-t", "local"]
    assert main([*start, *words]) == 2
    assert why in capsys.readouterr().err
    assert not Path("START/_metadata").exists()
