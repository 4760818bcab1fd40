"""`unistream explain`: text for people, one JSON value for programs, nothing started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unistream.cli.main import main


def test_text(capsys: pytest.CaptureFixture[str], pipelines: str, own_home: Path) -> None:
    assert main(["explain", f"{pipelines}:bounded", "-p", "3"]) == 0
    out = capsys.readouterr().out
    for text in ("stream graph", "job graph", "execution graph: 3 subtasks", "numbers -> blackhole"):
        assert text in out
    assert not own_home.exists()


def test_json_and_options(capsys: pytest.CaptureFixture[str], pipelines: str) -> None:
    words = ["explain", f"{pipelines}:bounded", "--json", "-D", "execution.runtime-mode=AUTOMATIC"]
    assert main([*words, "-D", "pipeline.operator-chaining.enabled=false"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["type"] == "BATCH"
    assert [node["inputs"][0]["exchange"] for node in plan["jobGraph"]["nodes"] if "inputs" in node] == [
        "blocking"
    ]
    assert set(plan) == {"name", "type", "streamGraph", "jobGraph", "executionGraph", "engine"}
    assert plan["engine"]["engine"] is None  # by the target


def test_bad_input_is_one_sentence_and_2(capsys: pytest.CaptureFixture[str], pipelines: str) -> None:
    assert main(["explain", f"{pipelines}:endless", "-D", "execution.runtime-mode=BATCH"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: execution.runtime-mode=BATCH: source 'numbers' never ends")
    assert err.count("\n") == 1
