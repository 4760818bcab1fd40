"""The local stack: real Kafka, ZooKeeper and S3 servers on loopback, for tests and demos.

`stack` starts and stops them, `servers` knows their configuration, `jars` gets what Kafka needs,
`process` owns the processes. Start with `stack`.
"""

from __future__ import annotations

from unistream.testing.devtools.jars import cache_dir
from unistream.testing.devtools.kafka_tools import create_topic, topic_partitions
from unistream.testing.devtools.object_store import make_bucket, options_of
from unistream.testing.devtools.process import port_is_free
from unistream.testing.devtools.servers import KAFKA, S3, SERVERS, ZOOKEEPER
from unistream.testing.devtools.stack import ServerStatus, address_of, down, log_tail, status, up
