"""Names of counters, ``<operator name>.<counter>``: whose each is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

RECORDS_OUT_OF_ORDER: Final = "numRecordsOutOfOrder"
"""Rows of a source that are earlier than its declared order allows; the name goes on with the split."""

USER: Final = "user."
"""Begin of the names of metrics of a user's function: ``<operator name>.user.<name>``."""

_OUT_OF_ORDER: Final = f".{RECORDS_OUT_OF_ORDER}."


class Parted(NamedTuple):
    """A counter of an operator. `is_users`: a function's own, which may be called as one of ours is."""

    operator: str
    counter: str
    is_users: bool = False


def parted(name: str) -> Parted:
    """The parts of ``<operator name>.<counter>``. Names of operators and of splits may have any dots,
    counters have none; no operator's name ends with ``.user`` (`refused_operator`).

    >>> parted("a.b.dead_letters"), parted("a.b.user.dead_letters").is_users
    (Parted(operator='a.b', counter='dead_letters', is_users=False), True)
    >>> parted("read.numRecordsOutOfOrder.topic.user.clicks-0").counter
    'numRecordsOutOfOrder.topic.user.clicks-0'
    """
    operator, of_split, split = name.partition(_OUT_OF_ORDER)
    if of_split:
        return Parted(operator, out_of_order_counter(split))
    operator, _, counter = name.rpartition(".")
    is_users = operator.endswith(f".{USER[:-1]}")
    return Parted(operator.removesuffix(f".{USER[:-1]}"), counter, is_users)


def refused_operator(name: str) -> str | None:
    """Why counters of an operator of this name would look like those of a function; None: they do not."""
    if not name.endswith(f".{USER[:-1]}"):
        return None
    return f"operator {name!r}: the name ends like those of a function's metrics; give it another: .name(…)"


def by_operator(counters: Mapping[str, int], counter: str) -> dict[str, int]:
    """Values of one of our counters by operator name, from counters by ``<operator name>.<counter>``.

    >>> by_operator({"parse.dead_letters": 3, "parse.user.dead_letters": 8}, "dead_letters")
    {'parse': 3}
    """
    end = f".{counter}"
    found = {parted(name): value for name, value in counters.items() if name.endswith(end)}
    return {one.operator: value for one, value in found.items() if one == Parted(one.operator, counter)}


def out_of_order_counter(split_id: str) -> str:
    return f"{RECORDS_OUT_OF_ORDER}.{split_id}"
