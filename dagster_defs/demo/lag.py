"""How far a job is with a topic: what it has reported to Kafka against what Kafka holds."""

from __future__ import annotations

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError


class Lag:
    """Offsets of one topic and one consumer group, over one connection each.

    The job reports the positions of each completed checkpoint under its group; nothing else reads them.
    """

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._topic = topic
        self._group = group
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        self._consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)

    def consumed(self) -> int:
        """Records that a completed checkpoint covers."""
        try:
            groups = self._admin.list_group_offsets([self._group])
        except KafkaError:
            return 0  # nothing reported yet: the group does not exist
        offsets = groups.get(self._group, {})
        return sum(max(0, o.offset) for p, o in offsets.items() if p.topic == self._topic)

    def published(self) -> int:
        """Records in the topic."""
        partitions = self._consumer.partitions_for_topic(self._topic) or ()
        ends = self._consumer.end_offsets([TopicPartition(self._topic, p) for p in partitions])
        return sum(int(end) for end in ends.values())

    def close(self) -> None:
        self._consumer.close()
        self._admin.close()
