"""What a user can say about tasks, slots and exchanges, and what the job graph makes of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.modes import STREAMING
from unistream.api.stream import DataStream
from unistream.base.errors import ConfigError
from unistream.model.graph import JobType
from unistream.model.resources import ResourceProfile
from unistream.model.stream_graph import ChainingStrategy

ROWS = pa.table({"k": ["a"], "at": pa.array([1], pa.timestamp("ms")), "n": [1]})
EVENT_TIME = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
HEAVY = us.SlotSharingGroup("heavy", cpu_cores=2, task_memory="512 mb")
OTHER = us.SlotSharingGroup("heavy", cpu_cores=1, task_memory="1 mb")
BATCH = us.StreamExchangeMode.BATCH


def rows(env: us.Environment) -> DataStream:
    return env.from_source(us.StaticSource(ROWS), EVENT_TIME, "rows")


def vertices(env: us.Environment) -> list[str]:
    return [vertex.name for vertex in env.job_graph()[0].vertices]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(lambda s: s.filter(us.col("n") > 0).print(), ["rows -> filter -> print"], id="as it is"),
        pytest.param(
            lambda s: s.filter(us.col("n") > 0).start_new_chain().print(),
            ["rows", "filter -> print"],
            id="start_new_chain",
        ),
        pytest.param(
            lambda s: s.filter(us.col("n") > 0).disable_chaining().print(),
            ["rows", "filter", "print"],
            id="disable_chaining",
        ),
        pytest.param(
            lambda s: s.filter(us.col("n") > 0).print().start_new_chain(),
            ["rows -> filter", "print"],
            id="a sink starts a chain",
        ),
        pytest.param(
            lambda s: s.filter(us.col("n") > 0).slot_sharing_group("x").print(),
            ["rows", "filter -> print"],
            id="slot_sharing_group",
        ),
    ],
)
def test_chaining(build: Callable[[DataStream], object], expected: list[str]) -> None:
    env = us.Environment()
    build(rows(env))
    assert vertices(env) == expected
    assert vertices(env.disable_operator_chaining()) == ["rows", "filter", "print"]


def test_a_sink_without_chaining_is_one_task_for_writer_and_committer_each(tmp_path: Any) -> None:
    env = us.Environment()
    sink = rows(env).sink_to(us.CollectSink(str(tmp_path))).disable_chaining().slot_sharing_group("x")
    assert sink.name("out") is sink
    graph = env.stream_graph()
    assert [(node.chaining, node.slot_sharing_group) for node in graph.nodes] == [
        (ChainingStrategy.ALWAYS, None),
        (ChainingStrategy.NEVER, "x"),
        (ChainingStrategy.NEVER, "x"),
    ]


def test_a_group_that_is_named_later_is_inherited_too() -> None:
    env = us.Environment()
    source = rows(env)
    source.filter(us.col("n") > 0).print()
    source.slot_sharing_group(HEAVY)
    graph, _ = env.job_graph()
    assert [vertex.slot_sharing_group for vertex in graph.vertices] == ["heavy"]
    assert graph.profiles == {"heavy": ResourceProfile(cpu_cores=2, memory_mb=512)}


def test_a_pre_aggregation_stays_before_a_stored_exchange() -> None:
    env = us.Environment()
    keyed = rows(env).exchange_mode(BATCH).key_by("k")
    keyed.window(us.TumblingEventTimeWindows.of("1 h")).aggregate(n=us.count()).print()
    graph, _ = env.job_graph()
    assert [vertex.name.split(" -> ")[-1] for vertex in graph.vertices] == ["pre-aggregate", "print"]
    assert [(edge.ship.value, edge.partition.value) for edge in graph.edges] == [("hash", "BLOCKING")]


def test_exchange_mode_and_shipping_are_said_in_any_order() -> None:
    env = us.Environment(STREAMING)
    rows(env).rebalance().exchange_mode(BATCH).print()
    rows(env).exchange_mode(BATCH).rebalance().print()
    rows(env).exchange_mode(BATCH).exchange_mode(us.StreamExchangeMode.UNDEFINED).rebalance().print()
    graph, _ = env.job_graph()
    assert [edge.partition.value for edge in graph.edges] == ["BLOCKING", "BLOCKING", "PIPELINED_BOUNDED"]


def test_checkpoints_that_could_never_complete_are_off_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = us.Environment({"execution.checkpointing.interval": "2 s", "execution.runtime-mode": "BATCH"})
    rows(env).rebalance().print()
    with caplog.at_level(logging.WARNING):
        env.job_graph()
    assert "event=checkpoints_disabled" in caplog.text
    assert "execution.checkpointing.interval has no effect" in caplog.text


def test_a_streaming_job_with_a_blocking_exchange_has_checkpoints(caplog: pytest.LogCaptureFixture) -> None:
    env = us.Environment({**STREAMING, "execution.checkpointing.interval": "2 s"})
    rows(env).exchange_mode(BATCH).rebalance().print()
    with caplog.at_level(logging.WARNING):
        graph, _ = env.job_graph()
    assert graph.config["execution.checkpointing.interval"] == "2 s"
    assert not caplog.text, "they begin when what is stored has been read"


def test_a_number_sign_elsewhere_is_a_letter_like_others() -> None:
    env = us.Environment({"execution.runtime-mode": "BATCH"})
    rows(env).slot_sharing_group("stage#1").print()
    assert {vertex.slot_sharing_group for vertex in env.job_graph()[0].vertices} == {"stage#1"}


def test_automatic_is_batch_for_bounded_sources() -> None:
    env = us.Environment({"execution.runtime-mode": "AUTOMATIC"})
    rows(env).print()
    assert env.job_graph()[0].job_type is JobType.BATCH
    assert env.explain_json()["type"] == "BATCH"


@pytest.mark.parametrize(
    ("build", "text"),
    [
        pytest.param(
            lambda env: rows(env).slot_sharing_group(""), "slot sharing group needs a name", id="no name"
        ),
        pytest.param(
            lambda env: rows(env).slot_sharing_group("default#1"),
            "'default#1': names that begin with 'default#' are reserved for the parts of the default group",
            id="a name of the runtime's own",
        ),
        pytest.param(
            lambda _: us.SlotSharingGroup("default#x", 1, "1 mb"),
            "'default#x': names that begin with 'default#'",
            id="a profile under a name of the runtime's own",
        ),
        pytest.param(
            lambda _: us.SlotSharingGroup("x", "2", "1 mb"),
            "cpu_cores '2' is not a number",
            id="cores as text",
        ),
        pytest.param(
            lambda _: us.SlotSharingGroup("x", True, "1 mb"), "cpu_cores True is not a number", id="no cores"
        ),
        pytest.param(
            lambda _: us.SlotSharingGroup("x", 1, 100),
            "task_memory 100 is not an amount such as '512 mb'",
            id="memory as a number",
        ),
        pytest.param(
            lambda _: us.SlotSharingGroup("x", cpu_cores=1),
            "'x': cpu_cores and task_memory",
            id="half a profile",
        ),
        pytest.param(
            lambda _: us.SlotSharingGroup("x", cpu_cores=0, task_memory="1 mb"),
            "'x': cpu_cores 0 is not above 0",
            id="no cores",
        ),
        pytest.param(
            lambda _: us.SlotSharingGroup("x", cpu_cores=1, task_memory="much"),
            "'x': task_memory 'much' is not a size",
            id="no size",
        ),
        pytest.param(
            lambda _: us.SlotSharingGroup("x", cpu_cores=1, task_memory="0 mb"),
            "'x': task_memory",
            id="no memory",
        ),
        pytest.param(
            lambda env: rows(env).slot_sharing_group(HEAVY).print().slot_sharing_group(OTHER),
            "'heavy' is given two different resource profiles",
            id="two profiles",
        ),
        pytest.param(
            lambda env: env.register_slot_sharing_group("heavy"), "takes a SlotSharingGroup", id="just a name"
        ),
        pytest.param(
            lambda env: (
                rows(env.register_slot_sharing_group(HEAVY)).slot_sharing_group("hevy").print(),
                env.job_graph(),
            ),
            "operator 'rows': slot sharing group 'hevy' is unknown; did you mean 'heavy'",
            id="not registered",
        ),
        pytest.param(
            lambda env: (rows(env.register_slot_sharing_group(HEAVY)).print(), env.job_graph()),
            "slot sharing group 'heavy' has a resource profile, but no operator is in it",
            id="registered in vain",
        ),
        pytest.param(lambda env: rows(env).exchange_mode("BATCH"), "takes a StreamExchangeMode", id="mode"),
        pytest.param(
            lambda env: rows(env).exchange_mode(BATCH).set_parallelism(2),
            "an exchange, not an operator",
            id="exchange",
        ),
        pytest.param(lambda env: rows(env).co_location_group(""), "needs a name", id="co-location"),
        pytest.param(
            lambda env: rows(env).co_location_group(3), "is text, not 3", id="a number for co-location"
        ),
        pytest.param(
            lambda env: rows(env).slot_sharing_group(5), "a name or a SlotSharingGroup, not 5", id="a number"
        ),
        pytest.param(
            lambda env: (rows(env).print(), env.job_graph(5)),
            "name of a job is text, not 5",
            id="a job's name",
        ),
        pytest.param(
            lambda env: (
                rows(env)
                .co_location_group("c")
                .rebalance()
                .filter(us.col("n") > 0)
                .set_parallelism(3)
                .co_location_group("c")
                .print(),
                env.job_graph(),
            ),
            "co-location of 'rows' and 'filter': their parallelism is 1 and 3",
            id="co-location of unequals",
        ),
    ],
)
def test_refused(build: Callable[[us.Environment], object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        build(us.Environment())
