"""Streams that end in no sink: warned of with operator and line, or refused if nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import unistream as us
from unistream.base.errors import ConfigError

Build = Callable[[us.DataStream], object]
HERE = Path(__file__).name


def pipeline(build: Build) -> us.Environment:
    env = us.Environment(target="local")
    build(env.from_collection([{"n": 1}], name="rows"))
    return env


def advice(env: us.Environment) -> str | None:
    return dict(env.advice(env.job_graph("job")[0])).get("rows_without_a_sink")


def branches(rows: us.DataStream) -> None:
    rows.print()
    rows.filter(us.col("n") > 1).select("n").name("forgotten")


def looked_at(rows: us.DataStream) -> None:
    rows.filter(us.col("n") > 1).take(1)
    rows.print()


def grouped(rows: us.DataStream) -> None:
    group = us.CommitGroup("both", "/lake/groups")
    for part in "ab":
        rows.sink_to(us.DeltaSink(f"/lake/{part}"), group=group).uid(part)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        pytest.param(lambda rows: rows.print(), [], id="a sink"),
        pytest.param(lambda rows: rows.sink_to(us.FileSink("/lake/x")), [], id="a sink that commits"),
        pytest.param(lambda rows: rows.key_by("n").sink_to(us.BlackholeSink()), [], id="a keyed stream"),
        pytest.param(
            lambda rows: rows.sink_to(us.FileSink("/lake/x"), on_error="skip"), [], id="a checked sink"
        ),
        pytest.param(grouped, [], id="sinks of a group"),
        pytest.param(
            lambda rows: rows.side_output("odd", us.col("n") > 1).get_side_output("odd").print(),
            [],
            id="a side output alone",
        ),
        pytest.param(lambda rows: rows.filter(us.col("n") > 1), ["filter"], id="no sink at all"),
        pytest.param(branches, ["forgotten"], id="a branch next to a sink"),
        pytest.param(
            lambda rows: [rows.print(), *(rows.select("n").name(f"end{i}") for i in range(7))],
            ["end0", "and of 2 more"],
            id="many branches",
        ),
    ],
)
def test_rows_that_go_nowhere_are_said(build: Build, named: list[str]) -> None:
    env = pipeline(build)
    found = advice(env)
    assert (found is None) == (not named)
    assert all(name in (found or "") for name in named)
    assert (f"{HERE}:" in (found or "")) == bool(named)
    assert ("\n\nwarning: the rows of " in env.explain()) == bool(named)


def test_a_look_leaves_nothing_that_dangles() -> None:
    env = pipeline(looked_at)
    assert advice(env) is None


@pytest.mark.parametrize("start", ["execute", "execute_async", "staged_job_graph", "submission"])
def test_sources_alone_are_no_job(start: str) -> None:
    env = pipeline(lambda rows: rows.name("unread"))
    with pytest.raises(ConfigError, match=r"the pipeline reads 'unread' and does nothing with the rows"):
        getattr(env, start)()
