"""The end of a bucket at a chain: given to an operator that sorts, and to no other."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unistream.base.errors import ProtocolError
from unistream.base.ids import OperatorUid
from unistream.model.chain import Chain, ChainNode
from unistream.model.elements import Batch, EndOfBucket
from unistream.operator.common import BaseOperator
from unistream.worker.task.chain import FinishedChain, OperatorChain


class Sorts(BaseOperator):
    def __init__(self) -> None:
        self.ended: list[tuple[int, int]] = []

    def end_bucket(self, number: int, count: int) -> None:
        self.ended.append((number, count))


def chain_of(operator: BaseOperator) -> OperatorChain:
    node = ChainNode(uid=OperatorUid("o"), name="o", operator=operator)
    return OperatorChain(Chain(nodes=(node,)), (operator,), {}, "subtask 1/1")


def test_an_operator_that_sorts_hears_of_it() -> None:
    operator = Sorts()
    chain_of(operator).end_bucket(EndOfBucket(3, 16))
    assert operator.ended == [(3, 16)]


def test_for_another_operator_it_is_a_fault_of_ours() -> None:
    with pytest.raises(ProtocolError, match="does not sort its rows"):
        chain_of(BaseOperator()).end_bucket(EndOfBucket(3, 16))


def test_a_chain_that_had_finished_before_its_savepoint_has_nothing_to_sort() -> None:
    chain = FinishedChain([])
    chain.end_bucket(EndOfBucket(3, 16))
    with pytest.raises(ProtocolError, match="restored as finished"):
        chain.process_batch(Batch(pa.record_batch({"k": [1]})), 0)
