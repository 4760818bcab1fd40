"""A simple sink of an author: when it is called, and what is refused of it in one sentence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from unistream.testing import SimpleSinkHarness


class Queue(us.SimpleSink):
    """Sends by twos."""

    def __init__(self) -> None:
        self.held: list[int] = []
        self.sent: list[int] = []
        self.calls: list[str] = []

    def open(self, context: us.SinkContext) -> None:
        self.calls.append(f"open {context.index} of {context.parallelism}")

    def write(self, rows: pa.RecordBatch) -> None:
        self.held += rows.column("id").to_pylist()
        if len(self.held) >= 2:
            self.flush()

    def flush(self) -> None:
        self.sent += self.held
        self.held = []

    def close(self) -> None:
        self.calls.append("close")


def test_rows_are_with_the_target_when_a_checkpoint_is_acknowledged() -> None:
    with SimpleSinkHarness(Queue(), index=1, parallelism=2) as harness:
        harness.write([{"id": 1}])
        assert harness.sink.sent == []
        harness.checkpoint()
        assert harness.sink.sent == [1]
        harness.write({"id": [2]})
        harness.end()
        assert harness.sink.sent == [1, 2]
    assert harness.sink.calls == ["open 1 of 2", "close"]
    assert harness.metrics["numRecordsSend"] == 2


def test_what_was_not_flushed_is_dropped_with_a_failure() -> None:
    with SimpleSinkHarness(Queue()) as harness:
        harness.write([{"id": 1}])
    assert harness.sink.sent == []


def test_a_class_is_enough() -> None:
    class Shown(us.SimpleSink):
        def write(self, rows: pa.RecordBatch) -> None: ...

    env = us.Environment()
    stream = env.from_collection([{"id": 1}])
    stream.sink_to(Shown()).uid("shown")
    assert "Shown" in env.explain()
    with SimpleSinkHarness(Shown()) as harness:
        harness.write([{"id": 1}])
        harness.checkpoint()


class Named(Queue):
    name = "web hook"


class Narrow(Queue):
    def check(self, schema: pa.Schema | None) -> None:
        if schema is not None and "id" not in schema.names:
            raise us.ConfigError(f"narrow: no column 'id' in {schema.names}")


class Nothing(us.SimpleSink):
    pass


class Locked(Queue):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def test_the_name_is_that_of_the_class_unless_it_has_one() -> None:
    assert (Queue().name, Named().name) == ("Queue", "web hook")


def having(**attributes: Any) -> Queue:
    sink = Queue()
    for name, value in attributes.items():
        setattr(sink, name, value)
    return sink


@pytest.mark.parametrize(
    ("sink", "reason"),
    [
        pytest.param(Nothing(), "sink Nothing: Nothing has no method write", id="no method write"),
        pytest.param(Narrow(), "narrow: no column 'id'", id="rows that do not fit"),
        pytest.param(having(name=7), "sink Queue: its name is int 7; a name has", id="a number as its name"),
        pytest.param(
            having(address=7), "Queue: its address is int 7, and must", id="a number as its address"
        ),
        pytest.param(Queue, "sink_to takes a sink", id="the class itself"),
    ],
)
def test_what_a_sink_must_not_be(sink: Any, reason: str) -> None:
    stream = us.Environment().from_collection([{"n": 1}])
    with pytest.raises(us.ConfigError, match=reason):
        stream.sink_to(sink)


def test_a_harness_checks_what_a_pipeline_does() -> None:
    with pytest.raises(us.ConfigError, match="Locked cannot be sent to workers"):
        SimpleSinkHarness(Locked())
    given: Any = Queue
    with pytest.raises(us.ConfigError, match=r"a subclass of us\.SimpleSink, not the class Queue"):
        SimpleSinkHarness(given)
    with SimpleSinkHarness(Narrow()) as harness, pytest.raises(us.ConfigError, match="no column 'id'"):
        harness.write([{"n": 1}])


@pytest.mark.parametrize("rows", [pa.table({"id": [1]}), 5, "text", [1]], ids=repr)
def test_a_harness_refuses_what_are_no_rows(rows: Any) -> None:
    with (
        SimpleSinkHarness(Queue()) as harness,
        pytest.raises(us.ConfigError, match=r"rows as a pyarrow\.RecordBatch, as a dict of columns or"),
    ):
        harness.write(rows)


def test_an_error_of_the_author_fails_the_task_as_it_is() -> None:
    class Broken(us.SimpleSink):
        def write(self, rows: pa.RecordBatch) -> None:
            raise OSError("the hook is gone")

    with SimpleSinkHarness(Broken()) as harness, pytest.raises(OSError, match="the hook is gone"):
        harness.write([{"id": 1}])


async def later(*_: Any) -> None: ...


def bit_by_bit(*_: Any) -> Iterator[None]:
    yield


@pytest.mark.parametrize("method", ["open", "write", "flush", "close"])
@pytest.mark.parametrize(("how", "kind"), [(later, "coroutine"), (bit_by_bit, "generator")])
def test_a_method_that_does_not_run_when_it_is_called_is_refused(
    method: str, how: Callable[..., object], kind: str
) -> None:
    sink = Queue()
    setattr(sink, method, how)

    def run() -> None:
        with SimpleSinkHarness(sink) as harness:
            harness.write([{"id": 1}])
            harness.checkpoint()

    with pytest.raises(us.ConfigError, match=f"^sink Queue: {method} returned a {kind}, so nothing of it"):
        run()


def test_its_address_is_in_the_lineage() -> None:
    class Hook(Queue):
        address = "https://user:secret@hooks.example.org/prices"

    env = us.Environment()
    env.from_collection([{"id": 1}]).sink_to(Hook()).uid("hook")
    env.from_collection([{"id": 1}]).sink_to(Queue()).uid("queue")
    hook, queue = env.lineage().sinks
    assert [one.uri for one in hook.datasets] == ["https://hooks.example.org/prices"]
    assert queue.datasets == ()
