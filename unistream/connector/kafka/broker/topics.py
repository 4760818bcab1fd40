"""Which topics a source reads: named one by one, or by a pattern. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.connector.kafka.broker.topic import NEW_START, checked_topic
from unistream.model.splits import KnownSplits


class Topics(msgspec.Struct, frozen=True, kw_only=True):
    """What a source reads: either of the two.

    Attributes:
        names: Given one by one.
        pattern: A regular expression (RE2) for the whole name.
    """

    names: tuple[str, ...] = ()
    pattern: str = ""

    @property
    def are_several(self) -> bool:
        """Whether positions have to name topics."""
        return bool(self.pattern) or len(self.names) > 1

    @property
    def text(self) -> str:
        return self.pattern or ", ".join(self.names)

    def include(self, name: str) -> bool:
        return bool(self.of([name]))

    def of(self, existing: Iterable[str]) -> list[str]:
        """The existing topics that are read, sorted. A master does it: RE2 takes linear time, as others do
        not."""
        if not self.pattern:
            return sorted(set(self.names) & set(existing))
        names = pa.array(sorted(set(existing)), pa.string())
        matching: list[str] = names.filter(
            pc.match_substring_regex(names, pattern=f"^(?:{self.pattern})$")
        ).to_pylist()
        return matching


def checked_topics(topic: str | Sequence[str] | None, pattern: str | None) -> Topics:
    """What the arguments of a source select. Raises ConfigError: they name no topic, or none that Kafka
    takes."""
    if (topic is None) == (pattern is None):
        raise ConfigError(
            "a Kafka source reads topic (a name, or several) or topic_pattern: give one of the two"
        )
    if pattern is not None:
        found = Topics(pattern=pattern)
        try:
            found.include("topic")
        except (pa.ArrowInvalid, TypeError) as error:
            raise ConfigError(f"topic_pattern {pattern!r} is no regular expression (RE2): {error}") from None
        if not pattern:
            raise ConfigError("topic_pattern is empty; give a regular expression for the names of topics")
        return found
    names = (topic,) if isinstance(topic, str) else tuple(topic or ())
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"topic names no topic, or one twice: {topic!r}")
    return Topics(names=tuple(checked_topic(name) for name in names))


def read_before(topics: Topics, known: KnownSplits) -> dict[str, str]:
    """Topic -> its id, of all that the splits found before are of; "": not known.

    Raises:
        ConfigError: one of them is not read any more.
    """
    names = sorted({split_id.rpartition("-")[0] for split_id in known.ids})
    for name in names:
        if not topics.include(name):
            raise ConfigError(
                f"the positions of the source are also those of topic {name!r}, which it does not read any "
                f"more (it reads {topics.text}), so they would be lost: read that topic, too, or {NEW_START}"
            )
    only = known.origin if len(names) == 1 else ""
    return {name: known.origins.get(name, only) for name in names}
