"""What is refused at submission, by the name of the operator and the option; by the client and the master."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from tests.unit.core.graphs import BOUNDED, UNBOUNDED, edges, job_of, line, node
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import VertexId
from unistream.core.graph import check, check_measures, check_profiles
from unistream.core.memory import slot_profile
from unistream.model.graph import JobGraph, JobType, Ship
from unistream.model.partition_type import PartitionType
from unistream.model.resources import ResourceProfile
from unistream.model.stream_graph import StreamEdge, StreamGraph

BLOCKING = PartitionType.BLOCKING


@pytest.mark.parametrize(
    ("graph", "how", "text"),
    [
        pytest.param(
            line(*edges(None, None), StreamEdge(source=2, target=1)),
            {},
            r"operators '(a' -> 'b' -> 'a|b' -> 'a' -> 'b)' form a cycle; a job has no feedback edges",
            id="a cycle",
        ),
        pytest.param(
            line(*edges(None, None), StreamEdge(source=1, target=1)),
            {},
            "'a' -> 'a' form a cycle",
            id="a loop",
        ),
        pytest.param(
            line(a={"slot_sharing_group": "hevy"}, graph={"registered_groups": frozenset({"heavy"})}),
            {},
            r"'a': slot sharing group 'hevy' is unknown; did you mean 'heavy'\?.*slot_sharing_group\(",
            id="a group that is not registered",
        ),
        pytest.param(
            line(graph={"profiles": {"gpu": ResourceProfile(cpu_cores=1)}}),
            {},
            "slot sharing group 'gpu' has a resource profile, but no operator is in it.*'default'",
            id="a profile for a group without operators",
        ),
        pytest.param(
            line(graph={"profiles": {"default": ResourceProfile(cpu_cores=-1)}}),
            {},
            "slot sharing group 'default'.*not a valid amount",
            id="a negative profile",
        ),
        pytest.param(
            line(a={"slot_sharing_group": ""}),
            {},
            "operator 'a': slot_sharing_group takes 1",
            id="an empty group",
        ),
        pytest.param(
            line(a={"slot_sharing_group": "default#1"}),
            {},
            "'default#1': names that begin with 'default#'.*choose another name",
            id="a group that the runtime makes itself",
        ),
        pytest.param(
            line(
                *edges(Ship.HASH, Ship.REBALANCE),
                a={"parallelism": 3, "colocation_group": "c"},
                b={"colocation_group": "c"},
            ),
            {},
            "co-location of 'a' and 'b': their parallelism is 3 and 2; .*set_parallelism",
            id="co-location with unequal parallelism",
        ),
        pytest.param(
            line(
                *edges(Ship.HASH),
                StreamEdge(source=1, target=2, ship=Ship.FORWARD, partition=BLOCKING),
                a={"colocation_group": "c"},
                b={"colocation_group": "c"},
            ),
            {},
            "'a', 'b' are strictly co-located, but.*not in one pipelined region",
            id="co-location across regions",
        ),
        pytest.param(
            line(
                *edges(Ship.HASH, Ship.HASH),
                a={"colocation_group": "c"},
                b={"colocation_group": "c", "slot_sharing_group": "x"},
            ),
            {},
            "co-location of 'a' and 'b': their slot sharing groups are 'default' and 'x'",
            id="co-location in two slot sharing groups",
        ),
        pytest.param(line(a={"parallelism": 0}), {}, "'a': parallelism 0 is less than 1", id="parallelism 0"),
        pytest.param(line(a={"parallelism": -4}), {}, "'a': parallelism -4 is less than 1", id="negative"),
        pytest.param(
            line(), {"parallelism": 4097}, "'source': parallelism 4097 is above the limit 4096", id="limit"
        ),
        pytest.param(
            line(b={"max_parallelism": 1}),
            {},
            "'b': parallelism 2 is above max parallelism 1",
            id="inside of a chain",
        ),
        pytest.param(
            line(*edges(None, Ship.HASH, partition=BLOCKING), source={"source": UNBOUNDED}),
            {},
            "exchange 'source' -> 'a': it is blocking.*source 'source' before it never ends",
            id="a blocking exchange behind a source that never ends",
        ),
        pytest.param(
            line(*edges(Ship.HASH, Ship.HASH, partition=PartitionType.HYBRID_FULL)),
            {},
            "exchange 'source' -> 'a': partitions of type HYBRID_FULL are not supported",
            id="a hybrid exchange",
        ),
        pytest.param(
            line(),
            {"config": {"execution.runtime-mode": "BATHC"}},
            "runtime-mode: 'BATHC' is not one",
            id="mode",
        ),
        *(
            pytest.param(line(), {"config": {key: "best"}}, f"{key}: 'best' is not one of", id=key)
            for key in (
                "restart-strategy.type",
                "jobmanager.execution.failover-strategy",
                "jobmanager.scheduling-strategy",
                "jobmanager.scheduler",
            )
        ),
    ],
)
def test_refused_by_the_client(graph: StreamGraph, how: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        job_of(graph, **how)


def test_the_circle_of_a_stored_and_a_pipelined_way_is_refused() -> None:
    graph = StreamGraph(
        nodes=[
            node(0, "s", source=BOUNDED),
            node(1, "t", source=BOUNDED),
            node(2, "x", inputs=2),
            node(3, "y", inputs=2),
        ],
        edges=[
            StreamEdge(source=0, target=2, ship=Ship.HASH, key_columns=("k",)),
            StreamEdge(source=1, target=3, ship=Ship.HASH, key_columns=("k",)),
            StreamEdge(
                source=0, target=3, input_index=1, ship=Ship.HASH, key_columns=("k",), partition=BLOCKING
            ),
            StreamEdge(
                source=1, target=2, input_index=1, ship=Ship.HASH, key_columns=("k",), partition=BLOCKING
            ),
        ],
    )
    with pytest.raises(ConfigError, match=r"could never start.*'s'.*'t'"):
        job_of(graph)


def changed(**fields: Any) -> JobGraph:
    return structs.replace(job_of(line(*edges(Ship.HASH, Ship.HASH))), **fields)


def with_loop(graph: JobGraph) -> JobGraph:
    loop = structs.replace(graph.edges[1], id="x", target=graph.vertices[1].id)
    return structs.replace(graph, edges=(*graph.edges, loop))


def with_vertices(graph: JobGraph, **fields: Any) -> JobGraph:
    return structs.replace(graph, vertices=tuple(structs.replace(v, **fields) for v in graph.vertices))


def with_edges(graph: JobGraph, **fields: Any) -> JobGraph:
    return structs.replace(graph, edges=tuple(structs.replace(e, **fields) for e in graph.edges))


def endless_batch(graph: JobGraph) -> JobGraph:
    source = structs.replace(graph.vertices[0], source=UNBOUNDED)
    return structs.replace(graph, job_type=JobType.BATCH, vertices=(source, *graph.vertices[1:]))


GPU = {"gpu": ResourceProfile(cpu_cores=1)}


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        pytest.param(with_loop, "'a' -> 'a' form a cycle", id="cycle"),
        pytest.param(
            lambda g: structs.replace(g, profiles=GPU), "'gpu' has a resource profile", id="profile"
        ),
        pytest.param(
            lambda g: structs.replace(g, colocations=((VertexId("gone"), g.vertices[0].id),)),
            "vertex 'gone', which does not exist",
            id="co-location",
        ),
        pytest.param(
            lambda g: structs.replace(g, config={"jobmanager.scheduler": "best"}),
            "jobmanager.scheduler: 'best' is not one of",
            id="strategy",
        ),
        pytest.param(
            lambda g: structs.replace(g, config={"no.such.key": "1"}),
            "unknown configuration key 'no.such.key'",
            id="key",
        ),
        pytest.param(
            lambda g: with_vertices(g, slot_sharing_group=""),
            "operator 'source' has an empty slot sharing group",
            id="empty group",
        ),
        pytest.param(endless_batch, "runtime-mode=BATCH: source 'source' never ends", id="batch"),
        pytest.param(
            lambda g: with_edges(g, partition=PartitionType.PIPELINED_APPROXIMATE),
            "PIPELINED_APPROXIMATE are not supported",
            id="partition type",
        ),
        pytest.param(
            lambda g: with_vertices(g, parallelism=0), "'source': parallelism 0 is", id="parallelism"
        ),
    ],
)
def test_refused_by_the_master(edit: Callable[[JobGraph], JobGraph], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check(edit(changed()))


CORES_4, CORES_8 = ResourceProfile(cpu_cores=4), ResourceProfile(cpu_cores=8)
MIB_512, MIB_600 = ResourceProfile(memory_mb=512), ResourceProfile(memory_mb=600)
UNTOLD = ResourceProfile()


@pytest.mark.parametrize(
    ("needs", "share", "largest", "fits"),
    [
        pytest.param(ResourceProfile(cpu_cores=2), CORES_4, CORES_4, True, id="small enough"),
        pytest.param(CORES_8, CORES_4, CORES_4, False, id="too many cores"),
        pytest.param(MIB_600, MIB_512, MIB_512, False, id="too much memory"),
        pytest.param(MIB_600, UNTOLD, MIB_512, False, id="a worker to measure is too small too"),
        pytest.param(MIB_600, CORES_4, CORES_4, True, id="the memory of workers is unspecified"),
        pytest.param(CORES_8, CORES_4, CORES_8, True, id="a larger worker can be started"),
        pytest.param(CORES_8, CORES_8, CORES_4, True, id="it is configured so"),
        pytest.param(CORES_8, UNTOLD, UNTOLD, True, id="nothing is known"),
    ],
)
def test_profiles_against_workers(
    needs: ResourceProfile, share: ResourceProfile, largest: ResourceProfile, fits: bool
) -> None:
    job = job_of(line(a={"slot_sharing_group": "heavy"}, graph={"profiles": {"heavy": needs}}))
    if fits:
        check_profiles(job, share, largest, 1)
    else:
        with pytest.raises(
            ConfigError, match=r"operator 'a -> b': .*group 'heavy' needs .*numberOfTaskSlots"
        ):
            check_profiles(job, share, largest, 1)


@pytest.mark.parametrize(
    ("needs", "config", "text"),
    [
        pytest.param(MIB_512, {}, None, id="the defaults"),
        pytest.param(CORES_8, {"taskmanager.memory.network.min": "300 mb"}, None, id="of any memory"),
        pytest.param(MIB_512, {"taskmanager.memory.network.min": "300 mb"}, None, id="just enough"),
        pytest.param(
            MIB_512,
            {"taskmanager.memory.network.min": "400 mb"},
            "taskmanager.memory.network.",
            id="too little",
        ),
        pytest.param(
            MIB_512,
            {"taskmanager.memory.network.min": "400 mb", "taskmanager.memory.process.size": "4 gb"},
            None,
            id="what there is will do",
        ),
    ],
)
def test_a_profile_of_which_no_worker_can_be_made(
    needs: ResourceProfile, config: dict[str, str], text: str | None
) -> None:
    job = job_of(line(a={"slot_sharing_group": "heavy"}, graph={"profiles": {"heavy": needs}}))
    values = Configuration(config)
    if text is None:
        check_measures(job, values, slot_profile(values, 1))
    else:
        with pytest.raises(
            ConfigError, match=rf"operator 'a -> b': .*group 'heavy' needs 512 MiB.*{text}.*SlotSharingGroup"
        ):
            check_measures(job, values, slot_profile(values, 1))


def test_the_share_of_a_slot_is_what_a_profile_is_compared_with() -> None:
    half = ResourceProfile(cpu_cores=2, memory_mb=500)
    third = ResourceProfile(cpu_cores=4 / 3, memory_mb=333)
    job = job_of(line(graph={"profiles": {"default": ResourceProfile(cpu_cores=1, memory_mb=400)}}))
    check_profiles(job, half, half, 2)
    with pytest.raises(ConfigError, match=r"numberOfTaskSlots=3 a slot has at most .*333 MiB"):
        check_profiles(job, third, third, 3)


def test_the_default_group_of_a_batch_job_is_called_as_the_user_knows_it() -> None:
    job = job_of(
        line(*edges(Ship.HASH, None), graph={"profiles": {"default": CORES_8}}),
        config={"execution.runtime-mode": "BATCH"},
    )
    with pytest.raises(ConfigError, match="slot sharing group 'default' needs 8 cpu cores"):
        check_profiles(job, CORES_4, CORES_4, 1)
