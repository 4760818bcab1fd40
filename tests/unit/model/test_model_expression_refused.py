"""Expressions: what has no value of a row is refused where it is written, with what to write instead."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import unistream as us
from tests.unit.model.expression_rows import ANY, ROWS, SIGNS, c
from unistream.base.errors import ConfigError
from unistream.operator.common import check_expressions

REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: c("a") and c("b"), "& for `and`"),
    (lambda: c("a") or c("b"), "| for `or`"),
    (lambda: not c("a"), "~ for `not`"),
    (lambda: 1 if c("a") > 3 else 2, "us.when"),
    (lambda: 1 < c("a") < 3, r"\.between"),
    (lambda: c("a") in [1, 2], r"\.isin\(\[1, 2\]\)"),
    (lambda: c("a") in {1, 2}, r"\.isin"),
    (lambda: {c("a"): 1}, r"\.isin"),
    (lambda: operator.contains(ANY, 3), r"\.contains"),
    (lambda: [*c("a")], r"\.substring"),
    (lambda: c("a") == None, r"null in each row.*\.is_null\(\)"),  # noqa: E711
    (lambda: c("a") + None, r"\.fill_null"),  # type: ignore[operator]
    (lambda: c("a") == [1], r"\.isin"),
    (lambda: c("a") > object(), "no value of a column"),  # type: ignore[operator]
    (lambda: c("a") + 2**70, "no value of a column"),
    (lambda: np.array([1]) + ANY, r"\.isin"),
    (lambda: f"{c('a')}", "us.concat"),
    (lambda: c("a").cast("integer"), "'integer' is no type"),
    (lambda: c("a").cast(int), "<class 'int'> is no type"),
    (lambda: c("a").isin("ab"), "several values"),
    (lambda: c("a").isin([1, "x"]), "not values of one type"),
    (lambda: c("a").floor_to("d"), "none of year, quarter"),  # type: ignore[arg-type]
    (lambda: c("a").contains(3), "takes a text, not 3"),  # type: ignore[arg-type]
    (lambda: c("a").substring(0, -1), "0 or more"),
    (lambda: c(3), "name of a column"),  # type: ignore[arg-type]
    (lambda: us.Expression("a"), "us.col"),
    (us.concat, "at least one"),
]


@pytest.mark.parametrize(("write", "said"), REFUSED)
def test_what_has_no_value_of_a_row_is_refused(write: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        write()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("alias", "select\\(new_name="),
        ("isNotNull", "is_valid"),
        ("startswith", "starts_with"),
        ("toUpper", "upper"),
        ("str", "lower"),
        ("mean", "window"),
        ("frobnicate", "pyarrow.compute"),
    ],
)
def test_an_attribute_of_others_names_ours(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        getattr(c("a"), name)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (c("t") + "x", "us.concat"),
        (c("t") * 2, "cast one"),
        (c("b") + 1, "us.when"),
        (c("b") / 2, r"b is bool, and no number: write us\.when"),
        (c("d") * 2, "decimal.Decimal"),
        (c("nobody") + 1, "there is no column 'nobody'"),
        (c("i").lower(), "it is no text"),
        (c("ts") > "2024-01-01", "with a datetime"),
        (c("ts") > 5, "not with a number"),
        (c("i").isin(["7"]), "cast one of them"),
        (c("f").isin(["7"]), "cast one of them"),
        (c("t").isin([7]), "cast one of them"),
        (c("b").isin([1]), "no 'equal' of bool"),
        (c("i").isin([True]), "no 'equal' of int64, bool"),
        (c("ts").isin([5]), "not with a number"),
        (~(c("i").isin(["7"]) | c("b")), "cast one of them"),
        (c("i") == "7", "cast one of them"),
        (c("t").year(), "cast it first"),
        (us.concat(c("t"), c("i")), "'string'"),
        (us.when(c("b"), 1).otherwise("x"), "of one type"),
        (-c("u"), "no sign"),
        (c("i") % c("t"), r"\(i % t\)"),
    ],
)
def test_types_that_do_not_fit_are_said_with_a_remedy(expression: us.Expression, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_expressions(ROWS.schema, {"it": expression}, "select")


NO_NUMBERS = {
    "text": pa.string(),
    "large text": pa.large_string(),
    "text view": pa.string_view(),
    "codes": pa.dictionary(pa.int32(), pa.string()),
    "bytes": pa.binary(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "duration": pa.duration("ms"),
    "list": pa.list_(pa.int64()),
    "struct": pa.struct([("a", pa.int64())]),
}
ARITHMETIC = {
    **{sign: SIGNS[sign][0] for sign in ("+", "-", "*", "//", "%")},
    "/": operator.truediv,
    "**": operator.pow,
}
OF_TIMES = {("duration", "*"), ("duration", "//")}


@pytest.mark.parametrize("name", NO_NUMBERS)
@pytest.mark.parametrize("sign", ARITHMETIC)
def test_only_numbers_are_computed(sign: str, name: str) -> None:
    """With a number on either side, and wherever it stands in an expression."""
    schema = pa.schema([("x", NO_NUMBERS[name]), ("n", pa.int64())])
    for number in (2, c("n")):
        for made in (ARITHMETIC[sign](c("x"), number), ARITHMETIC[sign](number, c("x"))):
            if (name, sign) in OF_TIMES and not (sign == "//" and str(made).endswith("x)")):
                check_expressions(schema, {"it": made}, "select")
                continue
            with pytest.raises(ConfigError, match=r"it = .* cannot be computed: .*columns here: x "):
                check_expressions(schema, {"it": made}, "select")


@pytest.mark.parametrize(
    "around",
    [
        pytest.param(lambda one: -one, id="a sign"),
        pytest.param(lambda one: ~(one > 1), id="not"),
        pytest.param(lambda one: one.round(1), id="round"),
        pytest.param(lambda one: one.isin([1.0]), id="isin"),
        pytest.param(lambda one: one.cast("string").lower().substring(1).contains("5"), id="texts"),
        pytest.param(lambda one: c("f").coalesce(one), id="coalesce"),
        pytest.param(lambda one: us.concat(c("t"), one.cast("string")), id="concat"),
        pytest.param(lambda one: us.when(c("b"), one).otherwise(1.0), id="when"),
        pytest.param(lambda one: us.when(one > 1, 1).otherwise(2), id="a condition"),
        pytest.param(lambda one: us.when(c("b"), 1.0).otherwise(one), id="otherwise"),
        pytest.param(lambda one: one.is_null(), id="is_null"),
        pytest.param(lambda one: (one + 1) / 2, id="again"),
        pytest.param(lambda one: one.cast("timestamp[s]").floor_to("day"), id="times"),
    ],
)
@pytest.mark.parametrize("divided", [c("t") / 2, 2 / c("t"), c("t") ** 2, c("i") / "2"])
def test_a_text_in_a_division_is_refused_inside_of_anything(
    around: Callable[[us.Expression], us.Expression], divided: us.Expression
) -> None:
    with pytest.raises(ConfigError, match=r"is string, and no number: cast it first, \.cast\('float64'\)"):
        check_expressions(ROWS.schema, {"it": around(divided)}, "select")
    check_expressions(ROWS.schema, {"it": c("t").cast("float64") / 2}, "select")
