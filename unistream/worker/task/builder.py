"""Puts a task together: its channels, partitions, operators and context."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import cast

from unistream.base.config import BUFFER_TIMEOUT, Configuration
from unistream.base.errors import ProtocolError
from unistream.base.ids import TaskManagerId
from unistream.core.task import BarrierSettings, CombinedWatermark
from unistream.model.chain import Chain
from unistream.model.messages import GateDescriptor, PartitionDescriptor, SplitRequested, TaskDeployment
from unistream.port.operator import Operator, SourceOperatorSpec
from unistream.port.transport import DataClient
from unistream.worker.exchange import (
    BlockingPartitions,
    EndedPartitions,
    Gate,
    InputChannel,
    InputGates,
    LocalInputChannel,
    NetworkMemory,
    OutputPartition,
    PartitionRegistry,
    RemoteInputChannel,
    ResultPartition,
)
from unistream.worker.task.background import BackgroundWork
from unistream.worker.task.chain import OperatorChain
from unistream.worker.task.environment import SourceLinks, TaskCounters, TaskEnvironment
from unistream.worker.task.finished_chain import FinishedChain, TaskChain
from unistream.worker.task.mailbox import Mailbox
from unistream.worker.task.operator_context import ContextFactory
from unistream.worker.task.output_room import OutputRoom
from unistream.worker.task.source_operator import SourceOperator
from unistream.worker.task.task import StreamTask


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNetwork:
    """How the tasks of one process reach others.

    Attributes:
        task_manager: This process; channels to it are handed over by reference.
        blocking: Where blocking partitions go; None: nowhere, and none may be produced.
        memory: For what waits between tasks.
        combine: Makes what combines the watermarks of a task's logical inputs, so many.
    """

    task_manager: TaskManagerId
    registry: PartitionRegistry
    memory: NetworkMemory
    blocking: BlockingPartitions | None = None
    data_client: DataClient
    combine: Callable[[int], CombinedWatermark] = CombinedWatermark


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
        Transient: there is not enough network memory.
    """
    _check_matches(deployment, chain)
    counters = TaskCounters()
    with ExitStack() as undo:
        partitions = _partitions(deployment, environment, network, mailbox, undo)
        inputs = _inputs(deployment, environment, network, mailbox, undo)
        undo.pop_all()
    room = OutputRoom(partitions, mailbox, counters, environment.clock, may_block=environment.may_block)
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
        contexts=ContextFactory(
            deployment,
            environment,
            counters,
            room.wait,
            BackgroundWork(environment.commits or environment.executor, mailbox),
        ),
        environment=environment,
        mailbox=mailbox,
    )
    for partition in partitions:
        if isinstance(partition, ResultPartition):
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
    deployment: TaskDeployment,
    environment: TaskEnvironment,
    network: TaskNetwork,
    mailbox: Mailbox,
    undo: ExitStack,
) -> list[OutputPartition]:
    timeout_ms = Configuration(deployment.config).get(BUFFER_TIMEOUT)
    partitions: list[OutputPartition] = []
    for descriptor in deployment.partitions:
        if descriptor.type.is_blocking:
            partitions.append(_blocking(deployment, descriptor, network))
            continue
        memory = network.memory.partition(
            f"the output of {deployment.attempt} on edge {descriptor.edge}", len(descriptor.consumers)
        )
        undo.callback(memory.close)
        partitions.append(
            ResultPartition(
                descriptor,
                deployment.attempt.index,
                clock=environment.clock,
                buffer_timeout_ms=timeout_ms,
                on_room=mailbox.wake,
                memory=memory,
            )
        )
    return partitions


def _blocking(
    deployment: TaskDeployment, descriptor: PartitionDescriptor, network: TaskNetwork
) -> OutputPartition:
    if network.blocking is None:
        raise ProtocolError(f"edge {descriptor.edge} is blocking, but this process stores no partitions")
    return network.blocking.create(deployment.attempt, descriptor)


def _inputs(
    deployment: TaskDeployment,
    environment: TaskEnvironment,
    network: TaskNetwork,
    mailbox: Mailbox,
    undo: ExitStack,
) -> InputGates:
    return InputGates(
        _gates(deployment, network, undo),
        mailbox.wake,
        clock=environment.clock,
        new_handler=BarrierSettings.of(Configuration(deployment.config)).handler,
        consumer=deployment.attempt.index,
        combine=network.combine,
    )


def _gates(deployment: TaskDeployment, network: TaskNetwork, undo: ExitStack) -> list[Gate]:
    return [_gate(gate, f"{deployment.attempt}", network, undo) for gate in deployment.gates]


def _gate(gate: GateDescriptor, reader: str, network: TaskNetwork, undo: ExitStack) -> Gate:
    """Those to other processes share the credits of the gate."""
    remote = sum(not c.ended and c.task_manager != network.task_manager for c in gate.channels)
    memory = network.memory.gate(f"input {gate.input_index} of {reader}", remote) if remote else None
    streams = network.data_client.gate() if remote else None
    channels: list[InputChannel] = []
    for descriptor in gate.channels:
        if descriptor.ended:
            channels.append(LocalInputChannel(descriptor, EndedPartitions()))
            continue
        if memory is None or streams is None or descriptor.task_manager == network.task_manager:
            channels.append(LocalInputChannel(descriptor, network.registry))
            continue
        remote -= 1
        channel = RemoteInputChannel(descriptor, streams, memory, remote)
        undo.callback(channel.close)
        channels.append(channel)
    return Gate(gate.input_index, tuple(channels), memory, streams)


def _links(
    deployment: TaskDeployment, environment: TaskEnvironment, mailbox: Mailbox, counters: TaskCounters
) -> SourceLinks:
    return SourceLinks(
        wake_task=mailbox.wake,
        request_split=lambda: environment.report(SplitRequested(attempt=deployment.attempt)),
        counters=counters,
    )
