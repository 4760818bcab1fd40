"""Threads of the shells: a mailbox with timers, a pool, and senders that keep an order.

Decides nothing; the simulation has its own of each. May import: `base`. Start with `loop`.
"""

from __future__ import annotations

from unistream.master.loop.loop import CreateLoop, Loop, LoopMailbox, ThreadLoop
from unistream.master.loop.ordered import InOrder, OrderedGatherer, Pool, WorkPool

__all__ = [
    "CreateLoop",
    "InOrder",
    "Loop",
    "LoopMailbox",
    "OrderedGatherer",
    "Pool",
    "ThreadLoop",
    "WorkPool",
]
