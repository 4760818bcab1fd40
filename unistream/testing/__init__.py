"""Tools for tests of pipelines.

`simulate` runs a pipeline in a simulated cluster, under faults; the harnesses drive one function;
`MiniCluster` is a whole cluster in one process. `__init__.pyi` lists the names.
"""

from __future__ import annotations

from unistream.base.lazy_face import lazy_face

__getattr__, __dir__ = lazy_face(__name__)
