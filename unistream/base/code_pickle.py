"""cloudpickle, with the file in which each function was written.

cloudpickle from 3.1.3 on writes ``<dynamic-code>`` in the place of the file's name. Then no traceback of a
function that has travelled names its file or shows its lines, and what looks at the file (`inspect`, or
``numba`` with ``cache=True``) fails.
"""

from __future__ import annotations

import io
from collections import ChainMap
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, ModuleType
from typing import Any, ClassVar, Final

import cloudpickle

_FILE_NAME: Final = 10  # its place among the arguments of `CodeType`, from Python 3.11 on


def _with_its_file(code: CodeType) -> tuple[Any, ...]:
    made_by, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return made_by, (*arguments[:_FILE_NAME], code.co_filename, *arguments[_FILE_NAME + 1 :])


class CodePickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles what cloudpickle does; any version of it reads that."""

    dispatch_table: ClassVar = ChainMap({CodeType: _with_its_file}, cloudpickle.Pickler.dispatch_table)


def dumps(value: object) -> bytes:
    """The pickle of `value`; raises what a class of the user's raises in ``__reduce__``, too.

    >>> loads(dumps(lambda: 1)).__code__.co_filename == (lambda: 1).__code__.co_filename
    True
    """
    file = io.BytesIO()
    CodePickler(file).dump(value)
    return file.getvalue()


def loads(pickled: bytes) -> Any:
    """The value again. Runs the code in it."""
    return cloudpickle.loads(pickled)


@contextmanager
def taken_whole(module: ModuleType) -> Iterator[None]:
    """A block inside which functions and classes of `module` are pickled whole, instead of by name."""
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
