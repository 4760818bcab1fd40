"""Which unfinished runs have no process any more, as a table."""

from __future__ import annotations

import dagster as dg
import pytest

from unistream.base.ids import JobId
from unistream.dagster.run.watching import mark_of, watcher_of
from unistream.dagster.sensor.silence import (
    UNLINKED,
    Judged,
    SilenceLimits,
    SilenceVerdict,
    Suspicion,
    UnfinishedStep,
    judged,
    of_run,
    remembered,
    written,
)
from unistream.port.run_links import RunLink, SeenLink, Watcher

ALIVE, LEFT, SUSPECTED, ENDED = (
    SilenceVerdict.ALIVE,
    SilenceVerdict.LEFT,
    SilenceVerdict.SUSPECTED,
    SilenceVerdict.ENDED,
)
RUN = dg.DagsterRun("job", run_id="77aa", root_run_id="5f0c", parent_run_id="5f0c")
OWN = watcher_of(RUN, "orders")
PARENT = Watcher(root_run="5f0c", run="5f0c", step="orders")
LIMITS = SilenceLimits(silent_ms=60_000, unlinked_ms=1_800_000)
NOW_MS = 1_000_000_000


def link(
    silent_ms: int, *, watcher: Watcher = OWN, released_ms: int | None = None, version: int = 7
) -> RunLink:
    at_ms = NOW_MS - silent_ms
    return RunLink(
        key="k",
        job=JobId("a" * 32),
        watcher=watcher,
        attached_ms=0,
        heartbeat_ms=at_ms,
        released_ms=released_ms,
        version=version,
    )


def suspicion(ago_ms: int, version: int = 7) -> Suspicion:
    return Suspicion(version, NOW_MS - ago_ms)


@pytest.mark.parametrize(
    ("known", "quiet_ms", "before", "verdict"),
    [
        pytest.param(link(9_000), None, None, ALIVE, id="its heartbeats come"),
        pytest.param(link(59_999), None, None, ALIVE, id="a heartbeat is late"),
        pytest.param(link(-3_600_000), None, None, ALIVE, id="the last leader's clock was ahead"),
        pytest.param(link(60_000), None, None, SUSPECTED, id="silent for the first time"),
        pytest.param(link(90_000), None, suspicion(29_999), SUSPECTED, id="two ticks close together"),
        pytest.param(link(90_000), None, suspicion(30_000), ENDED, id="two ticks have seen it silent"),
        pytest.param(link(90_000), None, suspicion(30_000, 6), SUSPECTED, id="a heartbeat came in between"),
        pytest.param(link(90_000), None, suspicion(-1), SUSPECTED, id="the clock went back"),
        pytest.param(link(9_000), None, suspicion(30_000), ALIVE, id="it came back to life"),
        pytest.param(link(10**9, released_ms=5), None, suspicion(10**6), LEFT, id="it has released"),
        pytest.param(
            link(0, watcher=mark_of(OWN)), None, None, ENDED, id="the daemon died before the report"
        ),
        pytest.param(
            link(0, watcher=mark_of(PARENT)), 0, None, LEFT, id="its parent was reported, it starts"
        ),
        pytest.param(
            link(10**9, watcher=PARENT), None, None, LEFT, id="its parent's, its step has not begun"
        ),
        pytest.param(None, None, suspicion(10**7, UNLINKED), LEFT, id="no link, its step has not begun"),
        pytest.param(None, 1_799_999, None, LEFT, id="no link, Spark starts"),
        pytest.param(None, 1_800_000, None, SUSPECTED, id="no link and no event for long"),
        pytest.param(None, 1_900_000, suspicion(30_000, UNLINKED), ENDED, id="as an earlier tick has seen"),
        pytest.param(None, 1_900_000, suspicion(30_000), SUSPECTED, id="it had a link, which was lost"),
        pytest.param(
            link(0, watcher=PARENT), 1_900_000, suspicion(30_000, UNLINKED), ENDED, id="its parent's"
        ),
    ],
)
def test_a_step(
    known: RunLink | None, quiet_ms: int | None, before: Suspicion | None, verdict: SilenceVerdict
) -> None:
    seen = SeenLink(link=known, now_ms=NOW_MS)
    step = UnfinishedStep(run=RUN, step="orders", seen=seen, quiet_ms=quiet_ms, suspicion=before)
    found = judged(step, LIMITS)
    assert found.verdict is verdict
    assert "orders" in found.text
    assert (found.suspicion is not None) == (verdict is SUSPECTED or (verdict is ENDED and not step.is_taken))


def test_a_suspicion_begins_once() -> None:
    """A third tick does not begin it again."""
    known, before = link(90_000), suspicion(10_000)
    seen = SeenLink(link=known, now_ms=NOW_MS)
    found = judged(UnfinishedStep(run=RUN, step="orders", seen=seen, quiet_ms=None, suspicion=before), LIMITS)
    assert found == Judged(SUSPECTED, found.text, before)
    later = SeenLink(link=known, now_ms=NOW_MS + 20_000)
    step = UnfinishedStep(run=RUN, step="orders", seen=later, quiet_ms=None, suspicion=found.suspicion)
    assert judged(step, LIMITS).verdict is ENDED


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        pytest.param([ENDED, ALIVE], ALIVE, id="one step shows that the process is alive"),
        pytest.param([LEFT, ENDED], ENDED, id="the step before it has released"),
        pytest.param([SUSPECTED, LEFT], SUSPECTED, id="a suspicion"),
        pytest.param([SUSPECTED, ENDED], ENDED, id="one is certain"),
        pytest.param([LEFT], LEFT, id="nothing"),
    ],
)
def test_a_run(verdicts: list[SilenceVerdict], expected: SilenceVerdict) -> None:
    assert of_run([Judged(verdict, "") for verdict in verdicts]).verdict is expected


@pytest.mark.parametrize("cursor", [None, "", "x", "[]", "5", '{"a": 5}', '{"a": [1]}', '{"a": ["x", 2]}'])
def test_a_cursor_of_another_kind_knows_nothing(cursor: str | None) -> None:
    assert remembered(cursor) == {}


def test_ticks_remember() -> None:
    suspicions = {"5f0c orders": Suspicion(7, 60_000), "77aa orders": Suspicion(UNLINKED, 1)}
    assert remembered(written(suspicions)) == suspicions
