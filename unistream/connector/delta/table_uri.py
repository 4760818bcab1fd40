"""Where a Delta table is: paths and URLs that deltalake reads back as they were written. Pure."""

from __future__ import annotations

import re
from typing import Final

from unistream.base.errors import ConfigError
from unistream.connector.common import absolute

SCHEMES: Final = frozenset(
    {"file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "azure", "adl", "hdfs", "r2", "oss"}
)
_READ_OTHERWISE: Final = re.compile(r"%[0-9A-Fa-f]{2}|\\|[\x00-\x1f\x7f]")
"""What a local path must not have: deltalake writes there, and looks for what it decodes to."""


def checked_uri(uri: str, what: str) -> str:
    """The absolute path or URL of a table. `what`: has the table, as "sink". Raises ConfigError: deltalake
    stores no table there."""
    if not uri:
        raise ConfigError(f"a Delta {what} needs the path or URL of its table")
    scheme = uri.partition("://")[0] if "://" in uri else "file"
    if scheme not in SCHEMES:
        known = ", ".join(sorted(SCHEMES))
        raise ConfigError(f"{uri}: Delta tables are stored on {known}, not on {scheme!r}")
    found = _READ_OTHERWISE.search(uri) if scheme == "file" else None
    if found is not None:
        raise ConfigError(
            f"{uri!r}: deltalake reads {found[0]!r} in a path otherwise than it writes it; rename the folder"
        )
    return absolute(uri)
