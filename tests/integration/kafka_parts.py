"""Writers and committers of a topic without a job, for tests."""

from __future__ import annotations

import json
from typing import Any

import unistream as us
from tests.contract.sinks.case import batch, context
from tests.support.servers.kafka_tools import read_committed
from unistream.base.ids import CheckpointId
from unistream.connector.kafka import KafkaSink
from unistream.connector.kafka.broker.wire import Producing
from unistream.connector.kafka.record.transactions import decode_committable
from unistream.port.sink import Committer, SinkContext, SinkWriter


def numbers(servers: str, topic: str) -> list[int]:
    """What readers of committed rows see."""
    return sorted(json.loads(value or b"")["id"] for value in read_committed(servers, topic, topic))


class Parts:
    """Writers and committers of one sink, without a job."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers, self.topic = servers, topic
        self.made: list[SinkWriter | Committer] = []

    def sink(self, **options: Any) -> KafkaSink:
        return us.KafkaSink(
            **{
                "bootstrap_servers": self.servers,
                "topic": self.topic,
                "transactional_id_prefix": self.topic,
                **options,
            }
        )

    def writer(
        self, sink: KafkaSink | None = None, states: list[bytes] | None = None, **where: Any
    ) -> SinkWriter:
        made = (sink or self.sink()).create_writer()
        self.made.append(made)
        made.open(context(**where), states or [])
        return made

    def committer(self, sink: KafkaSink | None = None, **where: Any) -> Committer:
        made = (sink or self.sink()).create_committer()
        assert made is not None
        self.made.append(made)
        made.open(context(**where))
        return made

    def opened(self, sink: KafkaSink, where: SinkContext) -> tuple[SinkWriter, Committer]:
        """A committer and a writer of one job."""
        committer, writer = sink.create_committer(), sink.create_writer()
        assert committer is not None
        self.made += [writer, committer]
        committer.open(where)
        writer.open(where, [])
        return writer, committer

    def prepared(self, writer: SinkWriter, checkpoint: int, *ids: int) -> list[bytes]:
        writer.write(batch(*ids))
        writer.flush(end_of_input=False)
        committables = list(writer.prepare_commit(CheckpointId(checkpoint)))
        writer.snapshot_state(CheckpointId(checkpoint))
        return committables

    def lose(self, committable: bytes) -> None:
        """As the broker does after the timeout."""
        one = decode_committable(committable)
        producing = Producing(self.servers, {})
        producing.begin(one.transactional_id, 10_000)
        producing.close()
