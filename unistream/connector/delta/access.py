"""What deltalake says of a store that fails, or refuses access: in words of the library below it."""

from __future__ import annotations

import re
from typing import Final

from unistream.base.errors import ConfigError

_REFUSED: Final = re.compile(r"lacked the necessary privileges|lacked valid authentication credentials")
"""Of object_store, for 403 and 401 of any store."""
_STATUS: Final = re.compile(r"\b(40[13]) (?:Forbidden|Unauthorized)")
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>\s*(?:<Message>([^<]*)</Message>)?")


_CAUSE: Final = re.compile(r"^\s*(?:\x1b\[[0-9;]*m)*↳(?:\x1b\[[0-9;]*m)*\s*")
"""How it begins the line of a cause."""


def brief(error: BaseException) -> str:
    r"""In one line: deltalake writes each cause, and each part behind a colon, in a coloured line of its own;
    below may be its stack, which is left out.

    >>> brief(OSError("Kernel error: S3\n  \x1b[31m↳\x1b[0m connect  error\n   0: <unknown>"))
    'Kernel error: S3: connect error'
    """
    first, *below = str(error).strip().splitlines() or [type(error).__name__]
    causes = [_CAUSE.sub("", line) for line in below if _CAUSE.match(line)]
    return ": ".join(" ".join(part.split()) for part in (first, *causes))


def refused_access(uri: str, error: BaseException) -> ConfigError | None:
    """None: `error` is something else, which may pass.

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
    return ConfigError(
        f"table {uri}: its store refused access ({why}); give a key that may list, read and write that "
        "folder: s3.access-key and s3.secret-key, or storage_options and filesystem_options of the table"
    )
