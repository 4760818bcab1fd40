"""The modules that are sent with a pipeline: the user's own, as sources.

*Own* is a module with Python source that is neither of the standard library nor of an installed package:
it comes from the current folder, the folder of a script or ``PYTHONPATH``. A worker on another machine, or
one that was started elsewhere, does not have it (`docs/decision/user-modules.md`).

The closure is sent: the modules that the pickled pipeline refers to by name, and each own module that one of
them imports, at its top or inside a function. Nothing is imported to find it.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Final

import msgspec

from unistream.base.user_files import is_installed

_NEVER: Final = frozenset({"unistream", "pyspark", "py4j"})
"""Every worker has them, of its own version; `spark-submit` puts its own on ``PYTHONPATH``."""


class ModuleSource(msgspec.Struct, frozen=True, array_like=True):
    """A module as it is sent.

    Attributes:
        name: As it is imported.
        path: Of its original file, for tracebacks and ``__file__``.
        is_package: It may have modules below it.
        source: The bytes of the file, with its encoding declaration.
    """

    name: str
    path: str
    is_package: bool
    source: bytes


def own_modules(referred: Iterable[str], *, by_value: Collection[str]) -> tuple[ModuleSource, ...]:
    """The user's modules that are needed where the pickle is opened, by name.

    Args:
        referred: Names of modules; those that are not the user's are ignored.
        by_value: Modules whose functions are in the pickle itself. They are not sent, but their imports are.
    """
    found: dict[str, ModuleSource] = {}
    seen: set[str] = set()
    waiting = list(referred)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        own = _of_loaded(name) if name in by_value else _of_name(name)
        if own is None:
            continue
        if name not in by_value:
            found[name] = own
        parent = name.rpartition(".")[0]
        waiting += [*([parent] if parent else []), *_imported(own)]
    return tuple(found[name] for name in sorted(found))


def _of_loaded(name: str) -> ModuleSource | None:
    """A script, or another module in the pickle; None: it has no source file (a notebook, a shell)."""
    path = getattr(sys.modules.get(name), "__file__", None)
    if path is None or not _is_own_file(path):
        return None
    with suppress(OSError), open(path, "rb") as file:
        package = getattr(sys.modules[name], "__package__", None) or ""
        return ModuleSource(f"{package}.__main__" if package else name, path, False, file.read())
    return None


def _of_name(name: str) -> ModuleSource | None:
    """None: there is no such module, or it is not the user's, or it has no source."""
    if name.partition(".")[0] in _NEVER:
        return None
    spec = _spec(name)
    if spec is None or spec.origin is None or not _is_own_file(spec.origin):
        return None
    is_package = spec.submodule_search_locations is not None
    depth = name.count(".") + is_package
    folder = Path(os.path.abspath(spec.origin)).parents[depth]
    if name.partition(".")[0] in _installed_into(folder):
        return None
    source = _source(spec, spec.origin)
    return None if source is None else ModuleSource(name, os.path.abspath(spec.origin), is_package, source)


def _is_own_file(path: str) -> bool:
    return path.endswith(".py") and not is_installed(path)


@lru_cache(maxsize=64)
def _installed_into(folder: Path) -> frozenset[str]:
    """Top-level modules of packages that were installed into a folder (``pip install --target``), which need
    not be named ``site-packages``: by the lists of their files."""
    names: set[str] = set()
    for record in folder.glob("*.dist-info/RECORD"):
        with suppress(OSError, UnicodeError):
            lines = record.read_text("utf-8").splitlines()
            names |= {re.split(r"[/\\,]", line, maxsplit=1)[0].removesuffix(".py") for line in lines}
    return frozenset(names)


def _source(spec: ModuleSpec, path: str) -> bytes | None:
    with suppress(OSError):
        read = getattr(spec.loader, "get_data", None)  # in a zip file, too
        if read is not None:
            return bytes(read(path))
        with open(path, "rb") as file:
            return file.read()
    return None


def _spec(name: str) -> ModuleSpec | None:
    """Where a module is; unlike `importlib.util.find_spec` it does not import what is above it."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return getattr(loaded, "__spec__", None)
    path: Any = None
    parent = name.rpartition(".")[0]
    if parent:
        above = _spec(parent)
        path = None if above is None else above.submodule_search_locations
        if path is None:
            return None
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)  # old libraries have finders without one
        spec: ModuleSpec | None = None if find is None else find(name, path)
        if spec is not None:
            return spec
    return None


def _imported(module: ModuleSource) -> Iterator[str]:
    """Every name that an import statement of the module may mean."""
    try:
        tree = ast.parse(module.source)
    except (SyntaxError, ValueError):  # it has been imported, or never will be
        return
    parts = module.name.split(".")
    package = parts if module.is_package else parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
