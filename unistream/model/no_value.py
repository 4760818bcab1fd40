"""What Python's operators say of a thing that has no value while a pipeline is written.

``2 * us.when(…)``, ``round(us.sum("n"))``, ``us.col("t")[0]``: where a class has no method for an operator,
Python's error names two types and no remedy; ``==``, ``in`` and ``if`` are answered as if there was a value.
Classes with the base `NoValue` answer each operator that they do not define by what to write in its place.
Type checkers do not see the methods, so that they go on to report such a line.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from unistream.base.errors import ConfigError

SHOWN_CHARS: Final = 200  # of what was written, in a message
_BINARY: Final = {
    **{"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"},
    **{"and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "matmul": "@"},
}
_COMPARED: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_WRITTEN: Final = {  # {0}: the thing itself, {1}: what stands next to it
    **{f"__{name}__": f"({{0}} {sign} {{1}})" for name, sign in (_BINARY | _COMPARED).items()},
    **{f"__r{name}__": f"({{1}} {sign} {{0}})" for name, sign in _BINARY.items()},
    "__divmod__": "divmod({0}, {1})",
    "__rdivmod__": "divmod({1}, {0})",
    "__neg__": "-{0}",
    "__pos__": "+{0}",
    "__invert__": "~{0}",
    "__abs__": "abs({0})",
    "__round__": "round({0})",
    "__getitem__": "{0}[{1}]",
    "__setitem__": "{0}[{1}] = …",
    "__delitem__": "del {0}[{1}]",
    "__len__": "len({0})",
    "__iter__": "for … in {0}",
    "__next__": "next({0})",
    "__reversed__": "reversed({0})",
    "__contains__": "{1} in {0}",
    "__int__": "int({0})",
    "__float__": "float({0})",
    "__complex__": "complex({0})",
    "__index__": "{0} as an index",
    "__trunc__": "math.trunc({0})",
    "__floor__": "math.floor({0})",
    "__ceil__": "math.ceil({0})",
}
_TRUTH: Final = {
    "__eq__": "({0} == {1})",
    "__ne__": "({0} != {1})",
    "__bool__": "{0} as true or false",
    "__hash__": "{0} in a set or a dict",
    "__format__": "{0} in a text",
}


class NoValue:
    """Base of what operators of Python cannot be used on; a class defines those that it has a meaning for."""

    __slots__ = ()

    __array_ufunc__: Any = None  # numpy leaves operators to this class

    @abstractmethod
    def why_no_value(self, operator: str) -> str:
        """What to write instead of it next to `operator`, such as ``"__add__"``; "": where one value is
        wanted."""

    def refuse_value(self) -> NoReturn:
        """Raises ConfigError: it was given where a value is wanted."""
        raise ConfigError(f"{self!s:.{SHOWN_CHARS}} is no value of a column: {self.why_no_value('')}")


class NoTruth(NoValue):
    """Base of what cannot be compared, looked up or asked for its truth either."""

    __slots__ = ()


def _refusing(operator: str, written: str) -> Callable[..., NoReturn]:
    def refuse(self: NoValue, *others: object) -> NoReturn:
        other = _shown(others[0]) if others else ""
        line = written.format(f"{self!s:.{SHOWN_CHARS}}", other)
        raise ConfigError(f"{line}: {self.why_no_value(operator)}")

    refuse.__name__ = operator
    refuse.__qualname__ = f"NoValue.{operator}"
    return refuse


def _shown(value: Any) -> str:
    """What stands next to it, as it was written.

    >>> _shown(slice(1, None)), _shown("a"), _shown(2)
    ('1:', "'a'", '2')
    """
    if isinstance(value, slice):
        bounds = [value.start, value.stop] + ([] if value.step is None else [value.step])
        return ":".join("" if bound is None else _shown(bound) for bound in bounds)
    return f"{value!s:.{SHOWN_CHARS}}" if isinstance(value, NoValue) else f"{value!r:.{SHOWN_CHARS}}"


if not TYPE_CHECKING:
    for _operator, _line in _WRITTEN.items():
        setattr(NoValue, _operator, _refusing(_operator, _line))
    for _operator, _line in _TRUTH.items():
        setattr(NoTruth, _operator, _refusing(_operator, _line))
