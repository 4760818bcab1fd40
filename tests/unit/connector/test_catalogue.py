"""What is said of connectors, ours and those of other packages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import unistream as us
from unistream.base.errors import ConfigError
from unistream.connector.catalogue import BUILT_IN
from unistream.connector.listed import ConnectorOption, connector, connectors, described_arguments, parts
from unistream.port.group import JoinsGroup
from unistream.port.sink import ChecksRows, Sink

ROOT = Path(__file__).parents[3]


def install(folder: Path, name: str, target: str, code: str, group: str = "unistream.connectors") -> None:
    """A package `made` that declares a connector."""
    (folder / "made.py").write_text(code)
    about = folder / "made-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: made\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")


def test_every_source_and_sink_of_ours_is_in_the_list() -> None:
    places = {one for info in BUILT_IN.values() for one in (info.source, info.sink) if one}
    named = {place.partition(":")[2] for place in places}
    public = {name for name in us.__all__ if name.endswith(("Sink", "Source"))}
    assert named == public - {"DataStreamSink", "Sink", "Source", "TwoPhaseCommitSink"}
    assert all(bool(info.discovery) == bool(info.source) for info in BUILT_IN.values())


SINKS: dict[str, Callable[[str], Sink]] = {
    "blackhole": lambda _: us.BlackholeSink(),
    "collect": us.CollectSink,
    "delta": us.DeltaSink,
    "file": us.FileSink,
    "iceberg": lambda folder: us.IcebergSink(
        "a.b", catalog_properties={"type": "sql", "uri": "sqlite://", "warehouse": folder}
    ),
    "kafka": lambda _: us.KafkaSink(bootstrap_servers="nowhere:9092", topic="rows"),
    "print": lambda _: us.PrintSink(),
    "simple": lambda _: us.SimpleSink(),
    "sql": lambda folder: us.SqlSink(f"sqlite:///{folder}/rows.db", "rows"),
}


@pytest.mark.parametrize("name", [name for name, info in BUILT_IN.items() if info.sink])
def test_the_list_says_what_a_sink_of_ours_can(name: str, tmp_path: Path) -> None:
    info, sink = BUILT_IN[name], SINKS[name](str(tmp_path))
    assert info.checks_rows == isinstance(sink, ChecksRows)
    assert info.joins_groups == isinstance(sink.create_committer(), JoinsGroup)


@pytest.mark.parametrize("name", [name for name, info in BUILT_IN.items() if info.guide])
def test_arguments_of_ours_are_described(name: str) -> None:
    found = connector(name)
    assert (ROOT / found.info.guide).is_file()
    for part in parts(found):
        assert not part.problem
        assert part.summary
        assert [option.name for option in part.options if not option.meaning] == []


def test_an_argument_has_a_name_a_default_and_a_meaning() -> None:
    [part] = parts(connector("static"))
    assert (part.kind, part.name) == ("source", "StaticSource")
    assert part.options == (
        ConnectorOption(name="table", default=None, meaning="At most 256 MiB as Arrow IPC."),
        ConnectorOption(
            name="splits",
            default="1",
            meaning="Parts that subtasks read in parallel; with 1 the order is kept.",
        ),
    )


@pytest.mark.parametrize("group", ["unistream.connectors", "unistream.catalogue"])
def test_a_connector_of_another_package_is_one_of_them(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import unistream as us

class MadeSink:
    \"\"\"A sink.

    Args:
        path: Where.
    \"\"\"

    def __init__(self, path, *rest, n=3, **more): ...

CONNECTOR = us.ConnectorInfo(summary="Made.", sink="made:MadeSink", source="made:Nothing", promise="none")
"""
    install(tmp_path, "made", "made:CONNECTOR", code, group)
    monkeypatch.delitem(sys.modules, "made", raising=False)  # that of another test
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {one.name: one for one in connectors()}["made"]
    assert (found.package, found.info.summary, found.problem) == ("made 1.2", "Made.", "")
    source, sink = parts(found)
    assert "made:Nothing" in source.problem
    assert [(one.name, one.default, one.meaning) for one in sink.options] == [
        ("path", None, "Where."),
        ("n", "3", ""),
    ]


@pytest.mark.parametrize(
    ("name", "target", "problem"),
    [
        ("bad", "made:GONE", "connector 'bad' cannot be loaded from 'made:GONE'"),
        ("bad", "nowhere:X", "No module named 'nowhere'"),
        ("bad", "made:OTHER", "made:OTHER is no ConnectorInfo"),
    ],
)
def test_what_cannot_be_read_is_listed_with_the_reason(
    name: str, target: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, name, target, "OTHER = 5")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "made", raising=False)
    found = connector(name)
    assert problem in found.problem
    assert parts(found) == []


def test_a_name_of_ours_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "kafka", "made:X", "X = 5")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert connector("kafka").package == "unistream"


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(ConfigError, match="there is no connector 'kafkaa'; there are blackhole, collect, "):
        connector("kafkaa")


def test_a_docstring_without_arguments() -> None:
    assert list(described_arguments("Nothing.")) == []
