"""`unistream connectors`."""

from __future__ import annotations

import json

import pytest

from unistream.cli.main import main
from unistream.connector.common.machine_code import compile_missing


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["connectors", *words])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "list", "--json")
    assert code == 0
    found = {one["name"]: one for one in json.loads(out)}
    assert found["kafka"]["sink"] == "unistream.connector.kafka:KafkaSink"
    code, out, _ = said(capsys, "list")
    assert code == 0
    assert all(word in out for word in ("KafkaSource", "DeltaSink", "exactly once", "unistream[kafka]"))


def test_one_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "info", "delta", "--json")
    assert code == 0
    source, sink = json.loads(out)["parts"]
    assert (source["kind"], sink["name"]) == ("source", "DeltaSink")
    code, out, _ = said(capsys, "info", "delta")
    assert code == 0
    assert all(
        word in out for word in ("DeltaSink (sink)", "partition_by", "required", "docs/guide/delta.md")
    )


def test_none_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "info", "nothing")
    assert code == 2
    assert "there is no connector 'nothing'" in err


def test_what_is_compiled_is_not_compiled_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "compile") == (0, "", "")
    assert compile_missing() == []
    assert said(capsys, "compile") == (0, "", "")
