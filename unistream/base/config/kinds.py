"""What kind of value an option takes, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from unistream.base.config.parsing import (
    Bytes,
    ConfigOption,
    Duration,
    OneOf,
    RealNumber,
    WholeNumber,
    parse_asset_keys,
    parse_bool,
    parse_bytes,
    parse_duration_ms,
    parse_places,
    parse_ports,
)
from unistream.base.origins import parse_origins, parse_page_url
from unistream.base.servers import parse_cluster_id, parse_path, parse_zookeeper_servers

_KINDS: Final[dict[Callable[..., object], str]] = {
    parse_duration_ms: "duration",
    parse_bytes: "size",
    parse_bool: "boolean",
    str: "text",
    parse_cluster_id: "name",
    parse_path: "path",
    parse_zookeeper_servers: "servers",
    parse_origins: "origins",
    parse_places: "places",
    parse_ports: "ports",
    parse_page_url: "address",
    parse_asset_keys: "JSON",
}


def kind_of(option: ConfigOption[object]) -> str:
    """The kind of an option as the reference has it, with its bounds.

    >>> kind_of(ConfigOption("rest.port", WholeNumber(0, 65_535), "0", "Port."))
    'integer, 0 to 65535'
    """
    match option.parse:
        case OneOf(allowed):
            return f"choice: {', '.join(allowed)}"
        case WholeNumber(least, most, unset):
            return f"integer, {least} to {most}" + (f" or {unset}" if unset is not None else "")
        case Bytes(least, most):
            return f"size, {least} to {most} bytes"
        case Duration(least_ms):
            return f"duration, at least {least_ms} ms"
        case RealNumber() as number:
            return f"number {number.allowed}"
        case parse:
            return _KINDS[parse]
