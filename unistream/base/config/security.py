"""Security: who may ask the REST API, and what the servers of a cluster show each other."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import ConfigOption, WholeNumber, one_of, parse_bool, parse_places

REST_AUTHENTICATION: Final = ConfigOption(
    "security.rest.authentication",
    one_of("none", "token"),
    None,
    "`token`: the REST API answers the owner of the cluster, whose commands and programs on the same machine "
    "find a token by themselves, and who presents one of `unistream token create`. `none`: it answers every "
    "user of this machine, who can then run code as the cluster's owner, and clients that present no token, "
    "such as Flink's; a warning at the start says so. So does the port where workers of a standalone cluster "
    "register. Unset: `none` where "
    "it listens on a loopback address; anywhere else it is always `token`.",
)
REST_TLS: Final = ConfigOption(
    "security.ssl.rest.enabled",
    parse_bool,
    None,
    "The REST API speaks TLS, with a certificate of the cluster's own authority. Unset: where it listens on "
    "an address that is no loopback one; there it cannot be turned off.",
)
INTERNAL_TLS: Final = ConfigOption(
    "security.ssl.internal.enabled",
    parse_bool,
    None,
    "JobManager and workers speak TLS with each other, and each shows a certificate of the cluster's own "
    "authority. Unset: where jobmanager.bind-host is no loopback address; there it cannot be turned off.",
)
SECRET_FILE: Final = ConfigOption(
    "security.secret-file",
    str,
    None,
    "File with 32 characters or more, such as `openssl rand -hex 32` prints, with which the keys of the "
    "cluster are sealed where they are stored. All masters have it. Needed with several hosts where "
    "high-availability.storageDir is no local folder; the environment variable UNISTREAM_SECRET may have the "
    "characters instead.",
)
ALLOWED_PATHS: Final = ConfigOption(
    "security.allowed-paths",
    parse_places,
    None,
    "Folders and URLs, with commas between them, below which requests may name directories of savepoints and "
    "checkpoints, besides the cluster's own folders. Unset: in any object store. A token with the scope "
    "`admin` may name any place.",
)
SPARK_AUTHENTICATION: Final = ConfigOption(
    "security.spark.require-authentication",
    parse_bool,
    "false",
    "A cluster whose workers may be on other hosts does not start on a Spark whose processes do not know "
    "each other by a secret (spark.authenticate), or speak plain text (spark.network.crypto.enabled): "
    "workers get their keys with Spark's tasks. `false`: it says so, in its log and where jobs are listed.",
)
REST_RATE: Final = ConfigOption(
    "security.rest.requests-per-second",
    WholeNumber(0, 1_000_000),
    "200",
    "How many requests one token may make to the REST API in a second; it may save up those of 5 seconds. "
    "What is more gets status 429 and how long to wait (`Retry-After`), which commands, programs and Dagster "
    "do. 0: any number. Without tokens nothing is counted.",
)
