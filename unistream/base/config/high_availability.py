"""High availability: who leads a cluster, and where its next leader finds the jobs."""

from __future__ import annotations

from typing import Final

from unistream.base.config.parsing import ConfigOption, Duration, WholeNumber, one_of, parse_bool
from unistream.base.servers import parse_cluster_id, parse_path, parse_zookeeper_servers

HA_TYPE: Final = ConfigOption(
    "high-availability.type",
    one_of("single", "zookeeper"),
    "single",
    "single: one master, which finds its jobs in the cluster's folder when it starts again. zookeeper: "
    "several masters, of which ZooKeeper elects the leader; clients and workers find it there.",
    other_keys=("high-availability",),
)
HA_CLUSTER_ID: Final = ConfigOption(
    "high-availability.cluster-id",
    parse_cluster_id,
    "default",
    "Masters with the same id are one cluster. Clusters that share a ZooKeeper need different ones.",
)
HA_STORAGE_DIR: Final = ConfigOption(
    "high-availability.storageDir",
    str,
    None,
    "URL of the folder for submitted jobs and their code; ZooKeeper only holds pointers into it. All masters "
    "and workers of a cluster reach it: it is also where checkpoints and savepoints are, unless their own "
    "options say otherwise. Each cluster has a folder in it, named by its id. Required with zookeeper; with "
    "single the default is the cluster's own folder.",
)
ZOOKEEPER_QUORUM: Final = ConfigOption(
    "high-availability.zookeeper.quorum",
    parse_zookeeper_servers,
    None,
    "The servers of ZooKeeper, such as zk1:2181,zk2:2181,zk3:2181. A path behind the last one is the folder "
    "that counts as root (chroot); it must exist.",
)
ZOOKEEPER_ROOT: Final = ConfigOption(
    "high-availability.zookeeper.path.root",
    parse_path,
    "/unistream",
    "Folder of ZooKeeper below which each cluster has a folder, named by its id.",
)
ZOOKEEPER_ACL: Final = ConfigOption(
    "high-availability.zookeeper.client.acl",
    one_of("open", "creator"),
    "open",
    "Who may read and write what is stored in ZooKeeper: everyone, or only clients with the same "
    "credentials.",
)
ZOOKEEPER_SESSION_TIMEOUT: Final = ConfigOption(
    "high-availability.zookeeper.client.session-timeout",
    Duration(1_000),
    "60 s",
    "A master without contact to ZooKeeper for this long has lost its leadership, and another one leads. The "
    "server may set other limits (by default at most 20 times its tickTime, which is 40 s).",
)
ZOOKEEPER_CONNECTION_TIMEOUT: Final = ConfigOption(
    "high-availability.zookeeper.client.connection-timeout",
    Duration(100),
    "15 s",
    "Longest wait for a connection, and for an answer to a request.",
)
ZOOKEEPER_RETRY_WAIT: Final = ConfigOption(
    "high-availability.zookeeper.client.retry-wait",
    Duration(10),
    "5 s",
    "Longest pause between two attempts to connect; the first pauses are shorter.",
)
ZOOKEEPER_RETRY_ATTEMPTS: Final = ConfigOption(
    "high-availability.zookeeper.client.max-retry-attempts",
    WholeNumber(0, 1_000),
    "3",
    "How often a read is repeated when its connection was lost. Writes are not repeated.",
)
ZOOKEEPER_AUTHORIZATION: Final = ConfigOption(
    "high-availability.zookeeper.client.authorization",
    str,
    None,
    "Credentials as scheme:user:password with the scheme digest or sasl (DIGEST-MD5), or a reference to them "
    "such as ${env:NAME}.",
    secret=True,
)
ZOOKEEPER_SSL: Final = ConfigOption(
    "high-availability.zookeeper.client.ssl.enabled",
    parse_bool,
    "false",
    "Connect by TLS, to the secureClientPort of the servers. Flink leaves this to properties of Java.",
)
ZOOKEEPER_SSL_CA: Final = ConfigOption(
    "high-availability.zookeeper.client.ssl.ca",
    str,
    None,
    "PEM file with the authorities whose certificates of servers are trusted, besides those of this machine.",
)
ZOOKEEPER_SSL_CERTIFICATE: Final = ConfigOption(
    "high-availability.zookeeper.client.ssl.certificate",
    str,
    None,
    "PEM file with the certificate by which this client shows who it is, if the servers ask for one.",
)
ZOOKEEPER_SSL_KEY: Final = ConfigOption(
    "high-availability.zookeeper.client.ssl.key",
    str,
    None,
    "PEM file with the private key of that certificate, without a password.",
)
ZOOKEEPER_SSL_HOSTNAME: Final = ConfigOption(
    "high-availability.zookeeper.client.ssl.verify-hostname",
    parse_bool,
    "true",
    "A server's certificate has to name the host as the quorum does. false: any trusted certificate will do.",
)
