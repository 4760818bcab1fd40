"""Checks the properties of a Kafka source and turns them into settings of the client.

Properties have the Java client's names ("security.protocol") or kafka-python's ("security_protocol"). A value
``${env:NAME}`` or ``${file:PATH}`` is resolved where the client is created, so that the pipeline, the job
graph and savepoints do not contain passwords.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from unistream.base.config import parse_bool
from unistream.base.errors import ConfigError
from unistream.base.references import has_reference
from unistream.base.secrets import Secret, redacted, resolved

Properties: TypeAlias = Mapping[str, str | Secret]

CONNECT_TIMEOUT_MS: Final = 10_000
REQUEST_TIMEOUT_MS: Final = 10_000
GROUP_ID: Final = "group_id"
GROUP_PROPERTY: Final = "group.id"

# set by the reader; other values would break its guarantees
OWNED: Final = frozenset(
    {
        "bootstrap_servers",
        "auto_offset_reset",
        "enable_auto_commit",
        "key_deserializer",
        "value_deserializer",
        "max_poll_records",
        "allow_auto_create_topics",
        "consumer_timeout_ms",
        "partition_assignment_strategy",
        "default_offset_commit_callback",
        "kafka_client",
        "selector",
        "metric_reporters",
    }
)

DEFAULTS: Final[dict[str, Any]] = {
    "isolation_level": "read_committed",
    "max_partition_fetch_bytes": 2 * 2**20,  # about ten thousand rows: one batch for the pipeline
    "fetch_max_wait_ms": 100,
    "request_timeout_ms": REQUEST_TIMEOUT_MS,
    "bootstrap_timeout_ms": CONNECT_TIMEOUT_MS,
    "reconnect_backoff_max_ms": 1_000,
    "client_id": "unistream",
    "metrics_enabled": False,
}


def check_properties(properties: Properties) -> None:
    """Raises ConfigError for an unknown property, or a value of a wrong type."""
    later = {key for key, value in properties.items() if isinstance(value, str) and has_reference(value)}
    client_settings("checked:1", {k: v for k, v in properties.items() if k not in later})
    _names(dict.fromkeys(later, ""), _known(), "source")


def admin_settings(bootstrap_servers: str, properties: Properties) -> dict[str, Any]:
    """Arguments of an admin client, over whose connections a sink writes."""
    known = _known_of_sink()
    given = {
        name: _typed(name, resolved(f"Kafka property {name!r}", properties[key]), known[name])
        for key, name in _names(properties, known, "sink").items()
    }
    defaults = {name: value for name, value in DEFAULTS.items() if name in known}
    return {
        **defaults,
        **given,
        "bootstrap_servers": [server.strip() for server in bootstrap_servers.split(",")],
    }


def check_sink_properties(properties: Properties) -> None:
    """Checks the properties of a sink, as `check_properties` those of a source."""
    later = {key for key, value in properties.items() if isinstance(value, str) and has_reference(value)}
    admin_settings("checked:1", {k: v for k, v in properties.items() if k not in later})
    _names(dict.fromkeys(later, ""), _known_of_sink(), "sink")


def source_properties(properties: Properties) -> Properties:
    """The properties of a sink that a source has, too: how brokers are reached, and who logs in."""
    known = _known()
    return {key: value for key, value in properties.items() if key.replace(".", "_") in known}


def client_settings(bootstrap_servers: str, properties: Properties) -> dict[str, Any]:
    """The arguments of a consumer with manual assignment and without automatic commits."""
    known = _known()
    given = {
        name: _typed(name, resolved(f"Kafka property {name!r}", properties[key]), known[name])
        for key, name in _names(properties, known, "source").items()
    }
    return {
        **DEFAULTS,
        **given,
        "bootstrap_servers": [server.strip() for server in bootstrap_servers.split(",")],
        "auto_offset_reset": "none",
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
        "group_id": given.get(GROUP_ID),
    }


def group_id(properties: Properties) -> str | None:
    """The group to which positions are committed, and which "committed" starts from; None: there is none."""
    found = properties.get(GROUP_PROPERTY, properties.get(GROUP_ID))
    return None if found is None else resolved(f"Kafka property {GROUP_PROPERTY!r}", found)


def _known() -> Mapping[str, Any]:
    from kafka import KafkaConsumer

    return {name: default for name, default in KafkaConsumer.DEFAULT_CONFIG.items() if name not in OWNED}


def _known_of_sink() -> Mapping[str, Any]:
    from kafka import KafkaAdminClient

    return {name: default for name, default in KafkaAdminClient.DEFAULT_CONFIG.items() if name not in OWNED}


def _names(properties: Properties, known: Mapping[str, Any], of: str) -> dict[str, str]:
    """The names of properties: name as given -> kafka-python's name. `of`: a "source" or a "sink"."""
    names = {key: key.replace(".", "_") for key in properties}
    for key, name in names.items():
        if name == "partition_discovery_interval_ms":
            raise ConfigError(
                f"{key!r} is not a property of the client; give the source {name}={properties[key]}"
            )
        if name in OWNED:
            raise ConfigError(f"Kafka property {key!r} is set by the {of}; remove it")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0].replace('_', '.')!r}?" if near else ""
            raise ConfigError(f"unknown Kafka property {key!r}{hint}")
    return names


def _typed(name: str, text: str, default: Any) -> Any:
    """The text in the type of the setting's default."""
    try:
        if isinstance(default, bool):
            return parse_bool(text)
        if isinstance(default, int):
            return int(text)
    except (ValueError, ConfigError):
        wanted = "true or false" if isinstance(default, bool) else "a whole number"
        shown = redacted(text, name)
        raise ConfigError(f"Kafka property {name.replace('_', '.')!r}: {shown!r} is not {wanted}") from None
    return text
