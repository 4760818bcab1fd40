"""What cannot be sent to workers is named: the operator, and whose it is."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

import unistream as us
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid, VertexId
from unistream.model.chain import Chain, ChainNode, JobCode
from unistream.worker.code import artifact
from unistream.worker.code.unsendable import what_is_unsendable

LOCK = threading.Lock()
NUMBERS = us.StaticSource(pa.table({"n": [1, 2]}))


def _code(*operators: object) -> JobCode:
    nodes = [
        ChainNode(uid=OperatorUid(f"u{i}"), name=f"n{i}", operator=operator)
        for i, operator in enumerate(operators)
    ]
    return JobCode(chains={VertexId("v"): Chain(nodes=tuple(nodes))})


def with_a_variable() -> object:
    lock = LOCK

    def enrich(row: object) -> object:
        with lock:
            return row

    return enrich


def with_a_default() -> object:
    def enrich(row: object, lock: Any = LOCK) -> object:
        return row

    return enrich


def with_a_global() -> object:
    module = types.ModuleType("not_importable")
    exec("def inner(row):\n    return [LOCK for _ in row]\n", module.__dict__)
    module.__dict__["LOCK"] = LOCK
    return module.__dict__["inner"]


class Client:
    def __init__(self) -> None:
        self.address, self.lock = "here", LOCK

    def ask(self, row: Any) -> Any:
        return row


class Slotted:
    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = LOCK


class Holder:
    def __init__(self, held: object) -> None:
        self.held = held


class Closed(Mapping[str, object]):
    """Lets nobody see what it has."""

    lock = LOCK

    def __getitem__(self, key: str) -> object:
        raise OSError("closed")

    def __iter__(self) -> Iterator[str]:
        raise OSError("closed")

    def __len__(self) -> int:
        return 1

    def __reduce__(self) -> Any:
        raise OSError("closed")


def with_a_class() -> object:
    class Counter:
        lock = LOCK

    return Counter()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda: LOCK, "holds a _thread.lock", id="itself"),
        pytest.param(
            with_a_variable,
            "the variable 'lock' of with_a_variable.enrich is a _thread.lock",
            id="a variable",
        ),
        pytest.param(with_a_default, "a default of with_a_default.enrich is a _thread.lock", id="a default"),
        pytest.param(with_a_global, "the global 'LOCK', which inner uses, is a _thread.lock", id="a global"),
        pytest.param(Client, "'lock' of Client is a _thread.lock", id="an attribute"),
        pytest.param(Slotted, "'lock' of Slotted is a _thread.lock", id="a slot"),
        pytest.param(with_a_class, "'lock' of class Counter is a _thread.lock", id="a class"),
        pytest.param(
            lambda: Holder(Closed()), f"'held' of Holder is a {__name__}.Closed", id="what lets nobody look"
        ),
        pytest.param(lambda: Client().ask, "'lock' of Client is a _thread.lock", id="a method"),
        pytest.param(lambda: partial(print, LOCK), "an argument of print is a _thread.lock", id="partial"),
        pytest.param(
            lambda: Holder({"a": [1, LOCK]}), "the item at 1 is a _thread.lock", id="in a list in a dict"
        ),
        pytest.param(lambda: Holder({"a": LOCK}), "the item 'a' is a _thread.lock", id="in a dict"),
    ],
)
def test_the_way_to_what_cannot_be_pickled(make: Callable[[], object], words: str) -> None:
    said = what_is_unsendable(_code([1], make(), "fine"), cloudpickle.dumps)
    assert said == f"operator 'n1' (uid 'u1'){'' if words.startswith('holds') else ':'} {words}"


def test_what_contains_itself_comes_to_an_end() -> None:
    ring: list[object] = []
    ring += [ring, LOCK]
    said = what_is_unsendable(_code(ring), cloudpickle.dumps)
    assert said == "operator 'n0' (uid 'u0'): the item at 1 is a _thread.lock"


def test_nothing_is_said_of_what_can_be_sent() -> None:
    assert what_is_unsendable(_code([1], "a"), cloudpickle.dumps) == ""


def test_the_users_own_names_are_told_and_not_ours() -> None:
    env = us.Environment()
    client = Client()
    rows = env.from_source(NUMBERS, us.WatermarkStrategy.no_watermarks(), "numbers")
    rows.map(client.ask, returns=pa.schema([("n", pa.int64())])).uid("ask").sink_to(us.BlackholeSink())
    _, code = env.job_graph()
    with pytest.raises(ConfigError) as caught:
        artifact.pack(code, by_value=[sys.modules[__name__]])
    assert "operator 'map ask' (uid 'ask'): 'lock' of Client is a _thread.lock: TypeError: " in str(
        caught.value
    )
    assert "create such objects inside the function, or in open()" in str(caught.value)
