"""What `inspect` says of event time: the least and the greatest watermark of each operator."""

from __future__ import annotations

import pytest

from unistream.base.ids import OperatorUid, VertexId
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.model.snapshot import TaskSnapshot, VertexSnapshot
from unistream.savepoint.states import WatermarkSpan, span_of, watermark_text

UID = OperatorUid("count")
END = ("end of input", MAX_WATERMARK)
OF_ANOTHER = TaskSnapshot(watermarks={OperatorUid("other"): 1})
NONE = ("none yet", None)


def at(watermark: int) -> TaskSnapshot:
    return TaskSnapshot(watermarks={UID: watermark})


@pytest.mark.parametrize(
    ("subtasks", "finished", "least", "greatest"),
    [
        pytest.param(
            (at(61_001), at(1_000)), (),
            ("1970-01-01T00:00:01.000Z", 1_000), ("1970-01-01T00:01:01.001Z", 61_001),
            id="the least and the greatest of its subtasks",
        ),
        pytest.param(
            (at(MIN_WATERMARK), at(0)), (), NONE, ("1970-01-01T00:00:00.000Z", 0),
            id="before its first watermark a subtask has none",
        ),
        pytest.param(
            (at(MAX_WATERMARK), at(MAX_WATERMARK)), (), END, END, id="at the end of all input"
        ),
        pytest.param(
            (None, at(5)), (0,), ("1970-01-01T00:00:00.005Z", 5), END, id="a finished subtask is at its end"
        ),
        pytest.param((None, None), (0, 1), END, END, id="a finished vertex is at its end"),
    ],
)  # fmt: skip
def test_span(
    subtasks: tuple[TaskSnapshot | None, ...],
    finished: tuple[int, ...],
    least: tuple[str, int | None],
    greatest: tuple[str, int | None],
) -> None:
    assert span_of(UID, vertex(subtasks, finished)) == WatermarkSpan(
        least=least[0], least_ms=least[1], greatest=greatest[0], greatest_ms=greatest[1]
    )


@pytest.mark.parametrize(
    "subtasks",
    [(TaskSnapshot(), TaskSnapshot()), (None, None), (OF_ANOTHER, None)],
    ids=["written by an older version", "nothing was stored", "of another operator"],
)
def test_what_is_not_recorded_is_not_made_up(subtasks: tuple[TaskSnapshot | None, ...]) -> None:
    assert span_of(UID, vertex(subtasks, ())) is None


@pytest.mark.parametrize(
    ("watermark", "text"),
    [
        pytest.param(-1, "1969-12-31T23:59:59.999Z", id="before 1970"),
        pytest.param(MAX_WATERMARK - 1, f"{MAX_WATERMARK - 1} ms", id="after all years of a calendar"),
        pytest.param(MIN_WATERMARK + 1, f"{MIN_WATERMARK + 1} ms", id="before all years of a calendar"),
    ],
)
def test_text(watermark: int, text: str) -> None:
    assert watermark_text(watermark) == text


def vertex(subtasks: tuple[TaskSnapshot | None, ...], finished: tuple[int, ...]) -> VertexSnapshot:
    return VertexSnapshot(
        vertex=VertexId("v"),
        name="count",
        operators=(UID,),
        parallelism=len(subtasks),
        max_parallelism=8,
        subtasks=subtasks,
        finished_subtasks=finished,
    )
