"""All operators of Python next to what a pipeline is written of: a value of each row, or one sentence with
what to write; never an error of Python, and no answer as if there was a value."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import unistream as us
from unistream.operator.common import Projection, check_expressions

TIMES = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("n")
ROWS: Any = us.Environment().from_collection([{"n": 1, "t": "x"}], watermark_strategy=TIMES)
N: Any = us.col("n")
CHOICE: Any = us.when(us.col("n") > 1, 2)
MINUTES = us.TumblingEventTimeWindows.of("1 min")
VALUES: dict[str, Any] = {
    "a column": N,
    "a literal": us.lit(3),
    "a choice that is ended": CHOICE.otherwise(3),
    "joined texts": us.concat(us.col("t"), "-"),
    "one with pyarrow's": us.Expression(pc.sqrt(N.arrow)),
}
OTHERS: dict[str, tuple[Any, str]] = {
    "a choice": (CHOICE, "otherwise"),
    "an aggregate": (us.sum("n"), r"aggregate\(n=us\.sum\('n'\)\)\.filter"),
    "a count": (us.count(), r"aggregate\(n=us\.count\("),
    "windows": (MINUTES, r"window\(…\)"),
    "a stream": (ROWS, "execute_and_collect|union|us.col|with_columns"),
    "a keyed stream": (ROWS.key_by("t"), "execute_and_collect|union|us.col|with_columns"),
    "a stream in windows": (
        ROWS.key_by("t").window(MINUTES),
        "execute_and_collect|union|us.col|with_columns",
    ),
}


def increased(x: Any) -> Any:
    x += 1
    return x


def divided(x: Any) -> Any:
    a, b = x
    return a, b


OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "x + 1": lambda x: x + 1,
    "1 + x": lambda x: 1 + x,
    "x - 1": lambda x: x - 1,
    "1 - x": lambda x: 1 - x,
    "x * 2": lambda x: x * 2,
    "2 * x": lambda x: 2 * x,
    "x / 2": lambda x: x / 2,
    "2 / x": lambda x: 2 / x,
    "x // 2": lambda x: x // 2,
    "2 // x": lambda x: 2 // x,
    "x % 2": lambda x: x % 2,
    "2 % x": lambda x: 2 % x,
    "x ** 2": lambda x: x**2,
    "2 ** x": lambda x: 2**x,
    "divmod(x, 2)": lambda x: divmod(x, 2),
    "divmod(2, x)": lambda x: divmod(2, x),
    "-x": operator.neg,
    "+x": operator.pos,
    "~x": operator.invert,
    "abs(x)": abs,
    "round(x)": round,
    "round(x, 2)": lambda x: round(x, 2),
    "x & True": lambda x: x & True,
    "True & x": lambda x: True & x,
    "x | True": lambda x: x | True,
    "True | x": lambda x: True | x,
    "x ^ True": lambda x: x ^ True,
    "True ^ x": lambda x: True ^ x,
    "x < 1": lambda x: x < 1,
    "1 < x": lambda x: 1 < x,  # noqa: SIM300 (this order is what is tried)
    "x <= 1": lambda x: x <= 1,
    "x > 1": lambda x: x > 1,
    "x >= 1": lambda x: x >= 1,
    "x += 1": increased,
    "sum([x, x])": lambda x: sum([x, x]),
    "numpy's 2.0 * x": lambda x: np.float64(2) * x,
    "numpy's 2 > x": lambda x: np.int32(2) > x,
    "divmod(numpy's 7, x)": lambda x: divmod(np.int64(7), x),
}
COMPARED: dict[str, Callable[[Any], Any]] = {
    "x == 1": lambda x: x == 1,
    "1 == x": lambda x: 1 == x,  # noqa: SIM300
    "x != 1": lambda x: x != 1,
}
PARTS: dict[str, Callable[[Any], Any]] = {
    "x[0]": lambda x: x[0],
    "x[1:2]": lambda x: x[1:2],
    "x['a']": lambda x: x["a"],
    "x[0] = 1": lambda x: operator.setitem(x, 0, 1),
    "del x[0]": lambda x: operator.delitem(x, 0),
    "len(x)": len,
    "list(x)": list,
    "a, b = x": divided,
    "next(x)": next,
    "reversed(x)": reversed,
    "1 in x": lambda x: 1 in x,
    "sorted([x, x])": lambda x: sorted([x, x]),
    "1 < x < 3": lambda x: 1 < x < 3,
    "int(x)": int,
    "float(x)": float,
    "complex(x)": complex,
    "range(x)": range,
    "[1, 2][x]": lambda x: [1, 2][x],
    "'%d' % x": lambda x: "%d" % x,  # noqa: UP031
    "math.floor(x)": math.floor,
    "math.ceil(x)": math.ceil,
    "math.trunc(x)": math.trunc,
    "math.sqrt(x)": math.sqrt,
    "x @ x": lambda x: x @ x,
    "2 @ x": lambda x: 2 @ x,
    "x << 1": lambda x: x << 1,
    "1 << x": lambda x: 1 << x,
    "x >> 1": lambda x: x >> 1,
    "1 >> x": lambda x: 1 >> x,
    "pow(x, 2, 3)": lambda x: pow(x, 2, 3),
}
TRUTH: dict[str, Callable[[Any], Any]] = {
    "x and 1": lambda x: x and 1,
    "x or 1": lambda x: x or 1,
    "not x": operator.not_,
    "1 if x else 2": lambda x: 1 if x else 2,
    "x in [1]": lambda x: x in [1],
    "max(x, 1)": lambda x: max(x, 1),
}
LOOKED_UP: dict[str, Callable[[Any], Any]] = {
    "x in {1}": lambda x: x in {1},
    "{x: 1}": lambda x: {x: 1},
    "f'{x}'": lambda x: f"{x}",
    "f'{x:.2f}'": lambda x: f"{x:.2f}",
}


@pytest.mark.parametrize("line", OF_ROWS | COMPARED)
@pytest.mark.parametrize("kind", VALUES)
def test_it_is_a_value_of_each_row(kind: str, line: str) -> None:
    made = (OF_ROWS | COMPARED)[line](VALUES[kind])
    assert all(isinstance(one, us.Expression) for one in (made if isinstance(made, tuple) else (made,)))


REMEDIES = "write |Arrow has it as a function: |Write & for|join texts by"


@pytest.mark.parametrize("line", PARTS | TRUTH | LOOKED_UP)
@pytest.mark.parametrize("kind", VALUES)
def test_it_says_what_to_write_where_it_has_no_meaning(kind: str, line: str) -> None:
    with pytest.raises(us.ConfigError, match=REMEDIES):
        (PARTS | TRUTH | LOOKED_UP)[line](VALUES[kind])


@pytest.mark.parametrize("line", OF_ROWS | PARTS)
@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_value_of_a_row_says_what_to_write(kind: str, line: str) -> None:
    it, remedy = OTHERS[kind]
    with pytest.raises(us.ConfigError, match=remedy):
        (OF_ROWS | PARTS)[line](it)


@pytest.mark.parametrize("line", COMPARED | TRUTH)
@pytest.mark.parametrize("kind", ["a choice", "an aggregate", "a count"])
def test_it_is_neither_true_nor_equal_to_anything(kind: str, line: str) -> None:
    with pytest.raises(us.ConfigError, match=r"otherwise|us\.count|us\.sum"):
        (COMPARED | TRUTH)[line](OTHERS[kind][0])


@pytest.mark.parametrize("line", LOOKED_UP)
def test_a_choice_is_not_looked_up(line: str) -> None:
    with pytest.raises(us.ConfigError, match="otherwise"):
        LOOKED_UP[line](CHOICE)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda it: N * it, id="column * it"),
        pytest.param(us.lit, id="lit"),
        pytest.param(lambda it: us.concat("a", it), id="concat"),
        pytest.param(N.coalesce, id="coalesce"),
        pytest.param(lambda it: N.between(it, 3), id="between"),
        pytest.param(lambda it: us.when(N > 1, it).otherwise(2), id="the value of a choice"),
        pytest.param(CHOICE.otherwise, id="the other value"),
        pytest.param(lambda it: ROWS.select(b=it), id="select"),
        pytest.param(lambda it: ROWS.with_columns(b=it), id="with_columns"),
    ],
)
@pytest.mark.parametrize("kind", OTHERS)
def test_given_as_a_value_it_says_the_same(kind: str, write: Callable[[Any], object]) -> None:
    it, _ = OTHERS[kind]
    with pytest.raises(us.ConfigError, match=r"otherwise|us\.count|us\.sum|window\(…\)|stream"):
        write(it)


@pytest.mark.parametrize("among", [[N], [us.sum("n")], [1, pc.field("n")]], ids=str)
def test_isin_takes_plain_values(among: list[Any]) -> None:
    with pytest.raises(us.ConfigError, match="plain values"):
        N.isin(among)
    with pytest.raises(us.ConfigError, match="several values"):
        N.isin(N)


@pytest.mark.parametrize("kind", ["an aggregate", "a count", "windows"])
def test_what_is_compared_with_its_like_is_as_before(kind: str) -> None:
    it, _ = OTHERS[kind]
    assert it == copy.deepcopy(it)
    assert len({it, copy.copy(it)}) == 1


TABLE = pa.table(
    {
        "n": pa.array([4, 9], pa.int64()),
        "f": pa.array([2.5, -2.5]),
        "s": pa.array([{"x": 1}, {"x": 2}]),
        "l": pa.array([[1, 2], [3, 4]]),
        "t": ["ab", "cd"],
    }
)


@pytest.mark.parametrize(
    ("remedy", "wanted"),
    [
        pytest.param(lambda: us.Expression(pc.struct_field(us.col("s").arrow, "x")), [1, 2], id="a field"),
        pytest.param(lambda: us.Expression(pc.list_element(us.col("l").arrow, 0)), [1, 3], id="an element"),
        pytest.param(lambda: us.Expression(pc.list_value_length(us.col("l").arrow)), [2, 2], id="a length"),
        pytest.param(lambda: us.col("t").substring(0, 1), ["a", "c"], id="a part of a text"),
        pytest.param(lambda: us.Expression(pc.shift_left(N.arrow, 1)), [8, 18], id="shifted"),
        pytest.param(lambda: us.Expression(pc.shift_right(N.arrow, 1)), [2, 4], id="shifted back"),
        pytest.param(lambda: us.Expression(pc.sqrt(N.arrow)), [2.0, 3.0], id="a root"),
        pytest.param(lambda: us.Expression(pc.floor(us.col("f").arrow)), [2.0, -3.0], id="floor"),
        pytest.param(lambda: us.Expression(pc.ceil(us.col("f").arrow)), [3.0, -2.0], id="ceil"),
        pytest.param(lambda: us.Expression(pc.trunc(us.col("f").arrow)), [2.0, -2.0], id="trunc"),
        pytest.param(lambda: (N**2) % 3, [1.0, 0.0], id="pow of three"),
        pytest.param(lambda: CHOICE.otherwise(0) * 2, [4, 4], id="a choice that is ended"),
        pytest.param(lambda: round(us.col("f")), [3.0, -3.0], id="rounded as in SQL"),
        pytest.param(lambda: divmod(-N, 4)[0], [-1, -2], id="what a division is"),
        pytest.param(lambda: divmod(-N, 4)[1], [0, -1], id="and leaves"),
        pytest.param(lambda: divmod(20, N)[1], [0, 2], id="of a number"),
        pytest.param(lambda: np.float64(0.5) * N, [2.0, 4.5], id="next to one of numpy"),
        pytest.param(lambda: np.int64(5) < N, [False, True], id="less than one of numpy"),
    ],
)
def test_the_remedies_are_right(remedy: Callable[[], us.Expression], wanted: list[object]) -> None:
    (batch,) = TABLE.to_batches()
    check_expressions(TABLE.schema, {"it": remedy()}, "select")
    assert Projection({"it": remedy().arrow}).evaluate(batch)["it"].to_pylist() == wanted
