"""Puts a task together: its channels, partitions, operators and context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from unistream.base.config import BUFFER_TIMEOUT, Configuration
from unistream.base.errors import ProtocolError
from unistream.base.ids import TaskManagerId
from unistream.model.chain import Chain
from unistream.model.messages import ChannelDescriptor, SplitRequested, TaskDeployment
from unistream.port.operator import Operator, SourceOperatorSpec
from unistream.port.transport import DataClient
from unistream.worker.chain import OperatorChain
from unistream.worker.channels import InputChannel, LocalInputChannel, RemoteInputChannel
from unistream.worker.finished_chain import FinishedChain, TaskChain
from unistream.worker.gates import Gate, InputGates
from unistream.worker.mailbox import Mailbox
from unistream.worker.operator_context import ContextFactory
from unistream.worker.partition import ResultPartition
from unistream.worker.partition_registry import PartitionRegistry
from unistream.worker.source_operator import SourceOperator
from unistream.worker.task import StreamTask
from unistream.worker.task_environment import SourceLinks, TaskCounters, TaskEnvironment


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNetwork:
    """How the tasks of one process reach others.

    Attributes:
        task_manager: This process; channels to it are handed over by reference.
    """

    task_manager: TaskManagerId
    registry: PartitionRegistry
    data_client: DataClient


def build_task(
    deployment: TaskDeployment,
    chain: Chain,
    *,
    environment: TaskEnvironment,
    network: TaskNetwork,
    mailbox: Mailbox,
) -> StreamTask:
    """A task in state CREATED; its partitions are registered, nothing is opened.

    Raises:
        ProtocolError: the chain is not that of the deployed vertex.
    """
    _check_matches(deployment, chain)
    counters = TaskCounters()
    partitions = _partitions(deployment, environment, mailbox)
    inputs = InputGates(_gates(deployment, network), mailbox.wake)
    source: SourceOperator | None = None
    operators: TaskChain
    if deployment.restore is not None and deployment.restore.finished:
        operators = FinishedChain(partitions)
    else:
        head = chain.nodes[0].operator
        if isinstance(head, SourceOperatorSpec):
            source = SourceOperator(head, _links(deployment, environment, mailbox, counters))
        by_edge = {partition.edge: partition for partition in partitions}
        where = f"subtask {deployment.attempt.index + 1}/{deployment.vertex.parallelism}"
        operators = OperatorChain(chain, source or cast(Operator, head), by_edge, where)
    task = StreamTask(
        deployment,
        chain=operators,
        source=source,
        inputs=inputs,
        partitions=partitions,
        contexts=ContextFactory(deployment, environment, counters),
        environment=environment,
        mailbox=mailbox,
    )
    for partition in partitions:
        network.registry.register(deployment.attempt, partition)
    return task


def _check_matches(deployment: TaskDeployment, chain: Chain) -> None:
    deployed = [operator.uid for operator in deployment.vertex.operators]
    packed = [node.uid for node in chain.nodes]
    if deployed != packed:
        raise ProtocolError(
            f"vertex {deployment.vertex.name!r} is deployed with operators {deployed}, "
            f"but the artifact holds {packed}"
        )


def _partitions(
    deployment: TaskDeployment, environment: TaskEnvironment, mailbox: Mailbox
) -> list[ResultPartition]:
    timeout_ms = Configuration(deployment.config).get(BUFFER_TIMEOUT)
    return [
        ResultPartition(
            descriptor,
            deployment.attempt.index,
            clock=environment.clock,
            buffer_timeout_ms=timeout_ms,
            on_room=mailbox.wake,
        )
        for descriptor in deployment.partitions
    ]


def _gates(deployment: TaskDeployment, network: TaskNetwork) -> list[Gate]:
    return [
        Gate(gate.input_index, tuple(_channel(channel, network) for channel in gate.channels))
        for gate in deployment.gates
    ]


def _channel(channel: ChannelDescriptor, network: TaskNetwork) -> InputChannel:
    if channel.task_manager == network.task_manager:
        return LocalInputChannel(channel, network.registry)
    return RemoteInputChannel(channel, network.data_client)


def _links(
    deployment: TaskDeployment, environment: TaskEnvironment, mailbox: Mailbox, counters: TaskCounters
) -> SourceLinks:
    return SourceLinks(
        wake_task=mailbox.wake,
        request_split=lambda: environment.report(SplitRequested(attempt=deployment.attempt)),
        counters=counters,
    )
