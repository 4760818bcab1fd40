"""High availability by ZooKeeper: the election, the pointers, and where the leader is.

`election` is the shell around `core.leadership`; `queue` its nodes; `fence` what makes a write a leader's;
`store` the pointers; `folder` the marker and the access rights; `client` all that is known of kazoo; `ports`
what of the surroundings the election needs, so that a simulation runs it as it is. May
import: `core`, `port`, `base`. Start with `election`.
"""

from __future__ import annotations

from unistream.ha.zookeeper.election import ZooKeeperElection
from unistream.ha.zookeeper.retrieval import ZooKeeperRetrieval
from unistream.ha.zookeeper.settings import ZooKeeperSettings, zookeeper_settings
