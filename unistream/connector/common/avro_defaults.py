"""Defaults of Avro as values that Arrow takes. In a schema they are JSON, with a character for each byte.
Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from unistream.connector.common.avro_schema import AvroSchema, ParsedSchema, UnknownSchema
from unistream.connector.common.avro_types import Types


class Defaults:
    """The default values of the fields of one schema."""

    def __init__(self, schema: ParsedSchema) -> None:
        self._types = Types(schema)
        self._called = schema.called

    def of(self, field: Any) -> Any:
        """Raises UnknownSchema: it is none of its type."""
        try:
            return self._value(field["type"], field["default"])
        except (AttributeError, KeyError, TypeError, ValueError, UnicodeEncodeError) as error:
            raise UnknownSchema(
                f"the default of field {field['name']!r} of {self._called} is not of its type: {error!r}"
            ) from None

    def _value(self, schema: AvroSchema, given: Any) -> Any:
        if given is None:
            return None
        branches = self._types.branches(schema)
        found = next((one for one in branches if _is_of(one, given)), None)
        if found is None:
            raise ValueError(f"{given!r} is of another type")
        match found["type"]:
            case "bytes" | "fixed":
                return _of_bytes(found, given if isinstance(given, bytes) else given.encode("latin-1"))
            case "array":
                return [self._value(found["items"], one) for one in given]
            case "map":
                return {key: self._value(found["values"], one) for key, one in given.items()}
            case "record" | "error":
                return {
                    one["name"]: self._value(one["type"], given[one["name"]])
                    if one["name"] in given
                    else self.of(one)
                    for one in found["fields"]
                }
            case _:
                return given


def _of_bytes(schema: Any, content: bytes) -> bytes | Decimal:
    if schema.get("logicalType") != "decimal":
        return content
    return Decimal(int.from_bytes(content, "big", signed=True)).scaleb(-schema.get("scale", 0))


def _is_of(schema: Any, given: Any) -> bool:
    kinds: dict[str, tuple[type, ...]] = {
        "boolean": (bool,),
        "int": (int,),
        "long": (int,),
        "float": (int, float),
        "double": (int, float),
        "string": (str,),
        "enum": (str,),
        "bytes": (str, bytes, Decimal),
        "fixed": (str, bytes, Decimal),
        "array": (list,),
        "map": (dict,),
        "record": (dict,),
        "error": (dict,),
    }
    is_bool = isinstance(given, bool)
    return isinstance(given, kinds[schema["type"]]) and (not is_bool or schema["type"] == "boolean")


def with_values(schema: ParsedSchema) -> AvroSchema:
    """What `plain` has, with defaults as values: fastavro takes them as they are. Raises UnknownSchema."""
    defaults = Defaults(schema)

    def converted(one: AvroSchema) -> AvroSchema:
        if isinstance(one, list):
            return [converted(inner) for inner in one]
        if not isinstance(one, dict):
            return one
        found = {key: converted(inner) for key, inner in one.items() if key != "default"}
        if "default" in one:
            is_field = "type" in one and "symbols" not in one  # an enum has one, too
            found["default"] = defaults.of(one) if is_field else one["default"]
        return found

    return converted(schema.plain)
