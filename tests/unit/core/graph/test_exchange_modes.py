"""Streaming and batch: which exchanges are stored, and what a batch job does without."""

from __future__ import annotations

import pytest

from tests.modes import STREAMING
from tests.unit.core.graphs import UNBOUNDED, edges, job_of, line
from unistream.base.errors import ConfigError
from unistream.core.graph import why_no_checkpoints
from unistream.model.graph import JobType, Ship
from unistream.model.partition_type import PartitionType
from unistream.model.resources import ResourceProfile
from unistream.model.stream_graph import (
    GlobalStreamExchangeMode,
    StreamEdge,
    StreamExchangeMode,
)

BLOCKING, PIPELINED = PartitionType.BLOCKING, PartitionType.PIPELINED_BOUNDED
MODE, SHUFFLE = "execution.runtime-mode", "execution.batch-shuffle-mode"
BATCH = {MODE: "BATCH"}


@pytest.mark.parametrize(
    ("config", "source", "job_type", "partition"),
    [
        pytest.param({}, {}, JobType.BATCH, BLOCKING, id="automatic is the default"),
        pytest.param(STREAMING, {}, JobType.STREAMING, PIPELINED, id="a stream although it is bounded"),
        pytest.param(BATCH, {}, JobType.BATCH, BLOCKING, id="batch stores results"),
        pytest.param({MODE: "batch"}, {}, JobType.BATCH, BLOCKING, id="in any case"),
        pytest.param(
            {**BATCH, SHUFFLE: "ALL_EXCHANGES_PIPELINED"}, {}, JobType.BATCH, PIPELINED, id="pipelined batch"
        ),
        pytest.param({MODE: "AUTOMATIC"}, {}, JobType.BATCH, BLOCKING, id="automatic, bounded"),
        pytest.param(
            {MODE: "AUTOMATIC"},
            {"source": UNBOUNDED},
            JobType.STREAMING,
            PIPELINED,
            id="automatic, unbounded",
        ),
        pytest.param(
            {**STREAMING, SHUFFLE: "ALL_EXCHANGES_BLOCKING"},
            {},
            JobType.STREAMING,
            PIPELINED,
            id="not asked in streaming",
        ),
        pytest.param(
            {**STREAMING, SHUFFLE: "ALL_EXCHANGES_HYBRID_FULL"},
            {},
            JobType.STREAMING,
            PIPELINED,
            id="hybrid not asked",
        ),
    ],
)
def test_runtime_mode(
    config: dict[str, str], source: dict[str, object], job_type: JobType, partition: PartitionType
) -> None:
    job = job_of(line(*edges(Ship.HASH, Ship.FORWARD), source=source), config=config)
    assert job.job_type is job_type
    assert [edge.partition for edge in job.edges] == [partition]
    assert [vertex.name for vertex in job.vertices] == ["source", "a -> b"]


@pytest.mark.parametrize("mode", GlobalStreamExchangeMode, ids=lambda mode: mode.value)
def test_global_exchange_modes(mode: GlobalStreamExchangeMode) -> None:
    pipelined = {
        GlobalStreamExchangeMode.ALL_EDGES_BLOCKING: set[Ship](),
        GlobalStreamExchangeMode.FORWARD_EDGES_PIPELINED: {Ship.FORWARD},
        GlobalStreamExchangeMode.POINTWISE_EDGES_PIPELINED: {Ship.FORWARD, Ship.RESCALE},
        GlobalStreamExchangeMode.ALL_EDGES_PIPELINED: set(Ship),
    }[mode]
    for ship in Ship:
        graph = line(*edges(ship, ship), graph={"exchange_mode": mode})
        job = job_of(graph, config=BATCH, chaining=False)
        assert {edge.partition for edge in job.edges} == {PIPELINED if ship in pipelined else BLOCKING}


@pytest.mark.parametrize(
    ("mode", "config", "expected"),
    [
        (StreamExchangeMode.BATCH, {}, BLOCKING),
        (StreamExchangeMode.PIPELINED, BATCH, PIPELINED),
        (StreamExchangeMode.UNDEFINED, STREAMING, PIPELINED),
        (StreamExchangeMode.UNDEFINED, BATCH, BLOCKING),
    ],
)
def test_an_exchange_may_say_it_itself(
    mode: StreamExchangeMode, config: dict[str, str], expected: PartitionType
) -> None:
    exchange = StreamEdge(source=1, target=2, ship=Ship.REBALANCE, partition=mode.partition)
    job = job_of(line(*edges(None), exchange), config=config)
    assert [edge.partition for edge in job.edges] == [expected]


def test_profiles_make_every_exchange_of_a_batch_job_blocking() -> None:
    graph = line(
        *edges(Ship.HASH, None),
        graph={"profiles": {"default": ResourceProfile(cpu_cores=1, memory_mb=64)}},
    )
    config = {**BATCH, SHUFFLE: "ALL_EXCHANGES_PIPELINED"}
    assert [edge.partition for edge in job_of(graph, config=config).edges] == [BLOCKING]


def test_stages_of_a_batch_job_do_not_share_slots() -> None:
    profile = ResourceProfile(cpu_cores=1, memory_mb=64)
    graph = line(
        *edges(Ship.HASH, Ship.HASH), b={"slot_sharing_group": "x"}, graph={"profiles": {"default": profile}}
    )
    job = job_of(graph, config=BATCH)
    assert [vertex.slot_sharing_group for vertex in job.vertices] == ["default#1", "default#2", "x"]
    assert job.profiles == {"default#1": profile, "default#2": profile}
    assert {vertex.slot_sharing_group for vertex in job_of(line(*edges(Ship.HASH, None))).vertices} == {
        "default"
    }


def test_stages_that_are_pipelined_share_slots_in_batch_too() -> None:
    job = job_of(line(*edges(Ship.HASH, Ship.HASH)), config={**BATCH, SHUFFLE: "ALL_EXCHANGES_PIPELINED"})
    assert {vertex.slot_sharing_group for vertex in job.vertices} == {"default"}


def test_a_batch_job_has_no_checkpoints() -> None:
    config = {"execution.checkpointing.interval": "2 s", **BATCH}
    job = job_of(line(*edges(Ship.HASH, None)), config=config)
    assert job.config == BATCH
    assert why_no_checkpoints(job) == "it is a BATCH job"


def test_a_streaming_job_may_have_checkpoints_whatever_its_exchanges() -> None:
    plain = job_of(line(*edges(Ship.HASH, None)))
    stored = job_of(line(*edges(Ship.HASH, Ship.HASH, partition=BLOCKING)))
    assert why_no_checkpoints(plain) is None
    assert why_no_checkpoints(stored) is None


@pytest.mark.parametrize("mode", ["ALL_EXCHANGES_HYBRID_FULL", "ALL_EXCHANGES_HYBRID_SELECTIVE"])
def test_hybrid_modes_are_refused_by_name(mode: str) -> None:
    with pytest.raises(ConfigError, match=f"execution.batch-shuffle-mode={mode}: hybrid.*not supported"):
        job_of(line(), config={**BATCH, SHUFFLE: mode})


def test_a_batch_job_over_a_source_that_never_ends_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"execution.runtime-mode=BATCH: source 'source' never ends"):
        job_of(line(source={"source": UNBOUNDED}), config=BATCH)
