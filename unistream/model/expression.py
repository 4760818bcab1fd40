"""What a row's columns are computed into: our face of `pyarrow.compute.Expression`, which does the work.

An `Expression` is made by `us.col`, `us.lit`, `us.when` and `us.concat`. It holds the expression of pyarrow
(``arrow``) and how people would write it (``text``). Operators and connectors see only the former: where a
pipeline takes one, `as_arrow` unwraps it, and one that is written with those of pyarrow is the same job.

Numbers are computed by the checked kernels: what does not fit its type fails, and nothing wraps.
"""

from __future__ import annotations

import datetime
import decimal
import difflib
import re
from collections.abc import Callable, Collection, Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from unistream.base.errors import ConfigError
from unistream.model import expression_remedies as remedies
from unistream.model.no_value import NoValue

TimeUnit: TypeAlias = Literal[
    "year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond"
]
TIME_UNITS: Final = TimeUnit.__args__  # type: ignore[attr-defined]  # pyright: ignore
_WITHIN_A_DAY: Final = TIME_UNITS[TIME_UNITS.index("hour") :]
SHOWN_CHARS: Final = 200  # of a value in a message
_ZEROS: Final = pa.array([0.0, -0.0])
_NO_KERNEL: Final = re.compile(r"Function '(\w+)' has no kernel matching input types \((.*)\)")
_NO_COLUMN: Final = re.compile(r"No match for FieldRef\.Name\((.*)\) in ")
_HINTS: Final = (  # function, types of its arguments
    (r"add_checked .*string", "texts are joined by us.concat(…)"),
    (r"binary_join", "what is no text is cast first: .cast('string')"),
    (
        r"(year|month|day|day_of_week|hour|minute|second|floor_temporal|local_timestamp) ",
        "a time is a timestamp: cast it first",
    ),
    (r"\w+ .*(dictionary|string_view)", "cast it to 'string' first"),
    (r"\w+ (?=.*(date|timestamp))(?=.*string)", "a time is compared with a datetime, not with a text"),
    (r"\w+ (?=.*timestamp)(?=.*\bu?int)", "a time is compared with a datetime, not with a number"),
    (r"\w+ (?=.*timestamp\[\w+\])(?=.*tz=)", "one of the times has a zone, and the other has none"),
    (r"(if_else|coalesce|case_when) ", "all values are of one type: cast those that are not"),
    (r"negate_checked .*uint", "cast what has no sign: .cast('int64')"),
    (
        r"\w+ (?=.*string).*(int|float|double|decimal)",
        "a text and a number: cast one of them, .cast('int64')",
    ),
    (r"utf8_|match_|starts_with|ends_with", "it is no text: .cast('string')"),
    (r"\w+ .*string", "a text is no number: .cast('int64')"),
    (r"\w+ .*bool", "true and false are no numbers: write us.when(…, 1).otherwise(0)"),
)
_TEXTS: Final = re.compile(r'("(?:[^"\\]|\\.)*")')
_OPTIONS: Final = (
    (re.compile(r"\{to_type=((?:[^,{}\[\]()]|\[[^\]]*\]|\([^)]*\))+), allow_[^{}]*\}"), r"\1"),
    (re.compile(r"\{value_set=[^:{}]*:(\[[^\]]*\]), null_matching_behavior=\w+\}"), r"\1"),
    (re.compile(r", \{[^{}]*\}"), ""),
    (re.compile(r"\b(\w+)_checked\("), r"\1("),
    (re.compile(r"\s+"), " "),
)


class _NamesRemedy(type):
    """A function of pyarrow that gets an expression of ours names its type in the error, and no more."""

    def __repr__(cls) -> str:
        return (
            f"<class 'unistream.{cls.__name__}': write {cls.__name__.lower()}.arrow for pyarrow's functions>"
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expression(NoValue, metaclass=_NamesRemedy):
    """A value of each row, computed from its columns; what `us.col` and `us.lit` return.

    Operators take expressions and plain values on both sides, and are checked: a result that does not fit its
    type fails the row (`on_error` of the operator), and never wraps. They do what they do in SQL:

    - ``/`` is a division of floats, so ``7 / 2`` is 3.5; of integers ``//`` is cut towards zero, so that
      ``-7 // 2`` is -3 (Python: -4), and ``%`` is what is left of it: ``-7 % 2`` is -1 (Python: 1). Of floats
      and decimals ``//`` is a division that keeps their type. To divide by zero fails.
    - ``**`` is one of floats: ``2 ** 3`` is 8.0.
    - Null in gives null, but ``&``, ``|``, ``^`` and ``~`` are SQL's *and*, *or*, *xor* and *not*. NaN equals
      nothing, itself neither.
    - ``divmod(n, 60)`` is the pair of ``n // 60`` and ``n % 60``; ``round(n, 2)`` is ``n.round(2)``.
    - Comparisons need brackets next to ``&`` and ``|``; `and`, `or`, `not`, `in`, `if` and ``1 < n < 3`` have
      no value of a row, and are refused. So is each other operator, by what to write.

    Args:
        arrow: An expression of `pyarrow.compute`, for what has no method here:
            ``us.Expression(pc.bit_wise_and(us.col("n").arrow, 3))``.
        text: How people read it; by default, as pyarrow shows it, without the options of functions.
        checks: What has to hold of the types of its parts, which Arrow casts instead (`check_types`).

    >>> from unistream import col
    >>> (col("delay") > 15) & ~(1 + col("n")).is_null()
    <Expression ((delay > 15) & ~is_null((1 + n)))>
    """

    arrow: pc.Expression
    text: str = ""
    checks: tuple[TypeCheck, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.arrow, pc.Expression):
            raise ConfigError(
                f"Expression takes one of pyarrow.compute, not {_shown(self.arrow)}; a column is us.col(…), "
                "a value us.lit(…)"
            )
        if not self.text:
            object.__setattr__(self, "text", readable(self.arrow))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Expression {self.text}>"

    # --- numbers ---------------------------------------------------------------------------------

    def __add__(self, other: Operand, /) -> Expression:
        return _both("+", pc.add_checked, self, other)

    def __radd__(self, other: Operand, /) -> Expression:
        return _both("+", pc.add_checked, other, self)

    def __sub__(self, other: Operand, /) -> Expression:
        return _both("-", pc.subtract_checked, self, other)

    def __rsub__(self, other: Operand, /) -> Expression:
        return _both("-", pc.subtract_checked, other, self)

    def __mul__(self, other: Operand, /) -> Expression:
        return _both("*", pc.multiply_checked, self, other)

    def __rmul__(self, other: Operand, /) -> Expression:
        return _both("*", pc.multiply_checked, other, self)

    def __truediv__(self, other: Operand, /) -> Expression:
        return _both("/", _divided, self, other)

    def __rtruediv__(self, other: Operand, /) -> Expression:
        return _both("/", _divided, other, self)

    def __floordiv__(self, other: Operand, /) -> Expression:
        return _both("//", pc.divide_checked, self, other)

    def __rfloordiv__(self, other: Operand, /) -> Expression:
        return _both("//", pc.divide_checked, other, self)

    def __mod__(self, other: Operand, /) -> Expression:
        return _both("%", pc.remainder_checked, self, other)

    def __rmod__(self, other: Operand, /) -> Expression:
        return _both("%", pc.remainder_checked, other, self)

    def __divmod__(self, other: Operand, /) -> tuple[Expression, Expression]:
        return self // other, self % other

    def __rdivmod__(self, other: Operand, /) -> tuple[Expression, Expression]:
        return divmod(_operand(other), self)

    def __pow__(self, other: Operand, modulo: None = None, /) -> Expression:
        if modulo is not None:
            raise ConfigError(
                f"pow({self.text}, {_name(other)}, {_name(modulo)}) has no meaning for rows: write "
                f"({self.text} ** {_name(other)}) % {_name(modulo)}"
            )
        return _both("**", _power, self, other)

    def __rpow__(self, other: Operand, /) -> Expression:
        return _both("**", _power, other, self)

    def __neg__(self) -> Expression:
        return computed(pc.negate_checked(self.arrow), f"-{self.text}", self)

    def __pos__(self) -> Expression:
        return self

    def __abs__(self) -> Expression:
        return self._called("abs", pc.abs_checked)

    def __round__(self, digits: int = 0, /) -> Expression:
        return self.round(digits)

    def abs(self) -> Expression:
        """The number without its sign; the smallest integer of its type fails, as there is none."""
        return abs(self)

    def round(self, digits: int = 0) -> Expression:
        """The number with this many digits behind the point; halves go away from zero, as in SQL."""
        rounded = pc.round(self.arrow, ndigits=digits, round_mode="half_towards_infinity")
        return computed(rounded, f"round({self.text}, {digits})", self)

    # --- comparisons, and what is true -----------------------------------------------------------

    def __lt__(self, other: Operand, /) -> Expression:
        return _both("<", pc.less, self, other)

    def __le__(self, other: Operand, /) -> Expression:
        return _both("<=", pc.less_equal, self, other)

    def __gt__(self, other: Operand, /) -> Expression:
        return _both(">", pc.greater, self, other)

    def __ge__(self, other: Operand, /) -> Expression:
        return _both(">=", pc.greater_equal, self, other)

    def __eq__(self, other: Operand, /) -> Expression:  # type: ignore[override]
        return _both("==", pc.equal, self, other)

    def __ne__(self, other: Operand, /) -> Expression:  # type: ignore[override]
        return _both("!=", pc.not_equal, self, other)

    def __and__(self, other: Truth, /) -> Expression:
        return _both("&", pc.and_kleene, self, other)

    def __rand__(self, other: Truth, /) -> Expression:
        return _both("&", pc.and_kleene, other, self)

    def __or__(self, other: Truth, /) -> Expression:
        return _both("|", pc.or_kleene, self, other)

    def __ror__(self, other: Truth, /) -> Expression:
        return _both("|", pc.or_kleene, other, self)

    def __xor__(self, other: Truth, /) -> Expression:
        return _both("^", pc.xor, self, other)

    def __rxor__(self, other: Truth, /) -> Expression:
        return _both("^", pc.xor, other, self)

    def __invert__(self) -> Expression:
        return computed(pc.invert(self.arrow), f"~{self.text}", self)

    def between(self, low: Operand, high: Operand) -> Expression:
        """True from `low` to `high`, both included."""
        return (self >= low) & (self <= high)

    def isin(self, values: Collection[object]) -> Expression:
        """True where the value equals one of these, false where it does not; so -0.0 is one of [0.0], and NaN
        of none. As in Python, null is one of them if None is among them, and is not otherwise."""
        is_one = isinstance(values, str | bytes | NoValue)
        if is_one or not isinstance(values, Collection | pa.Array):
            raise ConfigError(f"isin takes several values, such as [1, 2], not {_shown(values)}")
        if any(isinstance(one, NoValue | pc.Expression) for one in values):
            raise ConfigError(
                "isin takes plain values; another column is compared: (us.col('a') == us.col('b')) | "
                "(us.col('a') == us.col('c'))"
            )
        try:
            among = values if isinstance(values, pa.Array) else pa.array(list(values))
            found = self._is_null_or_none_of(among) if among.type == pa.null() else self._is_one_of(among)
        except (pa.ArrowException, OverflowError) as error:
            raise ConfigError(
                f"isin: {_shown(values)} are not values of one type: {_first_line(error)}"
            ) from None
        made = computed(found, f"is_in({self.text}, {list(values)!r:.{SHOWN_CHARS}})", self)
        given = among.drop_null()
        return replace(made, checks=(*made.checks, TypeCheck(self, given[0]))) if len(given) else made

    is_in = isin

    def _is_one_of(self, among: pa.Array) -> pc.Expression:
        """Arrow looks floats up by their bits, also those that integers are next to a column of floats."""
        found = self.arrow.isin(with_both_zeros(among))
        if not pa.types.is_floating(among.type) and is_number(among.type) and _has_zero(among):
            return found | self.arrow.isin(_ZEROS)
        return found

    def _is_null_or_none_of(self, nulls: pa.Array) -> pc.Expression:
        """Arrow looks values up only among those of their type, which an empty list does not have."""
        return pc.is_null(self.arrow) & pc.scalar(len(nulls) > 0)

    def is_null(self, nan_is_null: bool = False) -> Expression:
        """True where there is no value; with `nan_is_null` also where it is NaN."""
        return self._called("is_null", lambda arrow: arrow.is_null(nan_is_null))

    def is_valid(self) -> Expression:
        """True where there is a value."""
        return self._called("is_valid", pc.is_valid)

    def is_nan(self) -> Expression:
        """True where a float is NaN."""
        return self._called("is_nan", pc.is_nan)

    # --- other values in its place ---------------------------------------------------------------

    def cast(self, type: pa.DataType | str, safe: bool = True) -> Expression:
        """The value as another type. One that does not fit fails (`on_error` of the operator); not `safe`: it
        is cut, or wraps."""
        try:
            cast = self.arrow.cast(type, safe=safe)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ConfigError(
                f"cast: {type!r:.{SHOWN_CHARS}} is no type, such as 'int64', 'float64', 'string', or "
                f"pa.decimal128(10, 2): {_first_line(error)}"
            ) from None
        return computed(cast, f"cast({self.text}, {type})", self)

    def coalesce(self, *others: Operand) -> Expression:
        """The first that is not null: this value, or of `others`."""
        every = [self, *map(_operand, others)]
        text = ", ".join(one.text for one in every)
        return computed(pc.coalesce(*(one.arrow for one in every)), f"coalesce({text})", *every)

    def fill_null(self, value: Operand) -> Expression:
        """`value` where it is null."""
        return self.coalesce(value)

    # --- texts -----------------------------------------------------------------------------------

    def lower(self) -> Expression:
        """The text in small letters."""
        return self._called("lower", pc.utf8_lower)

    def upper(self) -> Expression:
        """The text in capital letters."""
        return self._called("upper", pc.utf8_upper)

    def strip(self) -> Expression:
        """The text without white space at both ends."""
        return self._called("strip", pc.utf8_trim_whitespace)

    def length(self) -> Expression:
        """How many characters."""
        return self._called("length", pc.utf8_length)

    def starts_with(self, text: str) -> Expression:
        """True where it begins with this text."""
        return self._matched("starts_with", pc.starts_with, text)

    def ends_with(self, text: str) -> Expression:
        """True where it ends with this text."""
        return self._matched("ends_with", pc.ends_with, text)

    def contains(self, text: str) -> Expression:
        """True where this text is a part of it."""
        return self._matched("contains", pc.match_substring, text)

    def matches(self, pattern: str) -> Expression:
        """True where the regular expression (RE2) is found in it; ``^`` and ``$`` are its ends."""
        return self._matched("matches", pc.match_substring_regex, pattern)

    def substring(self, start: int, length: int | None = None) -> Expression:
        """`length` characters, or all, from the one at `start`: 0 is the first, -1 the last."""
        if length is not None and length < 0:
            raise ConfigError(f"substring: a length is 0 or more, not {length}")
        is_from_end = length is not None and start < 0 <= start + length
        stop = None if length is None or is_from_end else start + length
        cut = pc.utf8_slice_codeunits(self.arrow, start=start, stop=stop)
        return computed(
            cut, f"substring({self.text}, {start}{'' if length is None else f', {length}'})", self
        )

    # --- times -----------------------------------------------------------------------------------

    def year(self) -> Expression:
        """The year of a date or time, in its time zone; so are the other parts."""
        return self._called("year", pc.year)

    def month(self) -> Expression:
        """1 is January."""
        return self._called("month", pc.month)

    def day(self) -> Expression:
        """The day of the month, from 1."""
        return self._called("day", pc.day)

    def day_of_week(self) -> Expression:
        """1 is Monday, 7 is Sunday, as in ISO 8601."""
        return self._called("day_of_week", lambda arrow: pc.day_of_week(arrow, count_from_zero=False))

    def hour(self) -> Expression:
        """The hour of the day, from 0 to 23."""
        return self._called("hour", pc.hour)

    def minute(self) -> Expression:
        """The minute of the hour."""
        return self._called("minute", pc.minute)

    def second(self) -> Expression:
        """The second of the minute, without its fraction."""
        return self._called("second", pc.second)

    def floor_to(self, unit: TimeUnit) -> Expression:
        """The beginning of the year, month, week (Monday), day, … that a time is in, in its time zone."""
        if unit not in TIME_UNITS:
            raise ConfigError(f"floor_to: {_shown(unit)} is none of {', '.join(TIME_UNITS)}")
        if unit in _WITHIN_A_DAY:  # `floor_temporal` fails in the hour that comes twice
            local = pc.local_timestamp(self.arrow)
            passed = pc.subtract(local, pc.floor_temporal(local, multiple=1, unit=unit))
            floored = pc.subtract(self.arrow, passed)
        else:
            floored = pc.floor_temporal(self.arrow, multiple=1, unit=unit)
        return computed(floored, f"floor_to({self.text}, {unit!r})", self)

    # --- what has no value of a row --------------------------------------------------------------

    def __bool__(self) -> NoReturn:
        raise ConfigError(
            f"{self.text:.{SHOWN_CHARS}} is a value of each row, not true or false where the pipeline is "
            "written. Write & for `and`, | for `or`, ~ for `not`, each comparison in brackets; "
            ".between(1, 3) for 1 <= n <= 3; .isin([1, 2]) for `in`; us.when(…, …).otherwise(…) for `if`"
        )

    def __hash__(self) -> int:
        raise ConfigError(
            f"{self.text:.{SHOWN_CHARS}} is a value of each row, and cannot be looked up in a set or a dict: "
            "write .isin([…])"
        )

    def __iter__(self) -> NoReturn:
        raise ConfigError(
            f"{self.text:.{SHOWN_CHARS}} is one value of each row, and has no parts: write .contains('…') "
            "for a part of a text, .substring(0, 3) for its beginning"
        )

    def __format__(self, spec: str) -> str:
        raise ConfigError(
            f"{self.text:.{SHOWN_CHARS}} in a text would be its name, not the value of a row: join texts by "
            "us.concat(us.col('a'), '-', us.col('b')); str(…) is its name"
        )

    def why_no_value(self, operator: str) -> str:
        """See `unistream.model.no_value`."""
        return remedies.of_operator(operator)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_: object) -> Any:
        """Numpy's numbers have the operators of Python; its functions have none of rows."""
        function = remedies.OF_NUMPY.get(ufunc.__name__)
        if function is None or method != "__call__":
            raise ConfigError(remedies.of_numpy(ufunc.__name__))
        one, other = (value[()] if getattr(value, "ndim", 1) == 0 else value for value in inputs)
        return function(_operand(one), other)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            known = [one for one in dir(type(self)) if not one.startswith("_")]
            close = difflib.get_close_matches(_plain(name), known, n=1)
            known_hint = remedies.METHODS.get(_plain(name)) or remedies.METHODS.get(name)
            hint = known_hint or (f"write .{close[0]}" if close else "")
            raise AttributeError(
                f"an expression has no {name!r}: {hint or 'take a function of pyarrow.compute'}"
                + ("" if hint else ", as in us.Expression(pc.sqrt(us.col('a').arrow))")
            )

    def _called(self, name: str, function: Callable[[Any], Any]) -> Expression:
        return computed(function(self.arrow), f"{name}({self.text})", self)

    def _matched(self, name: str, function: Callable[..., Any], text: str) -> Expression:
        if not isinstance(text, str):
            raise ConfigError(f"{name} takes a text, not {_shown(text)}")
        return computed(function(self.arrow, pattern=text), f"{name}({self.text}, {text!r})", self)


Operand: TypeAlias = (
    Expression
    | bool
    | int
    | float
    | str
    | bytes
    | datetime.date
    | datetime.time
    | datetime.timedelta
    | decimal.Decimal
)
"""What stands next to an operator: an expression, or the same value in each row (a `datetime` is a `date`).
One of pyarrow is taken, too; it has no types to check."""

Truth: TypeAlias = Expression | bool
"""What stands next to ``&`` and ``|``."""


def literal(value: Any) -> Expression:
    """An expression with the same value in each row; one that is an expression stays as it is. A float stays
    one of 64 bits: pyarrow takes 32 for one that fits them."""
    if isinstance(value, Expression | pc.Expression):
        return value if isinstance(value, Expression) else Expression(value)
    if isinstance(value, NoValue):
        value.refuse_value()
    try:
        made = pc.scalar(value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{_shown(value)} is no value of a column: {_first_line(error)}") from None
    if isinstance(value, float):
        made = made.cast(pa.float64())
    return Expression(made, _name(value))


def with_both_zeros(values: pa.Array) -> pa.Array:
    """The values among which Arrow finds those that equal one of `values`: -0.0 equals 0.0, NaN nothing.

    >>> with_both_zeros(pa.array([1.0, -0.0, float("nan")])).to_pylist()
    [1.0, -0.0, 0.0, -0.0]
    """
    if not pa.types.is_floating(values.type):
        return values
    known = values.filter(pc.fill_null(pc.invert(pc.is_nan(values)), fill_value=True))
    return pa.concat_arrays([known, _ZEROS.cast(known.type)]) if _has_zero(known) else known


def _has_zero(numbers: pa.Array) -> bool:
    return bool(pc.any(pc.equal(numbers, pa.scalar(0, numbers.type))).as_py())


def computed(arrow: pc.Expression, text: str, *parts: Expression) -> Expression:
    """An expression that is made of others."""
    return Expression(arrow, text, tuple(check for part in parts for check in part.checks))


@dataclass(frozen=True, slots=True)
class TypeCheck:
    """A part of an expression that has to be a number; or comparable with `value`, if that is given."""

    part: Expression
    value: pa.Scalar[Any] | None = None

    def check(self, type_of: Callable[[pc.Expression], pa.DataType]) -> None:
        """Raises TypeError, or as Arrow."""
        kind = type_of(self.part.arrow)
        if is_number(kind) and (self.value is None or is_number(self.value.type)):
            return
        if self.value is not None:
            type_of(pc.equal(self.part.arrow, self.value))
            return
        remedy = "cast it first, .cast('float64')"
        if pa.types.is_boolean(kind):
            remedy = "write us.when(…, 1).otherwise(0)"
        raise TypeError(f"{self.part.text:.{SHOWN_CHARS}} is {kind}, and no number: {remedy}")


def check_types(expression: Any, type_of: Callable[[pc.Expression], pa.DataType]) -> None:
    """Checks what Arrow would cast in silence: a text next to a number, or true for 1.

    Raises:
        TypeError: a part that is made a float is no number.
        pa.ArrowException: a part is no type of the values among which it is looked up.

    >>> check_types(literal("7") / 2, lambda _: pa.string())
    Traceback (most recent call last):
    TypeError: '7' is string, and no number: cast it first, .cast('float64')
    """
    for one in expression.checks if isinstance(expression, Expression) else ():
        one.check(type_of)


def is_number(kind: pa.DataType) -> bool:
    """Whether values of this type are computed."""
    if pa.types.is_dictionary(kind):
        return is_number(kind.value_type)
    is_one = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    return any(found(kind) for found in is_one)


def as_arrow(value: Any) -> Any:
    """What pyarrow computes, of an expression; anything else as it is."""
    return value.arrow if isinstance(value, Expression) else value


def why_not(error: Exception) -> str:
    """Why Arrow does not compute an expression, and what to do.

    >>> why_not(TypeError("Function 'greater' has no kernel matching input types (timestamp[ms], string)"))
    "no 'greater' of timestamp[ms], string: a time is compared with a datetime, not with a text"
    """
    line = _first_line(error)
    if column := _NO_COLUMN.search(line):
        return f"there is no column {column[1]!r}"
    if "Precision is not great enough" in line:
        return f"{line}: next to decimals write whole numbers as decimal.Decimal"
    if kernel := _NO_KERNEL.search(line):
        which = f"{kernel[1]} {kernel[2]}"
        hint = next((f": {hint}" for found, hint in _HINTS if re.match(found, which)), "")
        return f"no {kernel[1].removesuffix('_checked')!r} of {kernel[2]}{hint}"
    return line


def readable(expression: pc.Expression | Expression) -> str:
    """The expression in one line, without the options of functions.

    >>> readable(pc.is_null(pc.field("n").cast("int8")) & (pc.field("t") == "{to_type=x}"))
    '(is_null(cast(n, int8)) and (t == "{to_type=x}"))'
    """
    if isinstance(expression, Expression):
        return expression.text
    kept: list[str] = []

    def keep(text: re.Match[str]) -> str:
        kept.append(text[0])
        return f'"{len(kept) - 1}"'

    text = _TEXTS.sub(keep, str(expression))
    for pattern, shorter in _OPTIONS:
        text = pattern.sub(shorter, text)
    return _TEXTS.sub(lambda number: kept[int(number[0][1:-1])], text)


def _both(sign: str, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Expression:
    for one in (left, right):
        if one is None or (isinstance(one, pa.Scalar) and not one.is_valid):
            raise ConfigError(
                f"({_name(left)} {sign} {_name(right)}) is null in each row, and never true: use .is_null(), "
                ".is_valid() or .fill_null(0)"
            )
    one, other = _operand(left), _operand(right)
    made = computed(function(one.arrow, other.arrow), f"({one.text} {sign} {other.text})", one, other)
    if function not in _OF_FLOATS:
        return made
    return replace(made, checks=(*made.checks, TypeCheck(one), TypeCheck(other)))


def _operand(value: Any) -> Expression:
    if isinstance(value, Sized) and not isinstance(value, str | bytes | NoValue | pa.Scalar):
        raise ConfigError(
            f"{_shown(value)} is not one value next to an expression: write .isin([…]) for one of several"
        )
    return literal(value)


def _name(value: Any) -> str:
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    return "null" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)


def _divided(one: pc.Expression, other: pc.Expression) -> pc.Expression:
    return pc.divide_checked(_as_float(one), _as_float(other))


def _power(one: pc.Expression, other: pc.Expression) -> pc.Expression:
    return pc.power_checked(_as_float(one), _as_float(other))


_OF_FLOATS: Final = (_divided, _power)


def _as_float(one: pc.Expression) -> pc.Expression:
    """The nearest one, also of an integer above 2**53."""
    return one.cast(options=pc.CastOptions(target_type=pa.float64(), allow_float_truncate=True))


def _plain(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
