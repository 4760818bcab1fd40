"""The local stack: real Kafka, ZooKeeper and S3 servers on loopback, for tests and demos.

`stack` starts and stops them, `servers` knows their configuration, `jars` gets what Kafka needs,
`process` owns the processes. Start with `stack`.
"""

from __future__ import annotations

from unistream.testing.devtools.jars import cache_dir
from unistream.testing.devtools.servers import KAFKA, S3, ZOOKEEPER
from unistream.testing.devtools.stack import down, log_tail, status, up
