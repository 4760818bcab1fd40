"""A Kafka client for the source: splits, offsets, and our own errors."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from unistream.base.errors import ConfigError, ProtocolError, Unreachable
from unistream.connector.common import decoded_split
from unistream.connector.kafka.broker.config import CONNECT_TIMEOUT_MS, Properties, client_settings
from unistream.connector.kafka.broker.offsets import Place
from unistream.connector.kafka.broker.topic import (
    Topic,
    created_again,
    deleted,
    same_topic,
    without_partitions,
)
from unistream.connector.kafka.record.records import RawBatch
from unistream.model.messages import Split

TOPICS_SHOWN: Final = 10
LOOKUP_TIMEOUT_MS: Final = 10_000
CONNECT_RETRY_S: Final = 0.25
DELETED_AFTER_S: Final = 3.0  # a topic that no broker has for this time is deleted; a starting broker may lag
DELETED_RETRY_S: Final = 0.25
NONE_LED: Final[Mapping[str, Collection[int]]] = MappingProxyType({})


class KafkaPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `Split.data`.

    Attributes:
        offset: The next record to read.
        stop: One past the last record to read; None: without end.
        topic_id: The topic to which the offset belongs; empty: unknown (an old broker or savepoint).
    """

    topic: str
    partition: int
    offset: int
    stop: int | None = None
    topic_id: str = ""

    @property
    def split_id(self) -> str:
        return split_id(self.topic, self.partition)

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def at_end(self) -> bool:
        return self.stop is not None and self.offset >= self.stop

    def split(self, *, by_name: bool = False) -> Split:
        """The split that begins at this position. `by_name`: of a source of several topics
        (`SourceInfo.recorded_by_name`)."""
        recorded = (self.split_id if by_name else str(self.partition), self.offset)
        return Split(id=self.split_id, data=msgspec.msgpack.encode(self), recorded=recorded)

    @staticmethod
    def of(split: Split) -> KafkaPosition:
        """Raises CorruptSnapshot: the split is not one of a Kafka source."""
        return decoded_split(split, KafkaPosition, "Kafka")


class KafkaClient:
    """One consumer with manual assignment. Not thread-safe; the caller closes it.

    Raises:
        Unreachable: no broker answered within CONNECT_TIMEOUT_MS.
        ConfigError: the broker refuses the credentials, or a property is wrong.
    """

    def __init__(self, bootstrap_servers: str, properties: Properties) -> None:
        from unistream.connector.kafka.broker.private import raw_consumer

        self._servers = bootstrap_servers
        self._ends: dict[Place, int] = {}
        settings = client_settings(bootstrap_servers, properties)
        if not (settings.get("proxy_url") or settings.get("socks5_proxy")):
            await_listener(settings["bootstrap_servers"], settings["bootstrap_timeout_ms"] / 1000)
        with self._our_errors("connecting"):
            self._consumer = raw_consumer(settings)

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """The topics of these names that there are."""
        found = self._find(dict.fromkeys(names, ()))
        return {name: topic for name, topic in found.items() if topic is not None}

    def topic(self, name: str) -> Topic:
        """Raises ConfigError: no such topic; the message names some that exist."""
        found = self.topics([name])
        if not found:
            others = sorted(self.names())
            shown = ", ".join(others[:TOPICS_SHOWN]) + (", …" if len(others) > TOPICS_SHOWN else "")
            exist = f"it has {shown}" if others else "it has no topics"
            raise ConfigError(f"topic {name!r} does not exist at {self._servers} ({exist})")
        return found[name]

    def names(self) -> set[str]:
        """All topics that this user may see, without those of Kafka itself."""
        with self._our_errors("listing the topics"):
            found: set[str] = self._consumer.topics()
        return found

    def same_topics(
        self, read: Mapping[str, Collection[str]], led: Mapping[str, Collection[int]] = NONE_LED
    ) -> dict[str, Topic]:
        """The topics, if each is still the one that was read.

        Args:
            read: Name -> its ids in the positions; "" if it is not known.
            led: Name -> partitions whose leaders are asked. A broker has the metadata of a topic before its
                records, so records that were fetched before this call belong to the topic that the leader
                names.

        Raises:
            ConfigError: one was deleted, and maybe created again.
            Unreachable: a broker did not answer.
        """
        wanted = {name: led.get(name, ()) for name in read}
        topics: dict[str, Topic] = {}
        deadline = time.monotonic() + DELETED_AFTER_S
        while True:
            left = {name: partitions for name, partitions in wanted.items() if name not in topics}
            topics |= {name: topic for name, topic in self._find(left).items() if topic is not None}
            missing = sorted(wanted.keys() - topics.keys())
            if not missing:
                break
            if time.monotonic() > deadline:
                raise deleted(missing[0], self._servers)
            time.sleep(DELETED_RETRY_S)
        for name, topic in topics.items():
            for topic_id in sorted(read[name]):
                if not same_topic(topic_id, topic.id):
                    raise created_again(name, self._servers, read=topic_id, now=topic.id)
            gone = set(wanted[name]) - set(topic.partitions)
            if gone:
                raise without_partitions(name, self._servers, gone)
        return topics

    def _find(self, topics: Mapping[str, Collection[int]]) -> dict[str, Topic | None]:
        """Looks topics up by name; None: a broker has no such topic, or two brokers have different ones."""
        from unistream.connector.kafka.broker.private import topic_metadata

        if not topics:
            return {}
        with self._our_errors(f"looking for {_shown(topics)}"):
            answers = topic_metadata(self._consumer, topics, LOOKUP_TIMEOUT_MS)
        found: dict[str, Topic | None] = {}
        for name, given in answers.items():
            one = len({topic_id for topic_id, _ in given}) == 1
            found[name] = Topic(name=name, id=given[0][0], partitions=tuple(given[0][1])) if one else None
        return found

    def bounds(self, places: Collection[Place]) -> dict[Place, tuple[int, int]]:
        """The first offset that exists in each partition, and one past the last that may be read."""
        wanted = [_topic_partition(*place) for place in places]
        with self._our_errors(f"reading the offsets of {_topics_of(places)}"):
            first = self._consumer.beginning_offsets(wanted, timeout_ms=LOOKUP_TIMEOUT_MS)
            end = self._consumer.end_offsets(wanted, timeout_ms=LOOKUP_TIMEOUT_MS)
        silent = [found for found in wanted if found not in first or found not in end]
        if silent:
            raise Unreachable(
                f"Kafka at {self._servers} gave no offsets of topic {silent[0].topic!r} partition "
                f"{silent[0].partition}"
            )
        self._ends |= {(found.topic, found.partition): int(end[found]) for found in wanted}
        return {(found.topic, found.partition): (int(first[found]), int(end[found])) for found in wanted}

    def offsets_at(self, places: Collection[Place], time_ms: int) -> dict[Place, int | None]:
        """The first offset of a record with that time or a later one; None: there is none."""
        wanted = {_topic_partition(*place): time_ms for place in places}
        with self._our_errors(f"looking up time {time_ms} in {_topics_of(places)}"):
            found = self._consumer.offsets_for_times(wanted, timeout_ms=LOOKUP_TIMEOUT_MS)
        return {(tp.topic, tp.partition): None if at is None else int(at.offset) for tp, at in found.items()}

    def committed(self, places: Collection[Place]) -> dict[Place, int | None]:
        """Offsets that the group of the property "group.id" has committed; None: it has none."""
        with self._our_errors("reading the offsets of a group"):
            return {
                place: self._consumer.committed(_topic_partition(*place), timeout_ms=LOOKUP_TIMEOUT_MS)
                for place in places
            }

    def assign(self, positions: Sequence[KafkaPosition]) -> list[KafkaPosition]:
        """Reads exactly these from now on, each from its offset, and returns them with the ids of their
        topics.

        Raises:
            ConfigError: the partition does not have an offset, or its topic was deleted, and maybe created
                again.
        """
        positions = self.checked(positions)
        self.check_available(positions)
        assigned = {p.place: p for p in positions}
        with self._our_errors("assigning partitions"):
            wanted = [_topic_partition(*key) for key in assigned]
            self._consumer.assign(wanted)
            for found in wanted:
                self._consumer.seek(found, assigned[found.topic, found.partition].offset)
        return positions

    def checked(self, positions: Sequence[KafkaPosition]) -> list[KafkaPosition]:
        """The positions, each with the id of its topic; see `same_topics`."""
        read: dict[str, set[str]] = {}
        led: dict[str, set[int]] = {}
        for position in positions:
            read.setdefault(position.topic, set()).add(position.topic_id)
            led.setdefault(position.topic, set()).add(position.partition)
        found = self.same_topics(read, led) if read else {}
        return [msgspec.structs.replace(p, topic_id=p.topic_id or found[p.topic].id) for p in positions]

    def check_available(self, positions: Sequence[KafkaPosition]) -> None:
        """Raises ConfigError if the record at a position was deleted, or does not exist yet."""
        bounds = self.bounds([position.place for position in positions])
        for position in positions:
            first, end = bounds[position.place]
            if not first <= position.offset <= end:
                raise out_of_range(position, first, end)

    def poll(self, timeout_ms: int, batches: int) -> dict[Place, list[RawBatch]]:
        """What has arrived by then, at most `batches` record batches."""
        with self._our_errors("reading"):
            polled = self._consumer.poll(timeout_ms=timeout_ms, max_records=batches)
        for found in polled:
            end = self._consumer.highwater(found)
            if end is not None:
                self._ends[found.topic, found.partition] = int(end)
        return {(tp.topic, tp.partition): raw for tp, raw in polled.items()}

    @property
    def ends(self) -> dict[Place, int]:
        """The ends of partitions, by topic and partition: one past the last record, when a broker last said
        so."""
        return dict(self._ends)

    def pause(self, position: KafkaPosition) -> None:
        self._consumer.pause(_topic_partition(position.topic, position.partition))

    def report(
        self, positions: Sequence[KafkaPosition], done: Callable[[Exception | None, bool], None]
    ) -> None:
        """Commits positions to the group of the property "group.id", without waiting.

        A later `poll` calls `done`: with None, or with the error and whether it may be retried.
        """

        def answered(_offsets: Any, answer: Any) -> None:
            error = answer if isinstance(answer, Exception) else None
            done(error, getattr(error, "retriable", False))

        self._consumer.commit_async(_group_offsets(positions), answered)

    def report_now(self, positions: Sequence[KafkaPosition], timeout_ms: int) -> None:
        """Reports positions as `report`, and waits for the answer. Raises ConfigError or Unreachable."""
        with self._our_errors("committing positions to a group"):
            self._consumer.commit(_group_offsets(positions), timeout_ms=timeout_ms)

    def close(self) -> None:
        self._consumer.close(autocommit=False, timeout_ms=1_000)

    @contextlib.contextmanager
    def _our_errors(self, doing: str) -> Iterator[None]:
        from kafka import errors

        from unistream.connector.kafka.broker.private import REFUSED

        try:
            yield
        except errors.OffsetOutOfRangeError as error:
            [(partition, offset)] = list(error.args[0].items())[:1]
            position = KafkaPosition(topic=partition.topic, partition=partition.partition, offset=offset)
            first, end = self.bounds([position.place])[position.place]
            raise out_of_range(position, first, end) from error
        except REFUSED as error:
            raise ConfigError(f"Kafka at {self._servers} refused {doing}: {_text(error)}") from error
        except errors.CorruptRecordError as error:
            raise ProtocolError(f"Kafka at {self._servers}: {_text(error)}") from error
        except errors.UnsupportedCodecError as error:
            raise ConfigError(f"Kafka at {self._servers}: {_text(error)}") from error
        except errors.KafkaError as error:
            timed_out = isinstance(error, errors.KafkaTimeoutError)
            within = f" within {CONNECT_TIMEOUT_MS / 1000:.0f} s" if timed_out else ""
            raise Unreachable(
                f"Kafka at {self._servers} did not answer{within} while {doing} ({_text(error)})"
            ) from error


def split_id(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def await_listener(servers: Sequence[str], timeout_s: float) -> None:
    """Waits until one of the servers accepts connections. kafka-python would leave a socket open for each
    attempt, and not report the reason. Raises Unreachable, with the reason of the last attempt."""
    deadline = time.monotonic() + timeout_s
    while True:
        for server in servers:
            host, _, port = server.rpartition(":")
            left_s = max(deadline - time.monotonic(), 0.1)
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=left_s).close()
            except OSError as error:
                reason = f"{server}: {error.strerror or error}"
            else:
                return
        if time.monotonic() + CONNECT_RETRY_S > deadline:
            raise Unreachable(
                f"Kafka at {','.join(servers)} did not answer within {timeout_s:.0f} s ({reason})"
            )
        time.sleep(CONNECT_RETRY_S)


def out_of_range(position: KafkaPosition, first: int, end: int) -> ConfigError:
    """The next record was deleted, or never existed: nothing is skipped silently."""
    problem = "has been deleted" if position.offset < first else "does not exist"
    return ConfigError(
        f"topic {position.topic!r} partition {position.partition}: offset {position.offset} {problem}; "
        f"available are {first} to {end} (exclusive). Start from another savepoint, or without one from "
        "starting_offsets"
    )


def _topics_of(places: Collection[Place]) -> str:
    return _shown({topic for topic, _ in places})


def _shown(topics: Collection[str]) -> str:
    more = ", …" if len(topics) > TOPICS_SHOWN else ""
    return f"topic {', '.join(map(repr, sorted(topics)[:TOPICS_SHOWN]))}{more}"


def _group_offsets(positions: Sequence[KafkaPosition]) -> dict[Any, Any]:
    from kafka.structs import OffsetAndMetadata

    return {_topic_partition(*p.place): OffsetAndMetadata(p.offset, "", -1) for p in positions}


def _topic_partition(topic: str, partition: int) -> Any:
    from kafka import TopicPartition

    return TopicPartition(topic, partition)


def _text(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
