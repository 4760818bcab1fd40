"""A scripted cluster whose job runs, and its recovery."""

from __future__ import annotations

from tests.unit.core.cluster import EVERY_2_S, Cluster, settings
from unistream.core import contract
from unistream.model.graph import JobGraph

FIXED = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "100"}


def running(graph: JobGraph, config: dict[str, str] | None = None) -> Cluster:
    cluster = Cluster(graph, settings((EVERY_2_S | FIXED) if config is None else config))
    cluster.handle(contract.Started())
    cluster.settle()
    return cluster


def recover(cluster: Cluster) -> None:
    cluster.settle()
    cluster.fire(contract.TimerKind.RESTART_DELAY)
    cluster.settle()
