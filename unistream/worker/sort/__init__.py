"""Rows of a keyed input grouped by key, for bounded jobs: each key's rows together, in the order of time.

A `KeySorter` takes the rows of an input until it ends, and gives them back key by key; what is more than its
memory is written to files. May import: `worker.exchange` (the frames of files). Start with `sorter`.
"""

from __future__ import annotations

from unistream.worker.sort.sorter import KeySorter
