"""Pipelines whose graphs cannot run; the command line runs them from this folder."""

from __future__ import annotations

import os

import unistream as us
from unistream.model.stream_graph import StreamEdge

HEAVY = us.SlotSharingGroup("heavy", cpu_cores=1, task_memory="64 mb")
HUGE = us.SlotSharingGroup("heavy", cpu_cores=100_000, task_memory="64 mb")


def numbers(env: us.Environment, *, bounded: bool = True) -> us.DataStream:
    source = us.DatagenSource({"id": us.datagen.Sequential()}, rows=100 if bounded else None, bounded=bounded)
    return env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")


def to_lake(stream: us.DataStream) -> None:
    stream.sink_to(us.DeltaSink(os.environ["LAKE"])).uid("lake")


def good(env: us.Environment) -> None:
    to_lake(numbers(env).rebalance())


def endless(env: us.Environment) -> None:
    to_lake(numbers(env, bounded=False).exchange_mode(us.StreamExchangeMode.BATCH).rebalance())


def hybrid(env: us.Environment) -> None:
    to_lake(numbers(env).exchange_mode(us.StreamExchangeMode.HYBRID_FULL).rebalance())


def unknown_group(env: us.Environment) -> None:
    env.register_slot_sharing_group(HEAVY)
    to_lake(numbers(env).slot_sharing_group("hevy"))


def unused_profile(env: us.Environment) -> None:
    env.register_slot_sharing_group(HEAVY)
    to_lake(numbers(env))


def huge(env: us.Environment) -> None:
    to_lake(numbers(env).slot_sharing_group(HUGE))


def apart(env: us.Environment) -> None:
    first = numbers(env).co_location_group("together")
    stored = first.exchange_mode(us.StreamExchangeMode.BATCH).rebalance()
    to_lake(stored.filter(us.col("id") > 5).uid("filter").co_location_group("together"))


def unequal(env: us.Environment) -> None:
    first = numbers(env).co_location_group("together").rebalance()
    to_lake(first.filter(us.col("id") > 5).uid("filter").set_parallelism(2).co_location_group("together"))


class Parallel(us.FileSink):
    """Each writer has a committer, where there must be one."""

    global_committer = False  # type: ignore[assignment]


def committers(env: us.Environment) -> None:
    numbers(env).sink_to(Parallel(os.environ["LAKE"])).uid("lake")


def cycle(env: us.Environment) -> None:
    """Past the API, which has no way to say it."""
    stream = numbers(env).filter(us.col("id") > 5).uid("first").filter(us.col("id") > 6).uid("second")
    env._builder.graph.edges.append(StreamEdge(source=2, target=1))
    to_lake(stream)
