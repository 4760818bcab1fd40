"""What to write where somebody writes what an expression has not: names of other libraries, operators of
Python without a meaning for each row, functions of numpy."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

_PARTS: Final = (
    "an expression is one value of each row: write .substring(0, 1) for a part of a text, "
    "us.Expression(pc.struct_field(us.col('a').arrow, 'x')) for a field of a struct, "
    "us.Expression(pc.list_element(us.col('a').arrow, 0)) for an element of a list"
)
_NUMBER: Final = (
    "it is a value of each row, not a number where the pipeline is written: write .cast('int64') or "
    ".cast('float64'); functions of math are those of pyarrow: us.Expression(pc.{}(us.col('a').arrow))"
)
OPERATORS: Final = {  # without a meaning for each row
    **dict.fromkeys(("__getitem__", "__next__", "__reversed__"), _PARTS),
    "__len__": "write .length() for that of a text, us.Expression(pc.list_value_length(us.col('a').arrow)) "
    "for that of a list",
    "__contains__": "it is one value of each row: write .contains('…') for a part of a text",
    "__matmul__": "write * for a product; what needs other rows is a window",
    "__rmatmul__": "write * for a product; what needs other rows is a window",
    **dict.fromkeys(
        ("__lshift__", "__rlshift__"),
        "Arrow has it as a function: us.Expression(pc.shift_left(us.col('n').arrow, 1))",
    ),
    **dict.fromkeys(
        ("__rshift__", "__rrshift__"),
        "Arrow has it as a function: us.Expression(pc.shift_right(us.col('n').arrow, 1))",
    ),
    **dict.fromkeys(
        ("__setitem__", "__delitem__"), "write with_columns(a=…) of the stream for another value"
    ),
    "__trunc__": _NUMBER.format("trunc"),
    "__floor__": _NUMBER.format("floor"),
    "__ceil__": _NUMBER.format("ceil"),
}
METHODS: Final = {
    "alias": "name a column by its keyword: select(new_name=us.col('a'))",
    "name": "name a column by its keyword: select(new_name=us.col('a'))",
    "str": "the functions of texts are its own: us.col('a').lower()",
    "dt": "the functions of times are its own: us.col('a').year()",
    "apply": "a function of Python takes whole batches: map_batches(function)",
    "map": "a function of Python takes whole batches: map_batches(function)",
    "over": "what needs other rows is a window: key_by(…).window(…).aggregate(…)",
    "otherwise": "choose values by us.when(condition, value).otherwise(other)",
    "isna": "write .is_null()",
    "isnull": "write .is_null()",
    "notna": "write .is_valid()",
    "notnull": "write .is_valid()",
    "isnotnull": "write .is_valid()",
    "is_not_null": "write .is_valid()",
    "astype": "write .cast('int64')",
    "rlike": "write .matches('a.*')",
    **dict.fromkeys(
        ("sum", "mean", "avg", "min", "max", "count"),
        "what needs other rows is a window: key_by(…).window(…).aggregate(n=us.sum('a'))",
    ),
}

OF_NUMPY: Final[Mapping[str, Callable[[Any, Any], Any]]] = {  # ufunc: what it is of expressions
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "divmod": divmod,
    "power": operator.pow,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
    "matmul": operator.matmul,
}


def of_operator(name: str) -> str:
    """What to write in place of an operator of Python, such as ``"__getitem__"``."""
    return OPERATORS.get(name) or _NUMBER.format("sqrt")


def of_numpy(function: str) -> str:
    """Why a function of numpy takes no expression, and what to write."""
    return (
        f"numpy.{function} takes no expression: write us.Expression(pc.{function}(us.col('a').arrow)), if "
        "pyarrow.compute has it, or map_batches(function) for whole batches"
    )
