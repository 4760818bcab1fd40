"""The history of jobs on this machine, read from its database: no cluster needs to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unistream.base.clock import SystemClock
from unistream.base.config import Configuration
from unistream.base.ids import NO_CLUSTER
from unistream.client import home

if TYPE_CHECKING:
    from unistream.master.job_info import JobSummary


def ended_jobs(config: Configuration) -> list[JobSummary]:
    """Jobs that do not run, of all clusters that kept their history where those with this configuration do;
    newest first. Empty if none has yet.

    Raises:
        ConfigError: `metadata.url` cannot be used, or its schema is another version's.
        Unreachable: the database does not answer.
    """
    from unistream.master.ended_jobs import read_ended
    from unistream.metadata.engine import parse_url, sqlite_path
    from unistream.metadata.store import SqlMetadataStore

    url = home.metadata_url(config)
    path = sqlite_path(parse_url(url))
    if path is not None and not path.exists():
        return []
    store = SqlMetadataStore(url)
    try:
        return read_ended(store, SystemClock().wall_ms(), NO_CLUSTER)
    finally:
        store.close()
