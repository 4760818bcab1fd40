"""Access to a table that its store refuses, as deltalake reports it: in words of the library below it."""

from __future__ import annotations

import re
from typing import Final

from unistream.base.errors import ConfigError

_REFUSED: Final = re.compile(r"lacked the necessary privileges|lacked valid authentication credentials")
"""Of object_store, for 403 and 401 of any store."""
_STATUS: Final = re.compile(r"\b(40[13]) (?:Forbidden|Unauthorized)")
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>\s*(?:<Message>([^<]*)</Message>)?")


def refused_access(uri: str, error: BaseException) -> ConfigError | None:
    """None: `error` is something else, which may pass.

    >>> refused_access("s3://lake/orders", OSError("connection reset"))
    """
    text = str(error)
    if not _REFUSED.search(text):
        return None
    status, code = _STATUS.search(text), _CODE.search(text)
    found = [status.group(1) if status else "", *(code.groups(default="") if code else ())]
    why = " ".join(one for one in found if one).rstrip(".") or "no permission"
    return ConfigError(
        f"table {uri}: its store refused access ({why}); give a key that may list, read and write that "
        "folder: s3.access-key and s3.secret-key, or storage_options and filesystem_options of the table"
    )
