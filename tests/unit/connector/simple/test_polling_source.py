"""A polling source of an author: what it reads, when, and what is refused of it in one sentence."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import unistream as us
from tests.eventually import eventually
from unistream.base.limits import MAX_WATERMARK
from unistream.connector.catalogue import create_discovery
from unistream.connector.simple.polls import Polls, Wait
from unistream.connector.simple.splits import new_splits
from unistream.model.elements import Watermark
from unistream.model.splits import KnownSplits
from unistream.port.source import Exhausted, Idle, ReaderContext, Rows, SplitFinished
from unistream.testing import PollingSourceHarness
from unistream.testing.harness.operators import CountingMetrics
from unistream.worker.task.split_watermarks import SplitWatermarks

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = 6


def rows(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


class Pages(us.PollingSource):
    """`ROWS` rows of each split, two a page, and nothing more."""

    schema = SCHEMA
    interval_after_rows = 0

    def __init__(self, *names: str, bounded: bool = False) -> None:
        self.names = list(names)
        self.bounded = bounded
        self.calls: list[str] = []

    def splits(self) -> Iterable[str]:
        return self.names

    def open(self, context: us.ReaderContext) -> None:
        self.calls.append("open")
        self.metrics = context.metrics

    def poll(self, split: str, position: int | None) -> tuple[pa.RecordBatch | None, int | None]:
        self.metrics.add("polls", 1)
        first = position or 0
        if first < ROWS:
            return rows(first, first + 1), first + 2
        return None, None if self.bounded else first

    def close(self) -> None:
        self.calls.append("close")


def test_a_class_is_enough() -> None:
    class Numbers(us.PollingSource):
        schema = SCHEMA

        def poll(self, split: str, position: Any) -> tuple[pa.RecordBatch | None, Any]:
            return (rows(1), "read") if position is None else (None, position)

    env = us.Environment()
    env.from_source(Numbers(), us.WatermarkStrategy.no_watermarks()).uid("numbers").print()
    assert "Numbers" in env.explain()
    assert "source polling, unbounded" in env.explain()
    with PollingSourceHarness(Numbers()) as harness:
        assert harness.poll() == [{"id": 1}]
        assert harness.positions == {"all": "read"}


@pytest.mark.parametrize("bounded", [True, False], ids=["bounded", "unbounded"])
def test_each_split_is_read_from_its_position(bounded: bool) -> None:
    with PollingSourceHarness(Pages("a", "b", bounded=bounded)) as harness:
        found = [row["id"] for row in harness.poll()]
        assert sorted(found) == sorted([*range(ROWS)] * 2)
        assert harness.positions == ({} if bounded else {"a": ROWS, "b": ROWS})
        assert harness.is_ended == bounded
        assert harness.poll() == []


def test_a_restart_goes_on_behind_the_last_rows() -> None:
    class Slow(Pages):
        interval_after_rows = "5 s"

    found: list[int] = []
    with PollingSourceHarness(Slow("a")) as harness:
        while not found or found[-1] < ROWS - 1:
            found += [row["id"] for row in harness.poll()]
            harness.restart()
        assert harness.poll() == []
    assert found == [*range(ROWS)]


def test_splits_that_come_later_are_read_from_their_beginning_once() -> None:
    source = Pages("a")
    with PollingSourceHarness(source) as harness:
        assert len(harness.poll()) == ROWS
        source.names.append("b")
        seen = 0
        for _ in range(100):
            seen += len(harness.poll())
        assert seen == ROWS, "it was looked for every minute"
        source.names = ["c"]
        harness.restart()
        assert len(harness.poll()) == ROWS, "and at each start"
        harness.restart()
        assert harness.poll() == []
        assert sorted(harness.positions) == ["a", "b", "c"], "a name that is gone is polled all the same"


def test_what_is_built_anew_finds_no_split_again() -> None:
    discovery: Any = create_discovery(Pages("a", "b").info())
    first = discovery.find(None).splits
    assert [split.id for split in first] == ["a", "b", "~new splits"]
    assert discovery.find(KnownSplits(ids=frozenset(split.id for split in first))).splits == ()


def test_a_source_that_was_bounded_finds_what_has_come_since() -> None:
    discovery: Any = create_discovery(Pages("a", "b").info())
    found = discovery.find(KnownSplits(ids=frozenset({"a", "c"}))).splits
    assert found == (new_splits(["a", "c"]),), "b is new, and c stays known"


@pytest.mark.parametrize("ahead", [True, False])
def test_a_source_that_is_bounded_from_now_on_looks_once_for_others(ahead: bool) -> None:
    source = Pages("a", "b", bounded=True)
    reader = source.create_reader()
    reader.open(context(reads_ahead=ahead))
    reader.add_splits([new_splits(["a"])])
    reader.no_more_splits()
    found: list[Any] = []

    def ended() -> bool:
        found.append(reader.poll())
        return isinstance(found[-1], Exhausted)

    eventually(ended, "it ends")
    reader.close()
    assert sum(one.records.num_rows for one in found if isinstance(one, Rows)) == ROWS, "those of b"


def test_splits_that_are_not_there_yet_hold_back_no_watermark() -> None:
    watermarks = SplitWatermarks(us.WatermarkStrategy.for_monotonous_timestamps())
    for split in create_discovery(Pages("a").info()).discover():
        watermarks.add(split, 0)
    watermarks.limit(MAX_WATERMARK)
    watermarks.on_rows("a", 1_000, 0)
    assert watermarks.on_interval(0) == [Watermark(999)]


@pytest.mark.parametrize(
    ("given", "times"),
    [
        pytest.param({}, [0, 1_000, 2_000], id="each second, if nothing else is said"),
        pytest.param({"interval": "3 s"}, [0, 3_000, 6_000], id="the interval"),
        pytest.param({"interval_after_rows": 0}, [0, 0, 1_000], id="at once while there are rows"),
        pytest.param(
            {"interval": 50, "interval_after_rows": "2 s"}, [0, 2_000, 2_050], id="longer with rows"
        ),
        pytest.param({"bounded": True}, [0, 0, 1_000], id="a bounded one is read at once"),
    ],
)
def test_a_split_waits_for_its_turn(given: dict[str, Any], times: list[int]) -> None:
    """The first poll has rows."""
    now_ms, polled = 0, list[int]()

    class Paced(us.PollingSource):
        schema = SCHEMA

        def poll(self, split: str, position: Any) -> tuple[pa.RecordBatch | None, Any]:
            polled.append(now_ms)
            return (rows(1) if len(polled) == 1 else None), "on"

    source = Paced()
    for name, value in given.items():
        setattr(source, name, value)
    polls = Polls(source, context())
    polls.add("all", None, now_ms)
    while len(polled) < len(times):
        turn = polls.turn(now_ms)
        if isinstance(turn, Wait):
            assert turn.for_ms is not None
            now_ms += turn.for_ms
    assert polled == times


def context(**other: Any) -> ReaderContext:
    given: dict[str, Any] = {
        "wake": lambda: None,
        "request_split": lambda: None,
        "metrics": CountingMetrics(),
    }
    return ReaderContext(index=0, parallelism=1, **(given | other))


class Bad(us.PollingSource):
    """Returns what it was given."""

    schema = SCHEMA

    def __init__(self, returns: Any, *, bounded: bool = False) -> None:
        self.returns = returns
        self.bounded = bounded

    def poll(self, split: str, position: Any) -> Any:
        return self.returns


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        pytest.param(None, "poll returned None; poll returns two things", id="nothing"),
        pytest.param(rows(1), "poll returned RecordBatch .*two things", id="rows alone"),
        pytest.param((rows(1), 1, 2), "poll returned tuple .*two things", id="three things"),
        pytest.param(([{"id": 1}], 1), "rows as list .*pa.RecordBatch.from_pylist", id="dicts"),
        pytest.param((pa.table({"id": [1]}), 1), r"rows as Table \(id int64\)", id="a table"),
        pytest.param(
            (pa.record_batch({"id": [1.5]}), 1),
            r"columns \(id double\), and the schema of the source has \(id int64\)",
            id="another type",
        ),
        pytest.param(
            (rows(1), None), "rows and the position None, so they would be read again", id="no position"
        ),
        pytest.param((rows(1), object()), "position object .*no checkpoint can hold", id="an object"),
        pytest.param(
            (rows(1), (1, 2)), r"position tuple \(1, 2\), which comes back .* list \[1, 2\]", id="a tuple"
        ),
        pytest.param((rows(1), {1}), r"position set \{1\}, which comes back", id="a set"),
        pytest.param((rows(1), Decimal(1)), "comes back from a checkpoint as str '1'", id="a decimal"),
        pytest.param((rows(1), dt.datetime(2026, 1, 1)), "comes back .* as str", id="a time without a zone"),  # noqa: DTZ001
        pytest.param((rows(1), 2**70), "no checkpoint can hold", id="a large number"),
        pytest.param((rows(1), "x" * 2**21), "a position of 2097157 bytes", id="a large position"),
    ],
)
def test_what_poll_must_not_return(returned: Any, reason: str) -> None:
    with (
        PollingSourceHarness(Bad(returned)) as harness,
        pytest.raises(us.ConfigError, match=f"^source Bad, split 'all': .*{reason}"),
    ):
        harness.poll()


def test_a_null_where_the_schema_has_none_is_refused() -> None:
    class Whole(Bad):
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])

    with (
        PollingSourceHarness(Whole((pa.record_batch([[1, None]], schema=Whole.schema), 1))) as harness,
        pytest.raises(
            us.ConfigError, match=r"^source Whole, split 'all': .* 1 nulls in 'id'.*nullable=False"
        ),
    ):
        harness.poll()


def test_an_open_that_does_not_run_when_it_is_called_is_refused() -> None:
    class Later(Bad):
        async def open(self, context: ReaderContext) -> None:  # type: ignore[override]
            ...

    with (
        PollingSourceHarness(Later((None, 1))) as harness,
        pytest.raises(us.ConfigError, match=r"^source Later: open .* coroutine, so nothing of it has run"),
    ):
        harness.poll()


@pytest.mark.parametrize(
    "position",
    [0, "cursor", b"\x00", 1.5, True, [1, "a"], {"page": 3}, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
    ids=repr,
)
def test_a_position_comes_back_as_it_was(position: Any) -> None:
    with PollingSourceHarness(Bad((rows(1), position))) as harness:
        harness.poll()
        harness.restart()
        assert harness.positions == {"all": position}


def no_schema() -> us.PollingSource:
    class Nameless(us.PollingSource):
        def poll(self, split: str, position: Any) -> Any: ...

    return Nameless()


def no_poll() -> us.PollingSource:
    class Nothing(us.PollingSource):
        schema = SCHEMA

    return Nothing()


def having(**attributes: Any) -> Callable[[], us.PollingSource]:
    def make() -> us.PollingSource:
        source = Bad((None, None))
        for name, value in attributes.items():
            setattr(source, name, value)
        return source

    return make


def naming(names: Any) -> Callable[[], us.PollingSource]:
    return having(splits=lambda: names)


def failing() -> us.PollingSource:
    def splits() -> Iterable[str]:
        raise ConnectionError("nobody answers")

    return having(splits=splits)()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(no_schema, "Nameless: it has no schema", id="no schema"),
        pytest.param(no_poll, "Nothing has no method poll", id="no poll"),
        pytest.param(having(schema={"id": pa.int64()}), "its schema is dict", id="a schema of dicts"),
        pytest.param(having(schema=pa.schema([])), "at least one column", id="no columns"),
        pytest.param(having(interval=0), "interval is 0, and must be at least 10 ms", id="an interval of 0"),
        pytest.param(having(interval="often"), "interval: 'often'", id="no duration"),
        pytest.param(
            having(bounded="no"), "bounded is str 'no', and must be True or False", id="a text: bounded"
        ),
        pytest.param(having(name=7), "Bad: its name is int 7; a name has", id="a number: name"),
        pytest.param(having(name=""), "Bad: its name is str ''; a name has", id="an empty name of a source"),
        pytest.param(having(address=7), "Bad: its address is int 7, and must be", id="a number: address"),
        pytest.param(naming("eu"), "returned str 'eu', and must return a list of names", id="a text"),
        pytest.param(naming(None), "returned None", id="no names"),
        pytest.param(naming([1]), r"returned list \[1\]", id="numbers"),
        pytest.param(naming(["a", "a"]), "2 names, 1 of them different", id="twice"),
        pytest.param(naming([""]), "returned the name ''", id="an empty name"),
        pytest.param(naming(["~new splits"]), "returned the name '~new splits'", id="the name of ours"),
        pytest.param(failing, "where the pipeline is built: ConnectionError: nobody answers", id="an error"),
    ],
)
def test_what_a_source_must_not_be(make: Callable[[], us.PollingSource], reason: str) -> None:
    with pytest.raises(us.ConfigError, match=reason):
        us.Environment().from_source(make(), us.WatermarkStrategy.no_watermarks())


def test_a_source_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(
        us.ConfigError, match=r"Bad cannot be sent to workers: TypeError.*create such objects in open"
    ):
        PollingSourceHarness(Bad(threading.Lock()))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param(Pages, "a subclass of us.PollingSource, not the class Pages", id="the class itself"),
        pytest.param(us.StaticSource(pa.table({"id": [1]})), "not <.*StaticSource", id="a source of ours"),
    ],
)
def test_a_harness_takes_a_polling_source(given: Any, reason: str) -> None:
    with pytest.raises(us.ConfigError, match=reason):
        PollingSourceHarness(given)


def test_a_harness_loses_no_rows_by_an_error() -> None:
    failed: list[str] = []

    class Flaky(Pages):
        def poll(self, split: str, position: int | None) -> tuple[pa.RecordBatch | None, int | None]:
            if split == "b" and not failed:
                failed.append(split)
                raise OSError("nobody answers")
            return super().poll(split, position)

    with PollingSourceHarness(Flaky("a", "b")) as harness:
        with pytest.raises(OSError, match="nobody answers"):
            harness.poll()
        assert harness.positions == {"a": None, "b": None}
        assert sorted(row["id"] for row in harness.poll()) == sorted([*range(ROWS)] * 2)


# --- on a thread of its own -----------------------------------------------------------------------


class Waiting(us.PollingSource):
    """Polls that wait for `go`; `at` says that one has begun."""

    schema = SCHEMA
    at, go, closed = threading.Event(), threading.Event(), threading.Event()

    def poll(self, split: str, position: int | None) -> tuple[pa.RecordBatch | None, int | None]:
        self.at.set()
        self.go.wait()
        return rows(position or 0), (position or 0) + 1

    def close(self) -> None:
        self.closed.set()


def test_a_poll_that_waits_does_not_hold_up_the_task() -> None:
    woken = threading.Event()
    reader = Waiting().create_reader()
    reader.open(context(wake=woken.set))
    reader.add_splits(create_discovery(Waiting().info()).discover())
    assert Waiting.at.wait(60)
    assert reader.poll() == Idle()
    assert [split.id for split in reader.snapshot()] == ["all", "~new splits"]
    woken.clear()
    Waiting.go.set()
    assert woken.wait(60)
    polled = reader.poll()
    assert isinstance(polled, Rows)
    assert polled.records.to_pylist() == [{"id": 0}]
    reader.close()
    assert Waiting.closed.wait(60)


class Panic(BaseException):
    """As of a library that is written in Rust."""


@pytest.mark.parametrize(
    "error",
    [OSError("the feed is gone"), SystemExit(3), asyncio.CancelledError("late"), Panic("out of bounds")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_the_author_fails_the_task_as_it_is(error: BaseException) -> None:
    class Broken(us.PollingSource):
        schema = SCHEMA

        def poll(self, split: str, position: Any) -> Any:
            raise error

    woken = threading.Event()
    reader = Broken().create_reader()
    reader.open(context(wake=woken.set))
    reader.add_splits(create_discovery(Broken().info()).discover())

    def fails() -> bool:
        try:
            return not isinstance(reader.poll(), Idle)
        except type(error) as raised:
            return raised is error

    eventually(fails, "the task fails")
    reader.close()


def test_methods_are_called_in_order_by_one_copy_and_counted_for_the_task() -> None:
    metrics, requested = CountingMetrics(), []
    source = Pages("a", bounded=True)
    reader = source.create_reader()
    reader.open(context(metrics=metrics, request_split=lambda: requested.append(1)))
    assert reader.poll() == Idle()
    assert requested == [1]
    reader.add_splits(create_discovery(source.info()).discover())
    reader.no_more_splits()
    found = []

    def ended() -> bool:
        found.append(reader.poll())
        return isinstance(found[-1], Exhausted)

    eventually(ended, "it ends")
    reader.close()
    assert [one for one in found if isinstance(one, SplitFinished)] == [SplitFinished("a")]
    assert source.calls == ["open", "close"]
    assert metrics.counts["polls"] == 1 + ROWS // 2
