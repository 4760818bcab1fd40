"""`HybridSource`: a bounded history and then a live source, as one source with two phases.

    source      what a user configures; `info()` has both sources as phases
    discovery   in the master: the splits of both, at the start of the job
    split       a split of either, with the fence that its rows are compared with
    reader      in each subtask: the reader of the history, and after the switch that of the live source

When the switch is decided in `unistream.core.checkpoint.phased_assignment`. May import: the registry, `port`,
`model`, `base`, `connector.common`; no other connector. Start with `source`.
"""

from __future__ import annotations

from unistream.connector.hybrid.discovery import create_discovery
from unistream.connector.hybrid.source import HybridSource
