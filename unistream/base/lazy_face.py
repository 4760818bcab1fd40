"""Lazy imports of a package's public names, as its stub lists them.

`__init__.pyi` is the only list of names: type checkers and editors read its imports, and so does the package
when it runs (as Scientific Python's SPEC 1 has it, with `lazy_loader`).

    __getattr__, __dir__ = lazy_face(__name__)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

STUB: Final = "__init__.pyi"


class Face(NamedTuple):
    """The content of a stub.

    Attributes:
        homes: Name -> (module, its name there).
        exported: Names of ``from package import *``.
    """

    homes: dict[str, tuple[str, str]]
    exported: tuple[str, ...]


@cache
def face_of(package: str) -> Face:
    """The stub of `package`, parsed once."""
    import ast  # here, as the next one: importing the package must stay cheap
    from pkgutil import get_data

    content = get_data(package, STUB)
    assert content is not None, f"{package} is installed without its {STUB}"
    homes: dict[str, tuple[str, str]] = {}
    exported: tuple[str, ...] = ()
    for node in ast.parse(content).body:
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                homes.update((alias.asname or alias.name, (module, alias.name)) for alias in names)
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                exported = tuple(ast.literal_eval(value))
    return Face(homes, exported)


def lazy_face(
    package: str, *, other_names: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names its stub lists.

    Args:
        package: Its name.
        other_names: Module whose `OF_THE_PACKAGE` says what to write for names that only other systems have.
    """

    def get(name: str) -> Any:
        if name == "__all__":
            return list(face_of(package).exported)
        home = None if name.startswith("__") else face_of(package).homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{instead(name)}")
        module, its_name = home
        value = _submodule(module, its_name) if module == package else _found(module, its_name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        face = face_of(package)
        return sorted({*face.homes, *face.exported})

    def hints() -> Mapping[str, str]:
        return import_module(other_names).OF_THE_PACKAGE if other_names else {}

    def instead(name: str) -> str:
        from difflib import get_close_matches

        if name.startswith("_"):
            return ""
        if written := hints().get(name):
            return f": write {written}"
        close = get_close_matches(name, names(), n=1)
        return f"; did you mean {close[0]!r}?" if close else ""

    return get, names


def _found(module: str, name: str) -> Any:
    """What `from module import name` would import."""
    found = import_module(module)
    try:
        return getattr(found, name)
    except AttributeError:
        return _submodule(module, name)


def _submodule(module: str, name: str) -> Any:
    return import_module(f"{module}.{name}")
