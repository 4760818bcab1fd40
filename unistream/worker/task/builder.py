"""Builds a task: its channels, partitions, operators and context."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import cast

from unistream.base.config import (
    BATCH_SHUFFLE_HOST_LOCAL,
    BATCH_SHUFFLE_WRITE_BUFFER,
    BUFFER_TIMEOUT,
    Configuration,
)
from unistream.base.errors import ProtocolError
from unistream.base.ids import OperatorUid, TaskManagerId
from unistream.core.task import BarrierSettings, CombinedWatermark
from unistream.model.chain import Chain
from unistream.model.deployment import ChannelDescriptor, GateDescriptor, TaskDeployment
from unistream.model.messages import SplitRequested
from unistream.port.operator import Operator, SourceOperatorSpec
from unistream.port.storage import StateReader
from unistream.port.transport import DataClient
from unistream.worker import exchange
from unistream.worker.task.chain import FinishedChain, OperatorChain
from unistream.worker.task.environment import TaskCounters, TaskEnvironment
from unistream.worker.task.mailbox import Mailbox
from unistream.worker.task.operator_context import ContextFactory
from unistream.worker.task.source_operator import SourceOperator
from unistream.worker.task.task import StreamTask

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNetwork:
    """How the tasks of one process reach others.

    Attributes:
        task_manager: This process; channels within it pass rows by reference.
        blocking: Stores blocking partitions; None: none may be produced.
        memory: For rows between tasks.
        combine: Combines the watermarks of a number of logical inputs.
    """

    task_manager: TaskManagerId
    registry: exchange.PartitionRegistry
    memory: exchange.NetworkMemory
    blocking: exchange.BlockingPartitions | None = None
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
    check_matches(deployment, chain)
    with ExitStack() as undo:
        partitions = _partitions(deployment, environment, network, mailbox, undo)
        channels = [
            _gate(gate, deployment, network, environment.state_reader, undo) for gate in deployment.gates
        ]
        undo.pop_all()
    task = assemble(
        deployment,
        chain,
        gates=channels,
        partitions=partitions,
        environment=environment,
        mailbox=mailbox,
        combine=network.combine,
    )
    for partition in partitions:
        if isinstance(partition, exchange.ResultPartition):
            network.registry.register(deployment.attempt, partition)
    return task


def assemble(
    deployment: TaskDeployment,
    chain: Chain,
    *,
    gates: Sequence[exchange.Gate],
    partitions: Sequence[exchange.OutputPartition],
    environment: TaskEnvironment,
    mailbox: Mailbox,
    combine: Callable[[int], CombinedWatermark] = CombinedWatermark,
) -> StreamTask:
    """A task in state CREATED over channels and partitions that exist."""
    counters = TaskCounters()
    source: SourceOperator | None = None
    operators: OperatorChain
    if deployment.restore is not None and deployment.restore.finished:
        operators = FinishedChain(partitions)
    else:
        head, *others = (node.operator for node in chain.nodes)
        if isinstance(head, SourceOperatorSpec):
            source = _source(head, deployment, environment, mailbox, counters)
        by_edge = {partition.edge: partition for partition in partitions}
        where = f"subtask {deployment.attempt.index + 1}/{deployment.vertex.parallelism}"
        operators = OperatorChain(chain, cast(list[Operator], [source or head, *others]), by_edge, where)
    return StreamTask(
        deployment,
        chain=operators,
        source=source,
        inputs=exchange.InputGates(
            gates,
            mailbox.wake,
            clock=environment.clock,
            new_handler=partial(
                BarrierSettings.of(Configuration(deployment.config)).handler,
                committables=any(gate.committables for gate in deployment.gates),
            ),
            consumer=deployment.attempt.index,
            combine=combine,
        ),
        partitions=partitions,
        contexts=ContextFactory(
            deployment, environment, counters, partitions, mailbox, memory_users=_memory_users(chain)
        ),
        environment=environment,
        mailbox=mailbox,
    )


def _source(
    spec: SourceOperatorSpec,
    deployment: TaskDeployment,
    environment: TaskEnvironment,
    mailbox: Mailbox,
    counters: TaskCounters,
) -> SourceOperator:
    info = deployment.vertex.source
    assert info is not None, "the vertex of a source has its SourceInfo"
    return SourceOperator(
        spec,
        info,
        wake_task=mailbox.wake,
        request_split=lambda phase, newest: environment.report(
            SplitRequested(attempt=deployment.attempt, phase=phase, newest=newest)
        ),
        counters=counters,
        had_ended=deployment.restore is not None and deployment.restore.data_ended,
    )


def _memory_users(chain: Chain) -> frozenset[OperatorUid]:
    """Operators that use managed memory."""
    return frozenset(node.uid for node in chain.nodes if getattr(node.operator, "uses_managed_memory", False))


def check_matches(deployment: TaskDeployment, chain: Chain) -> None:
    """Raises ProtocolError unless the chain is that of the deployed vertex."""
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
) -> list[exchange.OutputPartition]:
    config = Configuration(deployment.config)
    timeout_ms, spill_bytes = config.get(BUFFER_TIMEOUT), config.get(BATCH_SHUFFLE_WRITE_BUFFER)
    partitions: list[exchange.OutputPartition] = []
    for descriptor in deployment.partitions:
        if descriptor.type.is_reported:
            partitions.append(exchange.ReportedOutput(descriptor, deployment.attempt.index))
            continue
        if descriptor.type.is_blocking:
            if network.blocking is None:
                raise ProtocolError(
                    f"edge {descriptor.edge} is blocking, but this process stores no partitions"
                )
            partitions.append(network.blocking.create(deployment.attempt, descriptor, spill_bytes))
            continue
        memory = network.memory.partition(
            f"the output of {deployment.attempt} on edge {descriptor.edge}", len(descriptor.consumers)
        )
        undo.callback(memory.close)
        partitions.append(
            exchange.ResultPartition(
                descriptor,
                deployment.attempt.index,
                clock=environment.clock,
                buffer_timeout_ms=timeout_ms,
                on_room=mailbox.wake,
                memory=memory,
            )
        )
    return partitions


def _gate(
    gate: GateDescriptor,
    deployment: TaskDeployment,
    network: TaskNetwork,
    state_reader: Callable[[str], StateReader],
    undo: ExitStack,
) -> exchange.Gate:
    """Channels to other processes share the credits of the gate."""
    read_files = Configuration(deployment.config).get(BATCH_SHUFFLE_HOST_LOCAL)
    others = network.blocking.of_others_here() if read_files and network.blocking is not None else None
    found = [_partitions_here(channel, network, others, state_reader) for channel in gate.channels]
    remote = found.count(None)
    reader = f"input {gate.input_index} of {deployment.attempt}"
    in_files = sum(isinstance(partitions, exchange.HostLocalPartition) for partitions in found)
    if in_files:
        _log.info("event=host_local_input channels=%d reader=%r", in_files, reader)
    memory = network.memory.gate(reader, remote) if remote else None
    streams = network.data_client.gate(deployment.exchange.reveal()) if remote else None
    channels: list[exchange.InputChannel] = []
    for descriptor, partitions in zip(gate.channels, found, strict=True):
        if partitions is not None:
            channels.append(exchange.LocalInputChannel(descriptor, partitions))
            continue
        assert memory is not None, "there are remote channels"
        assert streams is not None, "there are remote channels"
        remote -= 1
        channel = exchange.RemoteInputChannel(descriptor, streams, memory, remote)
        undo.callback(channel.close)
        channels.append(channel)
    return exchange.Gate(gate.input_index, tuple(channels), memory, streams)


def _partitions_here(
    channel: ChannelDescriptor,
    network: TaskNetwork,
    others: exchange.HostLocalPartitions | None,
    state_reader: Callable[[str], StateReader],
) -> exchange.LocalPartitions | None:
    """Where this process reads the channel by itself; None: from another worker. `others`: whose files may be
    read here."""
    if channel.is_here:
        rows = None if channel.ended else channel.rows
        return exchange.EndedPartitions() if rows is None else exchange.StoredFile(rows, state_reader)
    if channel.task_manager == network.task_manager:
        return network.registry
    return others.find(channel) if others is not None and channel.stored else None
