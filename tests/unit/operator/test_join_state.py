"""What a lookup join restores: rows that fit those of now, and a dimension by the same key."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from unistream.base.errors import ConfigError, CorruptSnapshot
from unistream.model.elements import Batch
from unistream.model.snapshot import OperatorSnapshot
from unistream.operator.join import DIMENSION_STATE, KEYS_STATE, BroadcastLookupJoin, JoinKind
from unistream.operator.waiting_rows import encode_batch
from unistream.testing.harness import OperatorHarness, restore_state
from unistream.worker.task import task_failure

PLACES = pa.schema([("city", pa.string()), ("street", pa.string()), ("height", pa.int32())])
FACTS = pa.schema([("n", pa.int32()), ("city", pa.string()), ("street", pa.string())])


def join(
    *keys: str,
    places: pa.Schema = PLACES,
    facts: pa.Schema | None = FACTS,
    latest_by: str | None = None,
) -> BroadcastLookupJoin:
    pairs = [(key, key) for key in keys or ("city",)]
    return BroadcastLookupJoin(pairs, places, JoinKind.INNER, facts=facts, latest_by=latest_by)


def filled(operator: BroadcastLookupJoin) -> OperatorSnapshot:
    """With a fact that waits, and a city with two streets."""
    with OperatorHarness(operator) as harness:
        rows = {"city": ["rome", "rome"], "street": ["corso", "veneto"], "height": [20, 50]}
        harness.process(pa.RecordBatch.from_pydict(rows, schema=PLACES), input_index=1)
        fact = {"n": [1], "city": ["bonn"], "street": ["markt"]}
        harness.process(pa.RecordBatch.from_pydict(fact, schema=FACTS), [1])
        return harness.snapshot(1)


def restored(operator: BroadcastLookupJoin, snapshot: OperatorSnapshot) -> OperatorHarness:
    return OperatorHarness(operator, state=restore_state([snapshot], 1))


def changed(schema: pa.Schema, **types: pa.DataType) -> pa.Schema:
    return pa.schema([(field.name, types.get(field.name, field.type)) for field in schema])


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(("street",), id="another column"),
        pytest.param(("city", "street"), id="one more, by which there were more rows"),
    ],
)
def test_a_dimension_by_another_key_is_refused(keys: tuple[str, ...]) -> None:
    """Older versions kept the last of rows with an equal key; the others are gone."""
    with pytest.raises(ConfigError) as caught:
        restored(join(*keys), filled(join("city"))).open()
    wanted = ", ".join(keys)
    assert (
        f"it was made by a dimension by (city), and the pipeline now has a dimension by ({wanted}); go"
        in str(caught.value)
    )
    assert not task_failure(caught.value).recoverable


def test_the_same_keys_in_another_order_are_the_same_key() -> None:
    with restored(join("street", "city"), filled(join("city", "street"))) as harness:
        fact = {"n": [2], "city": ["rome"], "street": ["corso"]}
        harness.process(pa.RecordBatch.from_pydict(fact, schema=FACTS), [2])
        harness.end_input(1, inputs=2)
        assert [row["height"] for row in harness.rows()] == [20]


@pytest.mark.parametrize(
    ("operator", "why"),
    [
        pytest.param(
            join(places=changed(PLACES, height=pa.string())),
            "state 'dimension': column 'height': int32 cannot become string",
            id="a column of the dimension",
        ),
        pytest.param(
            join(places=PLACES.append(pa.field("zip", pa.string()))),
            "state 'dimension': its columns have changed: zip",
            id="a new column of the dimension",
        ),
        pytest.param(
            join(facts=changed(FACTS, n=pa.int16())),
            "state 'waiting-facts': column 'n': int32 cannot become int16",
            id="a column of the facts",
        ),
        pytest.param(
            join(facts=FACTS.append(pa.field("at", pa.int64()))),
            "state 'waiting-facts': its columns have changed: at",
            id="a new column of the facts",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(operator: BroadcastLookupJoin, why: str) -> None:
    with pytest.raises(ConfigError, match=f"^operator 'operator': {why}; give it another uid$"):
        restored(operator, filled(join())).open()


@pytest.mark.parametrize("more", [True, False], ids=["with another row of the dimension", "alone"])
def test_rows_of_narrower_types_are_taken_over(more: bool) -> None:
    places = changed(PLACES, height=pa.int64())
    facts = changed(FACTS, n=pa.float64())
    with restored(join(places=places, facts=facts), filled(join())) as harness:
        if more:
            row = {"city": ["bonn"], "street": ["markt"], "height": [2**40]}
            harness.process(pa.RecordBatch.from_pydict(row, schema=places), input_index=1)
        fact = {"n": [2.5], "city": ["rome"], "street": ["x"]}
        harness.process(pa.RecordBatch.from_pydict(fact, schema=facts), [2])
        harness.end_input(1, inputs=2)
        found = sorted((row["n"], row["height"]) for row in harness.rows())
        assert {batch.records.schema.field("n").type for batch in harness.batches()} == {pa.float64()}
        assert {batch.records.schema.field("height").type for batch in harness.batches()} == {pa.int64()}
    waited: list[Any] = [(1.0, 2**40)] if more else []
    assert found == [*waited, (2.5, 20), (2.5, 50)]


def test_a_snapshot_that_does_not_say_its_keys_is_restored() -> None:
    """As older versions wrote them."""
    snapshot = filled(join())
    silent = {name: state for name, state in snapshot.lists.items() if name != KEYS_STATE}
    with restored(join(), replace(snapshot, lists=silent)) as harness:
        fact = {"n": [2], "city": ["rome"], "street": ["corso"]}
        harness.process(pa.RecordBatch.from_pydict(fact, schema=FACTS), [2])
        harness.end_input(1, inputs=2)
        assert [row["height"] for row in harness.rows()] == [20, 50]


def test_a_dimension_that_an_older_version_stored_has_the_row_that_it_kept() -> None:
    snapshot = filled(join())
    last = pa.RecordBatch.from_pydict({"city": ["rome"], "street": ["veneto"], "height": [50]}, schema=PLACES)
    stored = replace(snapshot.lists[DIMENSION_STATE], items=(encode_batch(Batch(last)),))
    older = {**snapshot.lists, DIMENSION_STATE: stored}
    assert msgspec.msgpack.decode(older[KEYS_STATE].items[0]) == ["city"], "as older versions wrote it"
    with restored(join(), replace(snapshot, lists=older)) as harness:
        fact = {"n": [2], "city": ["rome"], "street": ["corso"]}
        harness.process(pa.RecordBatch.from_pydict(fact, schema=FACTS), [2])
        harness.end_input(1, inputs=2)
        assert [row["height"] for row in harness.rows()] == [50]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        pytest.param("height", "height", None, id="the same versions"),
        pytest.param("height", None, "it was made by a dimension by (city), the latest by height", id="all"),
        pytest.param("height", "street", "now has a dimension by (city), the latest by street", id="others"),
        pytest.param(None, "height", "now has a dimension by (city), the latest by height", id="the latest"),
    ],
)
def test_the_rows_that_count_are_part_of_the_setting(
    before: str | None, after: str | None, why: str | None
) -> None:
    harness = restored(join(latest_by=after), filled(join(latest_by=before)))
    if why is not None:
        with pytest.raises(ConfigError, match=re.escape(why)):
            harness.open()
        return
    with harness:
        harness.process(
            pa.RecordBatch.from_pydict({"n": [2], "city": ["rome"], "street": [""]}, schema=FACTS)
        )
        harness.end_input(1, inputs=2)
        assert [row["height"] for row in harness.rows()] == [50]


def test_damaged_keys_are_an_error_of_the_snapshot() -> None:
    snapshot = filled(join())
    damaged = {**snapshot.lists, KEYS_STATE: replace(snapshot.lists[KEYS_STATE], items=(b"\x01",))}
    with pytest.raises(CorruptSnapshot, match="the keys of state 'dimension' cannot be read"):
        restored(join(), replace(snapshot, lists=damaged)).open()
