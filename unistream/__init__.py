"""One Python pipeline, run as a batch job or as a stream, with one result.

`import unistream as us` is enough: everything that a pipeline is written with is here. Names are
resolved when they are first used, so that importing the package costs nothing, and connectors whose
libraries are heavy are loaded only by those who use them. `__init__.pyi` lists them.
"""

from __future__ import annotations

from unistream.base.lazy_face import lazy_face

__version__ = "0.1.0"

__getattr__, __dir__ = lazy_face(__name__, other_names="unistream.api.other_names")
