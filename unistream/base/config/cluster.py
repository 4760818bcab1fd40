"""Cluster: the addresses of the master and where it keeps its metadata."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import (
    ConfigOption,
    Duration,
    WholeNumber,
    parse_asset_keys,
    parse_bool,
    parse_ports,
)
from unistream.base.origins import parse_origins, parse_page_url

REST_ADDRESS: Final = ConfigOption(
    "rest.address",
    str,
    "127.0.0.1",
    "By which name or address clients reach the REST API. One that is no loopback address: it speaks TLS and "
    "wants tokens.",
)
REST_BIND: Final = ConfigOption(
    "rest.bind-address",
    str,
    None,
    "Where the REST API listens, such as `0.0.0.0` or `::` for all addresses of this host; unset: "
    "rest.address.",
)
REST_BIND_PORT: Final = ConfigOption(
    "rest.bind-port",
    parse_ports,
    None,
    "Ports of the REST API, of which the first free one is used, such as `50100-50200`; unset: rest.port.",
)
REST_PORT: Final = ConfigOption(
    "rest.port", WholeNumber(0, 65_535), "0", "Port of the REST API; 0: a free one."
)
WEB_CANCEL_ENABLE: Final = ConfigOption(
    "web.cancel.enable",
    parse_bool,
    "true",
    "Whether jobs can be cancelled, stopped, rescaled and started from the web UI. False: what a browser "
    "asks to change is refused; the command line and other clients are not.",
)
WEB_SUBMIT_ENABLE: Final = ConfigOption(
    "web.submit.enable",
    parse_bool,
    "true",
    "Whether the cluster plans pipelines by itself, which it imports on the machine of its JobManager, and "
    "starts them: the page *Submit* of the web UI. It asks for the scope `submit`, as each submission does.",
)
WEB_PUBLIC_ORIGINS: Final = ConfigOption(
    "web.public-origins",
    parse_origins,
    None,
    "Origins of the reverse proxies through which browsers reach the web UI, such as "
    "`https://jobs.example.com`, with commas between them. Their pages may act; no other page may read or "
    "change anything, ever.",
)
WEB_DAGSTER_URL: Final = ConfigOption(
    "web.dagster-url",
    parse_page_url,
    None,
    "Address of Dagster's pages, such as `http://localhost:3000`: the web UI links the runs that have "
    "started a job there, and the assets that it writes. Unset: it shows their ids and keys.",
)
DAGSTER_ASSETS: Final = ConfigOption(
    "dagster.assets",
    parse_asset_keys,
    None,
    'Keys of the assets that the job represents in Dagster, as JSON: `[["lake", "orders"]]`. Dagster\'s '
    "library sets it; it says nothing of how the job runs.",
)
STANDALONE_PORT: Final = 6123
"""The port of a standalone cluster's JobManager, as in Flink."""
JOBMANAGER_PORT: Final = ConfigOption(
    "jobmanager.rpc.port",
    WholeNumber(0, 65_535),
    None,
    f"Port on which the JobManager listens for standalone workers; unset: {STANDALONE_PORT} for a standalone "
    "cluster, otherwise none.",
)
JOBMANAGER_BIND: Final = ConfigOption(
    "jobmanager.bind-host",
    str,
    "127.0.0.1",
    "Where the JobManager listens for its workers, such as `0.0.0.0` or `::` for all addresses of this host. "
    "One that is no loopback address: workers may be on other hosts, and speak TLS.",
)
JOBMANAGER_ADDRESS: Final = ConfigOption(
    "jobmanager.rpc.address",
    str,
    None,
    "By which name or address workers on other hosts reach the JobManager; unset: jobmanager.bind-host, or "
    "the name of this host, if that is all its addresses.",
)
METADATA_URL: Final = ConfigOption(
    "metadata.url",
    str,
    None,
    "SQLAlchemy URL of the job metadata; unset: SQLite, `metadata.db` in `$UNISTREAM_HOME`, for all clusters "
    "of a user.",
    secret=True,
)
SAVEPOINT_QUERIES: Final = ConfigOption(
    "web.savepoint-query.enable",
    parse_bool,
    "true",
    "The REST API answers SQL over the state of its jobs' snapshots; false: it shows their contents without "
    "rows.",
)
DEAD_LETTER_ROWS: Final = ConfigOption(
    "web.dead-letters.enable",
    parse_bool,
    "true",
    "The REST API shows the rows of dead letters, from the tables that a job's sinks write, and replays "
    "them; false: it counts them.",
)
CLIENT_TIMEOUT: Final = ConfigOption(
    "client.timeout",
    Duration(1),
    "60 s",
    "Longest wait of a client for the answer to one call, with all repetitions, and for a cluster that is "
    "away while the client waits for a job or a savepoint.",
)


def names_cluster(key: str) -> bool:
    """The option says which cluster is meant, not how a job runs.

    >>> names_cluster("rest.port"), names_cluster("rest.other")
    (True, False)
    """
    return key in {REST_ADDRESS.key, REST_PORT.key, "security.ssl.rest.enabled"} or key.startswith(
        "high-availability"
    )
