"""`unistream group`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unistream.cli.main import main
from unistream.connector.group.file_log import FileGroupLog
from unistream.port.group import GroupCommit, TableVersion

NEWEST = GroupCommit(
    group="shop",
    number=1,
    lineage="l",
    job="3f0c",
    checkpoint=12,
    committed_ms=1_795_000_000_000,
    tables={
        "orders": TableVersion(kind="delta", address="/lake/orders", version=7),
        "totals": TableVersion(kind="sql", address="totals"),
    },
)


def test_the_newest_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FileGroupLog(str(tmp_path), "shop").append(NEWEST)
    assert main(["group", "show", str(tmp_path), "shop"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("12 of job 3f0c", "orders  delta  7", "totals  sql    as it is"))
    assert main(["group", "show", str(tmp_path), "shop", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"]["orders"]["version"] == 7


def test_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", "show", str(tmp_path), "shop"]) == 2
    assert "commit group 'shop' has no record there" in capsys.readouterr().err
