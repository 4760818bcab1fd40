"""What the code location decides by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from dagster_defs.definitions import RETRY, compact, first_of_retries


def run(run_id: str, parent: str | None = None, *, is_retry: bool = False) -> dg.DagsterRun:
    tags = {RETRY: "1"} if is_retry else {}
    return dg.DagsterRun(
        job_name="flights", run_id=run_id, parent_run_id=parent, root_run_id=parent and "first", tags=tags
    )


def test_retries_go_on_with_what_their_first_run_has_computed_and_a_repetition_computes_again() -> None:
    """`root_run_id` is the same for all of them."""
    with dg.DagsterInstance.ephemeral() as instance:
        runs = [
            run("first"),
            run("retry", "first", is_retry=True),
            run("second retry", "retry", is_retry=True),
            run("again", "second retry"),
            run("its retry", "again", is_retry=True),
        ]
        for one in runs:
            instance.add_run(one)
        contexts: list[Any] = [SimpleNamespace(run=one, instance=instance) for one in runs]
        found = [first_of_retries(context) for context in contexts]
    assert found == ["first", "first", "first", "again", "again"]


def test_upkeep_without_a_lake_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLIGHTS_LAKE", raising=False)
    with pytest.raises(dg.Failure, match="FLIGHTS_LAKE is not set"):
        compact(dg.build_op_context())
