"""High availability by ZooKeeper: the election, the pointers, and where the leader is.

Decides what is asked of ZooKeeper; who leads `core.leadership` decides. `election` is the shell around it;
`queue` its nodes; `fence` what makes a write a leader's; `store` the pointers; `folder` the marker and the
access rights; `client` all that is known of kazoo; `ports` what the election needs of its surroundings, so
that a simulation runs it as it is. May import: `ha.event_thread`, `ha.names`, `core`, `port`, `base`. Start
with `election`.
"""

from __future__ import annotations

from unistream.ha.zookeeper.election import ZooKeeperElection
from unistream.ha.zookeeper.retrieval import ZooKeeperRetrieval
from unistream.ha.zookeeper.settings import ZooKeeperSettings, zookeeper_settings
