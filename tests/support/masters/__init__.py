"""Several masters in a simulated cluster: they contend in a model of ZooKeeper for the right to lead.

The election with all that it uses (`unistream.ha.zookeeper`), its contender (`client.embedded.contending`)
and the whole master are the product's. Start with `run`; `place` puts a process together, on threads of
`machine`; the model is `zookeeper` with `tree`, its client `connection`.
"""

from __future__ import annotations

from typing import Final

REQUIRED_MARKS: Final = (
    "ZooKeeper lost its quorum",
    "a cancellation was accepted",
    "a client came back after its session was over",
    "a client came back in the same session",
    "a connection to ZooKeeper broke, and a write was done",
    "a connection to ZooKeeper broke, and a write was not done",
    "a former leader listed checkpoints",
    "a job was recovered by another leader",
    "a job was rescaled by hand",
    "a leader could not begin, and tried again",
    "a leader was killed in a healthy cluster",
    "a leader was killed when a job had just ended",
    "a leader was resumed",
    "a leader was revoked",
    "a leader was struck at a chosen moment",
    "a leader was suspended",
    "a loop waited while its master was suspended",
    "a master found no ZooKeeper, and was started again",
    "a master was cut off from ZooKeeper alone",
    "a master was ended by its user",
    "a master was killed",
    "a master was stopped and went on",
    "a pool of a master was busy",
    "a process was killed during a call",
    "a read was answered with an old state",
    "a request waited for a connection to ZooKeeper",
    "a run was completed",
    "a savepoint was completed",
    "a server of ZooKeeper was cut off from the others",
    "a stopped job was restored from its snapshot",
    "a submission was repeated",
    "a thread stood still before a request to ZooKeeper",
    "a transaction of the metadata died with its master",
    "a watch was lost with its connection",
    "a worker lost its master",
    "an answer of ZooKeeper was late",
    "an answer to a user was lost",
    "another master has taken over",
    "everything was restarted at once",
    "the node of a suspended leader was removed by hand",
)
"""Each must be reached by at least one run of a batch."""
