"""A commit group in a pipeline: what it becomes, and what is refused before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unistream as us
from unistream.base.errors import ConfigError
from unistream.operator.sink import CommitterOperator, GroupCommitterOperator


def delta(name: str) -> us.DeltaSink:
    return us.DeltaSink(name)


def sql(name: str) -> us.SqlSink:
    return us.SqlSink(f"sqlite:///{name}.db", "t")


def rows_of(env: us.Environment) -> us.DataStream:
    return env.from_collection([{"id": 1}], name="rows")


def to(rows: us.DataStream, *sinks: tuple[str, Any, Any]) -> None:
    for uid, sink, group in sinks:
        rows.sink_to(sink, group=group).uid(uid)


G = us.CommitGroup("g", "groups")
REFUSED: dict[str, tuple[Callable[[us.DataStream], object], str]] = {
    "files have no versions": (
        lambda rows: rows.sink_to(us.FileSink("files"), group=G),
        r"sink '.*' cannot be in a group.*DeltaSink, IcebergSink and SqlSink can",
    ),
    "no location": (
        lambda rows: to(rows, ("a", delta("a"), us.CommitGroup("g"))),
        r"where are its records to be\? CommitGroup\('g', '/lake/groups'\)",
    ),
    "a location and a database": (
        lambda rows: to(rows, ("a", sql("one"), G)),
        "records of a group with a SQL sink are in its database, so leave out location='groups'",
    ),
    "two databases": (
        lambda rows: to(
            rows, *((uid, sql(uid), group) for group in [us.CommitGroup("g")] for uid in ("one", "two"))
        ),
        r"SQL sinks are in several databases \('one' in .*one.* and 'two' in .*two.*no common transaction",
    ),
    "two groups of one name": (
        lambda rows: to(rows, ("a", delta("a"), G), ("b", delta("b"), us.CommitGroup("g", "elsewhere"))),
        r"there are two of that name; give sink_to the same one",
    ),
    "an operator with the uid of the committer": (
        lambda rows: to(rows, ("g-committer", delta("a"), G)),
        "uid 'g-committer', which its committer has, is given to an operator",
    ),
    "a name instead of a group": (
        lambda rows: to(rows, ("a", delta("a"), "g")),
        r"group takes a us.CommitGroup\(\.\.\.\), not 'g'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.chdir(tmp_path)
    build, reason = REFUSED[what]
    env = us.Environment()

    def all_of_it() -> None:
        build(rows_of(env))
        env.job_graph()

    with pytest.raises(ConfigError, match=reason):
        all_of_it()
    assert not list(tmp_path.rglob("*.json")), "nothing is written"


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "a b", 7, None])
def test_names(name: Any) -> None:
    with pytest.raises(ConfigError, match="commit group: the name"):
        us.CommitGroup(name, "groups")


def test_one_committer_has_an_input_for_each_writer_and_its_uids(tmp_path: Path) -> None:
    env = us.Environment()
    rows, group = rows_of(env), us.CommitGroup("g", str(tmp_path))
    other = us.CommitGroup("h", str(tmp_path))
    a = rows.sink_to(us.DeltaSink(str(tmp_path / "a")), group=group)
    to(rows, ("b", delta("b"), group), ("c", delta("c"), other), ("alone", delta("alone"), None))
    a.uid("a").set_parallelism(3)
    graph = env.stream_graph()
    found = {node.name: node for node in graph.nodes if isinstance(node.operator, GroupCommitterOperator)}
    assert {name: (node.uid, node.inputs, node.parallelism) for name, node in found.items()} == {
        "g committer": ("g-committer", 2, 1),
        "h committer": ("h-committer", 1, 1),
    }
    operator = found["g committer"].operator
    assert isinstance(operator, GroupCommitterOperator)
    assert operator.sink.members == ("a", "b")  # type: ignore[attr-defined]
    committers = [node for node in graph.nodes if isinstance(node.operator, CommitterOperator)]
    assert len(committers) == 3, "one for each group, and that of the sink without one"
    assert len(env.stream_graph().nodes) == len(graph.nodes), "however often it is asked for"


def test_a_sink_that_is_replaced_is_in_no_group(tmp_path: Path) -> None:
    """As in a simulation, or when dead letters are replayed next to the job."""
    from unistream.api.sinks import sinks_replaced

    env, group = us.Environment(), us.CommitGroup("g", str(tmp_path))
    with sinks_replaced(lambda _: us.BlackholeSink()):
        to(rows_of(env), ("a", delta("a"), group))
    assert not any(isinstance(node.operator, GroupCommitterOperator) for node in env.stream_graph().nodes)
