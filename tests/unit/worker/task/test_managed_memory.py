"""The managed memory of a task is shared by the operators that use it, and by no others."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tests.support.harness.task import TaskJob
from tests.unit.worker.numbers import NumberChains, SumByKey, numbers_graph
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid, VertexId
from unistream.base.limits import MIB
from unistream.model.chain import Chain, ChainNode, LocalOutput
from unistream.model.graph import OperatorInfo
from unistream.model.snapshot import OperatorState
from unistream.operator.common import BaseOperator

OF_TASK = 64 * MIB  # see `TaskEnvironment.managed_memory`


class Plain(BaseOperator):
    """Has no use for managed memory."""


class Keeps(Plain):
    """Has."""

    uses_managed_memory = True


class Chained(NumberChains):
    """S ──► one vertex of several operators."""

    def __init__(self, operators: Sequence[BaseOperator]) -> None:
        super().__init__(BaseOperator, BaseOperator, 7)
        last = len(operators) - 1
        self.chain = Chain(
            nodes=tuple(
                ChainNode(
                    uid=OperatorUid(f"K{place}"),
                    name=f"K{place}",
                    operator=operator,
                    outputs=(LocalOutput(target=place + 1),) if place < last else (),
                )
                for place, operator in enumerate(operators)
            )
        )

    def __getitem__(self, vertex: VertexId) -> Chain:
        return self.chain if vertex == "K" else super().__getitem__(vertex)


def job_of(operators: Sequence[BaseOperator]) -> TaskJob:
    chains, graph = Chained(operators), numbers_graph()
    infos = tuple(OperatorInfo(uid=node.uid, name=node.name) for node in chains.chain.nodes)
    vertices = [msgspec.structs.replace(v, operators=infos) if v.id == "K" else v for v in graph.vertices]
    return TaskJob(msgspec.structs.replace(graph, vertices=tuple(vertices)), chains)


@pytest.mark.parametrize(
    ("operators", "shares"),
    [
        pytest.param([Keeps()], [OF_TASK], id="one has all of it"),
        pytest.param([Keeps(), Plain(), Plain()], [OF_TASK, 0, 0], id="others take nothing from it"),
        pytest.param([Keeps(), Plain(), Keeps()], [OF_TASK // 2, 0, OF_TASK // 2], id="equal shares"),
        pytest.param([Plain()], [0], id="nobody uses it"),
    ],
)
def test_operators_that_use_managed_memory_share_it(operators: list[BaseOperator], shares: list[int]) -> None:
    job_of(operators).run()
    assert [operator.context.managed_memory_bytes for operator in operators] == shares


class Forgot(SumByKey):
    """Keeps state, and does not say so."""

    uses_managed_memory = False

    def initialize_state(self, state: OperatorState) -> None:
        with pytest.raises(ConfigError, match=r"'K0' keeps state .* set uses_managed_memory = True"):
            super().initialize_state(state)
        raise ConfigError("refused")


def test_state_without_a_declared_use_is_refused() -> None:
    job = job_of([Forgot({})])
    job.run()
    assert ["refused" in failure.message for failure in job.failures.values()] == [True]
