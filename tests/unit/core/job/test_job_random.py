"""A job among random faults: safe at every step, and at its end as soon as the faults stop."""

from __future__ import annotations

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize
from msgspec import structs

from tests.unit.core.cluster import (
    EVERY_2_S,
    Cluster,
    enriched,
    grouped,
    job_graph,
    pipelines,
    settings,
    stages,
)
from tests.unit.core.job.among_faults import AmongFaults
from unistream.core import contract
from unistream.model.graph import JobGraph, JobType
from unistream.model.partition_type import PartitionType
from unistream.model.resources import ResourceProfile

MANY = EVERY_2_S | {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "execution.checkpointing.tolerable-failed-checkpoints": "3",
}


ADAPTIVE = {"jobmanager.scheduler": "adaptive"}


def graph_is_staged(graph: JobGraph) -> bool:
    return any(edge.partition.is_blocking for edge in graph.edges)


class JobAmongFaults(AmongFaults):
    """Pipelines of many shapes."""

    @initialize(
        shape=st.sampled_from(
            (
                "joined",
                "pipelines",
                "stages",
                "chain of stages",
                "streaming stages",
                "enriched",
                "groups",
                "unlike groups",
            )
        ),
        bounded=st.booleans(),
        pull=st.booleans(),
        checkpointing=st.booleans(),
        adaptive=st.booleans(),
        strategy=st.sampled_from(("pipelined-region", "eager", "lazy-from-sources")),
        at_once=st.integers(1, 3),
    )
    def start(
        self,
        *,
        shape: str,
        bounded: bool,
        pull: bool,
        checkpointing: bool,
        adaptive: bool,
        strategy: str,
        at_once: int,
    ) -> None:
        config = dict(MANY if checkpointing else {"restart-strategy.type": "fixed-delay"})
        config |= ADAPTIVE if adaptive else {}
        config |= {"execution.checkpointing.max-concurrent-checkpoints": str(at_once)}
        graph = job_graph(bounded=bounded, pull=pull)
        if shape == "pipelines":
            graph = pipelines(bounded=bounded, pull=pull)
        elif shape == "stages":
            bounded, graph = True, stages(pull=pull)
        elif shape == "chain of stages":
            bounded, graph = True, pipelines(bounded=True, partition=PartitionType.BLOCKING, pull=pull)
        elif shape == "streaming stages":
            bounded, graph = True, stages(pull=pull, job_type=JobType.STREAMING)
        elif shape == "enriched":
            graph = enriched(bounded=bounded)
        elif shape == "groups":
            graph = grouped(job_graph(bounded=bounded, pull=pull), count="b", sink="c")
        elif shape == "unlike groups":
            big, small = ResourceProfile(memory_mb=2), ResourceProfile(memory_mb=1)
            graph = grouped(job_graph(bounded=bounded, pull=pull), count="b", sink="c")
            graph = structs.replace(graph, profiles={"b": big, "c": small})
        if strategy != "eager" or not graph_is_staged(graph):
            config |= {"jobmanager.scheduling-strategy": strategy}
        self.bounded = bounded
        self.cluster = Cluster(graph, settings(config))
        self.cluster.handle(contract.Started())


class TestAJobAmongFaults(JobAmongFaults.TestCase):  # type: ignore[misc]  # hypothesis makes the class
    settings = hypothesis_settings(
        max_examples=500, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )


@given(order=st.lists(st.integers(0, 100), max_size=200), pull=st.booleans())
@hypothesis_settings(max_examples=25, deadline=None)
def test_without_faults_every_order_ends_with_every_split_read_once(order: list[int], pull: bool) -> None:
    cluster = Cluster(job_graph(pull=pull), settings())
    cluster.handle(contract.Started())
    for choice in order:
        actions = cluster.enabled()
        if actions:
            actions[choice % len(actions)][1]()
    cluster.run_to_end()
    assert cluster.ended == contract.JobEnded(state="FINISHED")
    assert cluster.machine.view().restarts == 0
