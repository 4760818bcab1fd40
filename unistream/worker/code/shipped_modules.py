"""Modules that were sent with a pipeline, importable in this process.

They are imported once, by their original name and with their original ``__file__``, but from the source in
the artifact. They take precedence over modules of the same name on this machine, because the submitted code
is what runs, but not over modules that this process has loaded before.

A process may serve jobs with different versions of a module. `activate` makes one set of modules the current
one and puts aside what was loaded from another, which a restart of that job gets back. Functions keep the
modules that they were defined in; only an import inside a function, or a pickled object, that first runs
while another job's set is current gets that set's modules.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source, spec_from_file_location
from types import CodeType, ModuleType
from typing import Final

from unistream.worker.code.user_modules import ModuleSource

ASIDE_MAX: Final = 8  # sets of modules of jobs that may restart; an older one is imported again


class ShippedModules(MetaPathFinder):
    """The finder of this process. Thread-safe where it is called under `lock`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # held while an artifact is opened, which may be nested
        self._key = ""
        self._sources: dict[str, ModuleSource] = {}
        self._above: frozenset[str] = frozenset()
        self._aside: OrderedDict[str, dict[str, ModuleType]] = OrderedDict()

    def activate(self, key: str, sources: Sequence[ModuleSource]) -> None:
        """Makes `sources` importable, and those of any other key not, from now on.

        Args:
            key: The same for the same sources; "" for none.
            sources: The modules, in any order.
        """
        if key == self._key:
            return
        self._aside[self._key] = {name: sys.modules.pop(name) for name in self._loaded()}
        while len(self._aside) > ASIDE_MAX:
            self._aside.popitem(last=False)
        self._key = key
        self._sources = {source.name: source for source in sources}
        self._above = frozenset(_above(self._sources))
        sys.modules.update(self._aside.pop(key, {}))
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        source = self._sources.get(fullname)
        if source is not None:
            return spec_from_file_location(
                fullname,
                source.path,
                loader=_Loader(source),
                submodule_search_locations=[os.path.dirname(source.path)] if source.is_package else None,
            )
        if fullname not in self._above:
            return None
        there = PathFinder.find_spec(fullname, path)  # a namespace may also have parts on this machine
        spec = ModuleSpec(fullname, None, loader_state=self, is_package=True)
        spec.submodule_search_locations = list(there.submodule_search_locations or ()) if there else []
        return spec

    def _loaded(self) -> list[str]:
        """Names of loaded modules of the current set."""
        return [
            name
            for name, module in list(sys.modules.items())  # other threads import meanwhile
            if (spec := getattr(module, "__spec__", None)) is not None
            and (isinstance(spec.loader, _Loader) or spec.loader_state is self)
        ]


class _Loader(ExecutionLoader):
    """Runs the source that was sent with the pipeline."""

    def __init__(self, module: ModuleSource) -> None:
        self._module = module

    def is_package(self, fullname: str) -> bool:
        return self._module.is_package

    def get_filename(self, fullname: str) -> str:
        return self._module.path

    def get_source(self, fullname: str) -> str:
        return decode_source(self._module.source)

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._module.source, self._module.path, "exec", dont_inherit=True)

    def get_data(self, path: str) -> bytes:
        """The content of a file next to the module, for `pkgutil.get_data`, on the machine that it came
        from."""
        with open(path, "rb") as file:
            return file.read()


def _above(names: dict[str, ModuleSource]) -> set[str]:
    """Packages without a source of their own (namespaces) above those that have one."""
    parts = [name.split(".") for name in names]
    above = {".".join(one[:length]) for one in parts for length in range(1, len(one))}
    return above - names.keys()


shipped: Final = ShippedModules()
