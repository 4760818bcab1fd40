"""What deltalake says of a store that fails, or refuses access: in words of the library below it."""

from __future__ import annotations

import re
from typing import Final

from unistream.base.errors import ConfigError, Unreachable
from unistream.base.os_failures import stays

_REFUSED: Final = re.compile(r"lacked the necessary privileges|lacked valid authentication credentials")
"""The texts of object_store for 403 and 401 of any store."""
_STATUS: Final = re.compile(r"\b(40[13]) (?:Forbidden|Unauthorized)")
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>\s*(?:<Message>([^<]*)</Message>)?")


_CAUSE: Final = re.compile(r"^\s*(?:\x1b\[[0-9;]*m)*↳(?:\x1b\[[0-9;]*m)*\s*")
"""How it begins the line of a cause."""


_NEWER: Final = ("Unsupported", "Max catalog version")
_DAMAGED: Final = (
    "Arrow error: EOF",
    "Expected contiguous commit files",
    "Failed to parse",
    "Json error",
    "No table metadata or protocol found",
    "Schema error",
    "missing field",
)
_NO_KEY: Final = "an error occurred while loading credentials"
_GIVE_A_KEY: Final = (
    "give a key that may list, read and write that folder: s3.access-key and s3.secret-key, or "
    "storage_options and filesystem_options of the table"
)
_NO_FOLDER: Final = "Invalid table location"
"""The beginning of deltalake's messages for tables that it will never read. Any other may be of a store that
fails."""


def failed(uri: str, error: Exception) -> ConfigError | Unreachable:
    """What an error of deltalake means: that of a table which stays unreadable says so, and is not retried.

    >>> failed("/lake/t", Exception("Kernel error: Json error: EOF"))
    ConfigError('table /lake/t cannot be read: its log is damaged: Kernel error: Json error: EOF')
    >>> failed("s3://lake/t", OSError("Generic S3 error: connection refused"))
    Unreachable('table s3://lake/t could not be read: Generic S3 error: connection refused')
    """
    from deltalake.exceptions import DeltaProtocolError  # sources are declared where it is not installed

    refused = refused_access(uri, error)
    if refused is not None:
        return refused
    text = brief(error)
    if any(one in text for one in _NEWER) or isinstance(error, DeltaProtocolError):
        return ConfigError(
            f"table {uri} cannot be read: {text}; it needs a newer version of deltalake, or its owner drops "
            "that feature"
        )
    if any(one in text for one in _DAMAGED):
        return ConfigError(f"table {uri} cannot be read: its log is damaged: {text}")
    if _NO_KEY in text:  # on a machine with a role that may pass
        why = text.rpartition(_NO_KEY)[2].strip(": ")
        return Unreachable(f"table {uri}: no key for its store was found ({why}); {_GIVE_A_KEY}")
    if _NO_FOLDER in text or stays(error):
        return ConfigError(f"table {uri} cannot be read: {text}")
    return Unreachable(f"table {uri} could not be read: {text}")


def brief(error: BaseException) -> str:
    r"""The text of an error in one line: deltalake writes each cause, and each part behind a colon, in a
    coloured line of its own; below may be its stack, which is left out.

    >>> brief(OSError("Kernel error: S3\n  \x1b[31m↳\x1b[0m connect  error\n   0: <unknown>"))
    'Kernel error: S3: connect error'
    """
    first, *below = str(error).strip().splitlines() or [type(error).__name__]
    causes = [_CAUSE.sub("", line) for line in below if _CAUSE.match(line)]
    return ": ".join(" ".join(part.split()) for part in (first, *causes))


def refused_access(uri: str, error: BaseException) -> ConfigError | None:
    """The error of a store that refuses access; None: `error` is something else, which may pass.

    >>> refused_access("s3://lake/orders", OSError("connection reset"))
    """
    text = str(error)
    if "<Code>NoSuchBucket</Code>" in text:
        return ConfigError(f"table {uri}: its bucket does not exist; make it, or correct the address")
    if not _REFUSED.search(text):
        return None
    status, code = _STATUS.search(text), _CODE.search(text)
    found = [status.group(1) if status else "", *(code.groups(default="") if code else ())]
    why = " ".join(one for one in found if one).rstrip(".") or "no permission"
    return ConfigError(f"table {uri}: its store refused access ({why}); {_GIVE_A_KEY}")
