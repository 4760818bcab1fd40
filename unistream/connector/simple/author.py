"""What an author's polling source has, and what is refused of it in one sentence."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from unistream.base.config import DurationLike, duration_ms
from unistream.base.errors import UNDECODABLE, ConfigError
from unistream.base.limits import MIB
from unistream.connector.common import columns_text
from unistream.connector.simple.splits import NEW_SPLITS
from unistream.model.columns.given_schema import as_schema
from unistream.port.source import ReaderContext

SPLITS_MAX: Final = 10_000  # all names are in the job's graph, and in each checkpoint
SPLIT_CHARS_MAX: Final = 200
NAME_CHARS_MAX: Final = 1_000  # as that of an operator
POSITION_BYTES_MAX: Final = MIB  # of one split; it is in each checkpoint
INTERVAL_MS_MIN: Final = 10  # a source that has nothing new takes no core


class Author(Protocol):
    """See `unistream.connector.simple.source.PollingSource`."""

    name: str
    schema: pa.Schema
    bounded: bool
    interval: DurationLike
    interval_after_rows: DurationLike | None
    discovery_interval: DurationLike

    def poll(self, split: str, position: Any) -> tuple[pa.RecordBatch | None, Any]: ...

    def splits(self) -> Iterable[str]: ...

    def open(self, context: ReaderContext) -> None: ...

    def close(self) -> None: ...


class Intervals:
    """The intervals of a source in ms. Raises ConfigError: one is no duration, or too short."""

    def __init__(self, source: Author) -> None:
        after = source.interval_after_rows
        self.empty_ms = _duration(source, "interval", source.interval)
        if self.empty_ms < INTERVAL_MS_MIN:
            raise ConfigError(
                f"source {source.name}: interval is {source.interval!r}, and must be at least "
                f"{INTERVAL_MS_MIN} ms; where pages follow each other set interval_after_rows = 0"
            )
        if after is None:
            after = 0 if source.bounded else self.empty_ms
        self.after_rows_ms = _duration(source, "interval_after_rows", after)
        self.discovery_ms = _duration(source, "discovery_interval", source.discovery_interval)


def _duration(source: Author, name: str, given: DurationLike) -> int:
    try:
        return duration_ms(given)
    except ConfigError as error:
        raise ConfigError(f"source {source.name}: {name}: {error}") from error


def check_attributes(kind: str, given: object) -> None:
    """Raises ConfigError: the name, the address or `bounded` of a source or sink cannot be what it is.

    >>> check_attributes("source", object())
    """
    where = f"{kind} {type(given).__name__}"
    name = getattr(given, "name", "name")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise ConfigError(
            f"{where}: its name is {described(name)}; a name has 1 to {NAME_CHARS_MAX} printable characters"
        )
    address = getattr(given, "address", "")
    if not isinstance(address, str):
        raise ConfigError(
            f"{where}: its address is {described(address)}, and must be a text, such as "
            "'https://hooks.example.org/prices'"
        )
    bounded = getattr(given, "bounded", False)
    if not isinstance(bounded, bool):
        raise ConfigError(f"{where}: bounded is {described(bounded)}, and must be True or False")


def checked_schema(source: Author) -> pa.Schema:
    """The columns of a source. Raises ConfigError: it has none."""
    schema = source.schema
    if not isinstance(schema, pa.Schema) or not schema.names:
        raise ConfigError(
            f"source {source.name}: its schema is {described(schema)}, and must be a pyarrow.Schema with at "
            "least one column"
        )
    as_schema(schema, f"the schema of source {source.name}")
    return schema


def named_splits(source: Author) -> list[str]:
    """What `splits` returns. Raises ConfigError: that is no list of names; and what `splits` raises."""
    given = source.splits()
    names = None if isinstance(given, str | bytes) or not isinstance(given, Iterable) else list(given)
    if names is None or not all(isinstance(one, str) for one in names):
        raise ConfigError(
            f"source {source.name}: splits() returned {described(given if names is None else names)}, and "
            "must return a list of names, such as ['eu', 'us']"
        )
    if len(names) > SPLITS_MAX or len(set(names)) != len(names):
        raise ConfigError(
            f"source {source.name}: splits() returned {len(names)} names, {len(set(names))} of them "
            f"different; it must return each once, and at most {SPLITS_MAX}"
        )
    for name in names:
        if not 0 < len(name) <= SPLIT_CHARS_MAX or not name.isprintable() or name == NEW_SPLITS:
            raise ConfigError(
                f"source {source.name}: splits() returned the name {name[:80]!r}; a name has 1 to "
                f"{SPLIT_CHARS_MAX} printable characters"
            )
    return names


def check_rows(where: str, records: object, schema: pa.Schema) -> None:
    """Raises ConfigError: they are no rows of this schema. An empty one has no types."""
    if not isinstance(records, pa.RecordBatch):
        raise ConfigError(
            f"{where}: poll returned rows as {described(records)}, and must return a pyarrow.RecordBatch, "
            "such as pa.RecordBatch.from_pylist(rows, schema=self.schema)"
        )
    if records.num_rows and not records.schema.equals(schema):
        raise ConfigError(
            f"{where}: poll returned rows with the columns {columns_text(records.schema)}, and the schema of "
            f"the source has {columns_text(schema)}"
        )
    for field, column in zip(schema, records.columns, strict=True) if records.num_rows else ():
        if not field.nullable and column.null_count:
            raise ConfigError(
                f"{where}: poll returned rows with {column.null_count} nulls in {field.name!r}, of which the "
                "schema of the source says nullable=False"
            )


def run(where: str, name: str, method: Callable[[], object]) -> None:
    """Runs a method that returns nothing.

    Raises:
        ConfigError: it is `async`, or has a `yield`, so that nothing of it has run.
        Exception: what it raises.

    >>> run("sink Hook", "flush", lambda: None)
    """
    returned = method()
    if not isinstance(returned, Awaitable | AsyncGenerator | Generator):
        return
    if isinstance(returned, Coroutine | Generator):
        returned.close()  # or Python would warn that nobody has awaited it
    raise ConfigError(
        f"{where}: {name} returned a {type(returned).__name__}, so nothing of it has run; it must be a plain "
        "method without async and yield, which may call asyncio.run(...)"
    )


def encoded_position(where: str, position: object) -> bytes:
    """A position as checkpoints have it. Raises ConfigError: it would not come back as it was."""
    try:
        encoded = msgspec.msgpack.encode(position)
        back = msgspec.msgpack.decode(encoded)
    except (TypeError, ValueError, OverflowError, *UNDECODABLE) as error:
        raise ConfigError(
            f"{where}: poll returned the position {described(position)}, which no checkpoint can hold: it is "
            f"made of texts, numbers, bytes, times, lists and dicts ({error})"
        ) from error
    if back != position:
        raise ConfigError(
            f"{where}: poll returned the position {described(position)}, which comes back from a checkpoint "
            f"as {described(back)}; return it in that form"
        )
    if len(encoded) > POSITION_BYTES_MAX:
        raise ConfigError(
            f"{where}: poll returned a position of {len(encoded)} bytes, and each checkpoint has it; it has "
            f"at most {POSITION_BYTES_MAX}"
        )
    return encoded


def decoded_position(position: bytes | None) -> Any:
    """The position as the author has returned it."""
    return None if position is None else msgspec.msgpack.decode(position)


def described(given: object) -> str:
    """Says what a value is, in a few words.

    >>> described(None), described("eu"), described([1, 2])
    ('None', "str 'eu'", 'list [1, 2]')
    """
    if given is None:
        return "None"
    if isinstance(given, pa.Table | pa.RecordBatch | pa.Schema):
        schema = given if isinstance(given, pa.Schema) else given.schema
        return f"{type(given).__name__} {columns_text(schema):.200}"
    text = " ".join(repr(given).split())
    return f"{type(given).__name__} {text:.80}"
