"""Base classes for a source and a sink of a user's own, in a few lines and without a package.

`source` is what an author subclasses; `polls` calls its methods in turn, `ahead` on a thread or in place, and
`reader` is what the runtime polls; `author` refuses what an author must not return; `splits` is what is
stored. `sink` is the sink. Start with `source`.
"""

from __future__ import annotations

from unistream.connector.simple.sink import SimpleSink, SimpleWriter
from unistream.connector.simple.source import PollingSource
from unistream.connector.simple.splits import create_discovery, read_positions

__all__ = ["PollingSource", "SimpleSink", "SimpleWriter", "create_discovery", "read_positions"]
