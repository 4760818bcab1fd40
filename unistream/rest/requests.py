"""Parses REST requests once, into types that cannot be wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from unistream.base.errors import UNDECODABLE, ConfigError
from unistream.base.ids import JobId, TaskManagerId
from unistream.base.path_names import refused_path
from unistream.model.snapshot_kind import CheckpointType, SavepointFormat

if TYPE_CHECKING:
    from fastapi import Request  # a leader that nobody asks does without

ID: Final = re.compile(r"^[0-9a-fA-F]{32}$")
TASK_MANAGER: Final = re.compile(r"^[A-Za-z0-9._:-]{1,100}$")
TARGET_CHARS_MAX: Final = 1_024
TARGET_SCHEMES: Final = frozenset({"file", "memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hdfs"})
"""Where a caller may send a savepoint: stores, never a web address."""

_SCHEME: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)(?:://|:(?=/))")


B = TypeVar("B")


class SavepointBody(
    msgspec.Struct,
    frozen=True,
    rename={
        "target": "target-directory",
        "cancel": "cancel-job",
        "format": "formatType",
        "trigger": "triggerId",
    },
):
    """POST /jobs/{id}/savepoints. Unknown fields are ignored. `trigger`: an id chosen by the client, with
    which the request may be sent again."""

    target: str | None = None
    cancel: bool | None = None
    format: str | None = None
    trigger: str | None = None


class StopBody(
    msgspec.Struct,
    frozen=True,
    rename={"target": "targetDirectory", "format": "formatType", "trigger": "triggerId"},
):
    """The body of POST /jobs/{id}/stop."""

    target: str | None = None
    drain: bool | None = None
    format: str | None = None
    trigger: str | None = None


class CheckpointBody(msgspec.Struct, frozen=True, rename={"type": "checkpointType", "trigger": "triggerId"}):
    """The body of POST /jobs/{id}/checkpoints."""

    type: str | None = None
    trigger: str | None = None


def job_id(text: str) -> JobId:
    """Raises ConfigError unless it is 32 hex digits."""
    return JobId(_hex_id(text, "job"))


def trigger_id(text: str) -> str:
    """Raises ConfigError unless it is 32 hex digits."""
    return _hex_id(text, "trigger")


def chosen_trigger(text: str | None) -> str | None:
    """The trigger id that a client has chosen, if it has. Raises ConfigError unless it is 32 hex digits."""
    return None if text is None else trigger_id(text)


def _hex_id(text: str, what: str) -> str:
    if ID.fullmatch(text) is None:
        raise ConfigError(f"{text[:80]!r} is not a {what} id (32 hex digits)")
    return text.lower()


def task_manager_id(text: str) -> TaskManagerId:
    if TASK_MANAGER.fullmatch(text) is None:
        raise ConfigError(f"{text[:80]!r} is not a task manager id")
    return TaskManagerId(text)


def target(text: str | None) -> str | None:
    """The directory for a savepoint: an absolute path or a URL of a known store, without `..`.

    >>> target("/data/savepoints")
    '/data/savepoints'
    """
    if text is None:
        return None
    scheme = _SCHEME.match(text)
    where = f"savepoint directory {text[:200]!r}"
    if not 0 < len(text) <= TARGET_CHARS_MAX or "\x00" in text or "\\" in text or "%" in text:
        raise ConfigError(f"{where}: 1 to {TARGET_CHARS_MAX} characters, without NUL, backslash or %")
    if scheme is None and not text.startswith("/"):
        raise ConfigError(f"{where}: give an absolute path or a URL")
    if scheme is not None and scheme[1].lower() not in TARGET_SCHEMES:
        raise ConfigError(f"{where}: scheme {scheme[1]!r} is not one of {', '.join(sorted(TARGET_SCHEMES))}")
    if ".." in text.split("/"):
        raise ConfigError(f"{where}: must not contain '..'")
    why = refused_path(text)
    if why is not None:
        raise ConfigError(f"savepoint directory: {why}")
    return text


def checkpoint_type(text: str | None) -> CheckpointType:
    """Default: as configured, as in Flink. Raises ConfigError for an unknown type."""
    return CheckpointType.CONFIGURED if text is None else CheckpointType.parse(text)


def savepoint_format(text: str | None) -> SavepointFormat:
    """Default: canonical, as in Flink. Raises ConfigError for an unknown format."""
    return SavepointFormat.CANONICAL if text is None else SavepointFormat.parse(text)


async def body_of(request: Request, kind: type[B]) -> B:
    """Raises ConfigError for anything that is not JSON of that shape.

    The content type is required: a web page cannot send it to another origin without permission.
    """
    content, content_type = await request.body(), request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise ConfigError(f"the body must be application/json, not {content_type[:80]!r}")
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except RecursionError:
        raise ConfigError("the body is nested too deeply") from None
    except UNDECODABLE as error:
        raise ConfigError(f"the body does not fit: {error}") from error


def whole_number(request: Request, name: str, default: int, most: int, *, least: int = 0) -> int:
    """The parameter `name`. Raises ConfigError: it is not a whole number from `least` to `most`."""
    text = request.query_params.get(name, str(default))
    if not (
        text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and least <= int(text) <= most
    ):
        raise ConfigError(f"{name}: {text[:80]!r} is not a whole number from {least} to {most}")
    return int(text)
