"""Messages of Protocol Buffers as tables of fields, for the compiled loops of `protobuf_kernels`. Pure.

Only the fields that columns are made of are in the tables: the loops pass over others by their wire type. A
field without presence (a plain one of proto3) has its default where it is not written, others are null.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from unistream.base.errors import ConfigError
from unistream.connector.common import Int64s, family

PLAIN, ZIGZAG, BLOB, MESSAGE = range(4)
"""What a field has, besides its wire type."""
VARINT, EIGHT, SIZED, FOUR = 0, 1, 2, 5
"""The wire types, as messages have them."""
TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
DEPTH_MAX: Final = 64  # of messages in messages
PATH_MAX: Final = 8  # messages in messages, of which one is the type of a topic

# of FieldDescriptor.type: wire type, what it has, Arrow's type
_TYPES: Final[Mapping[int, tuple[int, int, pa.DataType]]] = {
    1: (EIGHT, PLAIN, pa.float64()),
    2: (FOUR, PLAIN, pa.float32()),
    3: (VARINT, PLAIN, pa.int64()),
    4: (VARINT, PLAIN, pa.uint64()),
    5: (VARINT, PLAIN, pa.int32()),
    6: (EIGHT, PLAIN, pa.uint64()),
    7: (FOUR, PLAIN, pa.uint32()),
    8: (VARINT, PLAIN, pa.bool_()),
    9: (SIZED, BLOB, pa.string()),
    11: (SIZED, MESSAGE, pa.struct([])),
    12: (SIZED, BLOB, pa.binary()),
    13: (VARINT, PLAIN, pa.uint32()),
    14: (VARINT, PLAIN, pa.int32()),
    15: (FOUR, PLAIN, pa.int32()),
    16: (EIGHT, PLAIN, pa.int64()),
    17: (VARINT, ZIGZAG, pa.int32()),
    18: (VARINT, ZIGZAG, pa.int64()),
}


class ProtobufMismatch(Exception):
    """The fields of a message are not those of the columns; a clause about it."""


class ProtobufMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The type of the messages of a topic, for ``format="protobuf"``.

    Attributes:
        name: With its package: "shop.Order".
        descriptors: What `protoc --include_imports --descriptor_set_out=FILE` writes: the path of such a
            file, or its content.

    Raises:
        ConfigError: the file cannot be read.
    """

    name: str
    descriptors: bytes | str

    def __post_init__(self) -> None:
        if isinstance(self.descriptors, str):
            try:
                msgspec.structs.force_setattr(self, "descriptors", Path(self.descriptors).read_bytes())
            except OSError as error:
                raise ConfigError(f"ProtobufMessage: {self.descriptors}: {error.strerror}") from None

    def __repr__(self) -> str:
        return f"ProtobufMessage(name={self.name!r})"


@dataclass(frozen=True, slots=True)
class Value:
    """A field. `names`: of an enum, by number; `default`: where it is not written it has one."""

    slot: int
    kind: pa.DataType
    default: bool
    names: Mapping[int, str] | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message in a message. `instant`: it is a time, of seconds and nanoseconds."""

    slot: int
    fields: Mapping[str, Node]
    instant: bool = False
    wrapped: bool = False


@dataclass(frozen=True, slots=True)
class Elements:
    """A repeated field, the `number`-th of its tables, or a map, which on the wire is one of messages.

    `node`: one element, in slot 0 of `tables`, or of none if it is a value.
    """

    number: int
    node: Value | Message
    tables: FieldTables | None = None


Node: TypeAlias = Value | Message | Elements


@dataclass(slots=True)
class FieldTables:
    """Fields of all messages that are read: number, wire type, what it has, slot, message, list or -1.

    `first[m]` to `first[m + 1]` are those of message m; 0 is the outermost.
    """

    rows: list[list[tuple[int, int, int, int, int, int]]] = field(default_factory=list)
    slots: int = 0
    lists: list[Elements] = field(default_factory=list)

    def message(self, descriptor: Any, wanted: pa.DataType, depth: int = 0) -> tuple[int, dict[str, Node]]:
        """Adds a message: its number, and its fields that columns are made of. Raises ProtobufMismatch."""
        if depth > DEPTH_MAX:
            raise ProtobufMismatch(f"messages are more than {DEPTH_MAX} deep in each other")
        number = len(self.rows)
        self.rows.append([])
        fields: dict[str, Node] = {}
        for one in wanted:
            found = descriptor.fields_by_name.get(one.name)
            if found is not None:
                fields[one.name] = self._field(number, found, one.type, depth)
        return number, fields

    def _field(self, of: int, found: Any, wanted: pa.DataType, depth: int) -> Node:
        if found.type not in _TYPES:
            raise ProtobufMismatch(f"field {found.full_name!r} is a group, which is not read: leave it out")
        wire, what, _ = _TYPES[found.type]
        if found.is_repeated:
            elements = self._elements(found, wanted, depth)
            self.rows[of].append((found.number, wire, what, 0, 0, elements.number))
            return elements
        slot = self._slot()
        node, number = self._single(found, wanted, slot, not found.has_presence, depth)
        self.rows[of].append((found.number, wire, what, slot, number, -1))
        return node

    def _elements(self, found: Any, wanted: pa.DataType, depth: int) -> Elements:
        if pa.types.is_map(wanted) and found.message_type is not None:
            wanted = pa.map_(wanted.key_type, wanted.item_type)
            if not found.message_type.GetOptions().map_entry:
                raise ProtobufMismatch(f"field {found.full_name!r} is a list, where the source has {wanted}")
            within = pa.struct([("key", wanted.key_type), ("value", wanted.item_type)])
        elif pa.types.is_list(wanted) or pa.types.is_large_list(wanted):
            within = wanted.value_type
        else:
            raise ProtobufMismatch(f"field {found.full_name!r} is repeated, where the source has {wanted}")
        tables = FieldTables()
        node, _ = tables._single(found, within, tables._slot(), False, depth)
        made = Elements(len(self.lists), node, None if isinstance(node, Value) else tables)
        self.lists.append(made)
        return made

    def _single(
        self, found: Any, wanted: pa.DataType, slot: int, default: bool, depth: int
    ) -> tuple[Value | Message, int]:
        """One value of a field in a slot, and the number of its message. Raises ProtobufMismatch."""
        _, what, kind = _TYPES[found.type]
        if what != MESSAGE:
            names = None
            if found.enum_type is not None and not pa.types.is_integer(wanted):
                kind, names = pa.string(), {one.number: one.name for one in found.enum_type.values}
            _check_fits(found.full_name, kind, wanted)
            return Value(slot, kind, default, names), 0
        inner, name = found.message_type, found.message_type.full_name
        within, instant, wrapped = wanted, False, False
        if name == TIMESTAMP and pa.types.is_timestamp(wanted):
            within, instant = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())]), True
        elif name in WRAPPERS and not pa.types.is_struct(wanted):
            within, wrapped = pa.struct([("value", wanted)]), True
        else:
            _check_fits(found.full_name, kind, wanted)
        number, fields = self.message(inner, within, depth + 1)
        return Message(slot, fields, instant, wrapped), number

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def arrays(self) -> tuple[Int64s, Int64s]:
        """The fields, and where those of each message begin."""
        first = np.cumsum([0, *map(len, self.rows)])
        fields = [one for rows in self.rows for one in rows]
        return np.array(fields, np.int64).reshape(-1, 6), first.astype(np.int64)


def _check_fits(name: str, kind: pa.DataType, wanted: pa.DataType) -> None:
    if family(kind) != family(wanted):
        shown = "a message" if pa.types.is_struct(kind) else str(kind)
        raise ProtobufMismatch(f"field {name!r} is {shown}, where the source has {wanted}")


# --- descriptors --------------------------------------------------------------------------------------


def described(message: ProtobufMessage) -> Any:
    """The descriptor of a message. Raises ConfigError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    assert isinstance(message.descriptors, bytes)
    try:
        files = FileDescriptorSet.FromString(message.descriptors).file
        return _pool(list(files)).FindMessageTypeByName(message.name)
    except KeyError:
        raise ConfigError(f"ProtobufMessage: its descriptors have no message {message.name!r}") from None
    except (DecodeError, TypeError) as error:
        raise ConfigError(f"ProtobufMessage: its descriptors cannot be read: {error}") from None


def described_by(encoded: str, used: Sequence[tuple[str, str]], path: Sequence[int]) -> Any:
    """A message of a file as a registry has it (a FileDescriptorProto in Base64), by its place there.

    `used`: name and content of those that it imports, each behind those that it imports itself.

    Raises:
        ProtobufMismatch: it is none, or has no such message.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        files = []
        for name, content in [*used, ("", encoded)]:
            file = FileDescriptorProto.FromString(base64.b64decode(content, validate=True))
            file.name = name or "schema.proto"
            files.append(file)
        descriptors = list(_pool(files).FindFileByName("schema.proto").message_types_by_name.values())
        messages = {one.name: one for one in descriptors}
        at = files[-1].message_type[path[0]]
        descriptor = messages[at.name]
        for index in path[1:]:
            at = at.nested_type[index]
            descriptor = descriptor.nested_types_by_name[at.name]
    except (binascii.Error, DecodeError, TypeError, KeyError) as error:
        raise ProtobufMismatch(f"its descriptor cannot be read: {error}") from None
    except IndexError:
        raise ProtobufMismatch(f"it has no message at {list(path)}") from None
    return descriptor


def _pool(files: Sequence[Any]) -> Any:
    """A pool with each file behind those that it imports; Google's own are there anyway."""
    from google.protobuf import (  # noqa: F401  (registers them)
        descriptor_pool,
        duration_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    pool = descriptor_pool.DescriptorPool()
    given = {file.name for file in files}
    default = descriptor_pool.Default()

    def add_known(name: str) -> None:
        if name in given or not name.startswith("google/protobuf/"):
            return
        given.add(name)
        file = FileDescriptorProto()
        default.FindFileByName(name).CopyToProto(file)
        for dependency in file.dependency:
            add_known(dependency)
        pool.AddSerializedFile(file.SerializeToString())

    for file in files:
        for name in file.dependency:
            add_known(name)
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool
