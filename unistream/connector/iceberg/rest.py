"""A REST catalogue that is not waited for without limit.

pyiceberg gives its HTTP requests no timeout, so a server that accepts a connection and says nothing would
hold up a commit for ever. The one place that overrides a private method of pyiceberg; `test_iceberg_rest`
shows that it is still called.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from pyiceberg.catalog.rest import RestCatalog

CONNECT_TIMEOUT_S: Final = 10
SILENT_TIMEOUT_S: Final = 60  # between two bytes of an answer; a commit of a large table may take seconds


class LimitedRestCatalog(RestCatalog):  # type: ignore[misc]  # pyiceberg is not read by mypy
    """A `RestCatalog` whose requests raise `requests.Timeout` if they are not answered in time."""

    def _create_session(self) -> Any:
        session = super()._create_session()
        session.request = partial(session.request, timeout=(CONNECT_TIMEOUT_S, SILENT_TIMEOUT_S))
        return session
