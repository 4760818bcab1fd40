"""Requests of a producer over kafka-python's connections (see `calls`).

Transactions are spoken as before KIP-890 (`EndTxn` up to version 4): then the epoch of a transaction stays
the same until it ends, and a commit may be repeated. No pair of producer id and epoch is used for two
transactions, so a request that arrives late ends no other one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kafka import KafkaAdminClient, TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType, TransactionDescription
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import CoordinatorType, MetadataRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

from unistream.base.errors import ConfigError, NotFound, OutcomeUnknown, Unreachable
from unistream.connector.kafka.broker.calls import REQUEST_TIMEOUT_MS, RETRY_S, BrokerConnections
from unistream.connector.kafka.record.transactions import ProducerId

SETTLED_WITHIN_S: Final = 0.5  # a transaction that is being ended is ended by then
NO_PRODUCER: Final = ProducerId(-1, -1)


class TransactionEnd(Enum):
    """How an attempt to end a transaction went."""

    DONE = "it is ended as asked, now or before"
    OTHERWISE = "it was ended otherwise, and its id may have been used again"
    FORGOTTEN = "the broker has forgotten its id"


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """What a group records: an offset, and its metadata."""

    label: int
    note: str


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as brokers have it. `id`: "" if the broker has none; `leaders`: node by partition, -1: none
    now."""

    id: str
    leaders: Mapping[int, int]


class Producing(BrokerConnections):
    """What a sink, its committer and their tests ask of brokers."""

    # --- what there is --------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicState:
        """Raises NotFound, a ConfigError: it does not exist."""
        return self.answered(f"looking for topic {name!r}", lambda: self.find_topic(name))

    async def find_topic(self, name: str) -> TopicState:
        """Finds a topic as `topic`, in a coroutine; raises kafka-python's errors, too."""
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name)],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        [topic] = (await self.sent(request, None)).topics
        error = kafka_errors.for_code(topic.error_code)
        if error is kafka_errors.UnknownTopicOrPartitionError:
            raise NotFound(f"topic {name!r} does not exist at {self.servers}")
        if topic.error_code:
            raise error(name)
        has_id = topic.topic_id is not None and topic.topic_id.int
        leaders = {part.partition_index: part.leader_id for part in topic.partitions}
        return TopicState(str(topic.topic_id) if has_id else "", leaders)

    def setting(self, kind: str, name: str, key: str) -> str | None:
        """A setting of a "topic" or of a "broker" (any one, by ""). None: it may not be read."""
        resource = ConfigResource(ConfigResourceType[kind.upper()], name or self.any_broker())
        try:
            found = self.asked(
                f"reading the settings of {kind} {name!r}",
                lambda admin: admin.describe_configs([resource], config_filter="all"),
            )
        except ConfigError:  # not allowed to
            return None
        values: dict[str, Any] = next(iter(found[kind].values()), {})
        return None if values.get(key) is None else values[key]["value"]

    # --- transactions ---------------------------------------------------------------------------------

    def begin(self, transactional_id: str | None, timeout_ms: int) -> ProducerId:
        """A new producer id and epoch; what was open under that id is aborted. None: without transactions.

        Raises:
            ConfigError: the broker does not allow that timeout, or that id.
        """

        async def ask() -> ProducerId:
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
                max_version=4,
            )
            answer = await self.coordinated(request, transactional_id)
            return ProducerId(answer.producer_id, answer.producer_epoch)

        return self.answered(f"beginning transaction {transactional_id!r}", ask)

    async def add(
        self, transactional_id: str, producer: ProducerId, topic: str, partitions: Sequence[int]
    ) -> None:
        """Makes these partitions part of the transaction from now on, in a coroutine."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
            ],
            max_version=3,
        )
        node = await self.coordinator(transactional_id)
        answer = await self.sent(request, node)
        codes = {
            one.partition_error_code
            for found in answer.results_by_topic_v3_and_below
            for one in found.results_by_partition
        }
        self.check(min(codes - _OF_OTHERS, default=0), transactional_id)

    def record(
        self,
        transactional_id: str,
        producer: ProducerId,
        group: str,
        topic: str,
        label: int,
        *,
        note: str = "",
    ) -> None:
        """Records in the transaction: `label` is an offset of the group, in the first partition of the topic,
        and `note` its metadata.

        Raises:
            ConfigError: it is not allowed.
        """

        async def ask() -> None:
            request = AddOffsetsToTxnRequest(
                transactional_id=transactional_id,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                group_id=group,
                max_version=3,
            )
            await self.coordinated(request, transactional_id)
            partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition(
                partition_index=0, committed_offset=label, committed_leader_epoch=-1, committed_metadata=note
            )
            offsets = TxnOffsetCommitRequest(
                transactional_id=transactional_id,
                group_id=group,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=[
                    TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])
                ],
                max_version=3,
            )
            answer = await self.sent(offsets, await self.coordinator(group, CoordinatorType.GROUP))
            for of_topic in answer.topics:
                for of_partition in of_topic.partitions:
                    self.check(of_partition.error_code, group, CoordinatorType.GROUP)

        self.answered(f"recording a commit in group {group!r}", ask)

    def recorded(self, group: str, topic: str) -> int | None:
        """The last label whose transaction was committed; None: there is none, or it is forgotten."""
        found = self.noted(group, topic)
        return None if found is None else found.label

    def noted(self, group: str, topic: str, *, settled: bool = False) -> GroupOffset | None:
        """What `recorded` finds, with its note. `settled`: waits for transactions that are ending, or open,
        as long as for any answer; otherwise for a moment, and what they record does not count then.

        Raises:
            Unreachable: it did not settle.
        """

        async def ask() -> GroupOffset | None:
            until = time.monotonic() + SETTLED_WITHIN_S
            while True:
                try:
                    return await self._offset(group, topic, stable=settled or time.monotonic() < until)
                except kafka_errors.UnstableOffsetCommitError:
                    if settled:
                        raise
                    await self.sleep(RETRY_S)

        return self.answered(f"reading the commits of group {group!r}", ask)

    async def _offset(self, group: str, topic: str, *, stable: bool) -> GroupOffset | None:
        of_group = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = [of_group.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[of_group(group_id=group, topics=topics)],
            require_stable=stable,
            min_version=8,
            max_version=8,
        )
        answer = await self.sent(request, await self.coordinator(group, CoordinatorType.GROUP))
        [group_offsets] = answer.groups
        self.check(group_offsets.error_code, group, CoordinatorType.GROUP)
        for of_topic in group_offsets.topics:
            for of_partition in of_topic.partitions:
                self.check(of_partition.error_code, group, CoordinatorType.GROUP)
                if of_partition.committed_offset >= 0:
                    return GroupOffset(int(of_partition.committed_offset), of_partition.metadata or "")
        return None

    async def produce(
        self, node: int, topic: str, partition: int, batch: bytes, transactional_id: str | None, *, acks: int
    ) -> None:
        """Writes one batch to the leader of its partition, in a coroutine; one that was written before is
        written. Raises kafka-python's errors."""
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic,
                    partition_data=[
                        ProduceRequest.TopicProduceData.PartitionProduceData(index=partition, records=batch)
                    ],
                )
            ],
            max_version=11,
        )
        answer = await self.sent(request, node)
        if answer is None:  # acks=0: there is none
            return
        for of_topic in answer.responses:
            for of_partition in of_topic.partition_responses:
                error = kafka_errors.for_code(of_partition.error_code)
                if error is kafka_errors.DuplicateSequenceNumberError:
                    continue
                if of_partition.error_code:
                    raise error(of_partition.error_message or f"{topic}-{partition}")

    def end(self, transactional_id: str, producer: ProducerId, *, commit: bool) -> TransactionEnd:
        """Ends a transaction; safe to repeat with the same argument.

        Raises:
            OutcomeUnknown: no broker has confirmed it.
        """

        async def ask() -> TransactionEnd:
            request = EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                committed=commit,
                max_version=4,
            )
            try:
                await self.coordinated(request, transactional_id)
            except kafka_errors.InvalidProducerIdMappingError:
                return TransactionEnd.FORGOTTEN
            except _OTHERWISE:
                return TransactionEnd.OTHERWISE
            return TransactionEnd.DONE

        what = f"{'committing' if commit else 'aborting'} transaction {transactional_id!r}"
        try:
            return self.answered(what, ask)
        except Unreachable as error:
            raise OutcomeUnknown(str(error)) from error

    def open_ids(self, begin: str) -> list[str]:
        """The transactional ids that begin so, of all transactions that hold back readers."""
        found = self.asked(
            "listing transactions", lambda admin: admin.list_transactions(state_filters=["Ongoing"])
        )
        return sorted(
            one.transactional_id
            for of_broker in found.values()
            for one in of_broker
            if one.transactional_id.startswith(begin)
        )

    def is_ending(self, transactional_id: str, producer: ProducerId) -> bool:
        """Whether the last transaction of the id is of that producer, was ended, and its coordinator is about
        to say so in its partitions."""
        one = self._described(transactional_id)
        return (
            one is not None
            and (one.producer_id, one.producer_epoch) == (producer.id, producer.epoch)
            and (one.state.value.startswith("Prepare"))
        )

    def ended(self, transactional_id: str, producer: ProducerId) -> TransactionEnd | None:
        """How the last transaction of that producer has ended, or is about to; None: it is open."""
        one = self._described(transactional_id)
        if one is None:
            return TransactionEnd.FORGOTTEN
        if (one.producer_id, one.producer_epoch) != (producer.id, producer.epoch):
            return TransactionEnd.OTHERWISE
        state = one.state.value
        return (
            None
            if state == "Ongoing"
            else TransactionEnd.DONE
            if state.endswith("Commit")
            else TransactionEnd.OTHERWISE
        )

    def producers(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[tuple[ProducerId, int, bool]]]:
        """Who writes to a partition: producer, epoch of the coordinator that ended its last transaction, and
        whether one is open. Raises ConfigError: it may not be read."""
        states = self.asked(
            "looking at the producers of partitions", lambda admin: admin.describe_producers(partitions)
        )
        return {
            partition: [
                (
                    ProducerId(one.producer_id, one.producer_epoch),
                    max(one.coordinator_epoch, 0),  # -1: of none; brokers take the lowest there is
                    one.current_transaction_start_offset >= 0,
                )
                for one in state.active_producers
            ]
            for partition, state in states.items()
        }

    def mark(self, partition: TopicPartition, producer: ProducerId, coordinator_epoch: int) -> None:
        """Marks the transaction of the producer as committed in that partition. Raises kafka-python's
        errors."""
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            transaction_result=True,
            topics=[
                WriteTxnMarkersRequest.WritableTxnMarker.WritableTxnMarkerTopic(
                    name=partition.topic, partition_indexes=[partition.partition]
                )
            ],
            coordinator_epoch=coordinator_epoch,
        )

        async def ask() -> None:
            leader = (await self.find_topic(partition.topic)).leaders[partition.partition]
            answer = await self.sent(WriteTxnMarkersRequest(markers=[marker], max_version=1), leader)
            for of_marker in answer.markers:
                for topic in of_marker.topics:
                    for of_partition in topic.partitions:
                        self.check(of_partition.error_code, None)

        self.run(ask)

    def committed(self, transactional_ids: Sequence[str]) -> dict[str, ProducerId]:
        """The ids whose last transaction was committed, and whose that was."""
        found = {}
        for one in transactional_ids:  # each by itself: an id that a broker has forgotten fails a request
            described = self._described(one)
            if described is not None and described.state.value == "CompleteCommit":
                found[one] = ProducerId(described.producer_id, described.producer_epoch)
        return found

    def _described(self, transactional_id: str) -> TransactionDescription | None:
        """The description of a transaction by its id; None: the brokers do not know it."""

        def ask(admin: KafkaAdminClient) -> TransactionDescription | None:
            try:
                found: TransactionDescription = admin.describe_transactions([transactional_id])[
                    transactional_id
                ]
            except kafka_errors.TransactionalIdNotFoundError:
                return None
            return found

        return self.asked(f"looking at transaction {transactional_id!r}", ask)


_OF_OTHERS: Final = {0, kafka_errors.OperationNotAttemptedError.errno}
_OTHERWISE: Final = (
    kafka_errors.ProducerFencedError,
    kafka_errors.InvalidProducerEpochError,
    kafka_errors.InvalidTxnStateError,
)
