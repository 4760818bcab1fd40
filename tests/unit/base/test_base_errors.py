"""The tree of errors, identities and limits."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from unistream.base import errors, limits
from unistream.base.clock import Clock, SystemClock
from unistream.base.errors import UnistreamError
from unistream.base.ids import AttemptId, JobId, SubtaskId, VertexId

CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, UnistreamError)]


@pytest.mark.parametrize("cls", CLASSES)
def test_the_drawing_shows_each_error_below_its_parent(cls: type[UnistreamError]) -> None:
    lines = (errors.__doc__ or "").splitlines()
    drawn = [index for index, line in enumerate(lines) if cls.__name__ in line.split()]
    assert len(drawn) == 1
    if cls is UnistreamError:
        return
    depth = lines[drawn[0]].index("─")
    above = [line for line in lines[: drawn[0]] if len(line) - len(line.lstrip("│├└─ ")) < depth + 3]
    parent = cls.__mro__[1].__name__
    assert any(parent in line.split() for line in above)


def test_what_the_caller_must_do_follows_from_the_class() -> None:
    assert issubclass(errors.Unreachable, errors.Transient)
    assert issubclass(errors.CorruptSnapshot, errors.ProtocolError)
    never_repeated = (errors.ConfigError, errors.Fenced, errors.OutcomeUnknown, errors.ProtocolError)
    assert not any(issubclass(cls, errors.Transient) for cls in never_repeated)


def test_ids_print_as_in_logs_and_keep_their_order() -> None:
    attempt = AttemptId(JobId("j"), VertexId("v"), 3, 2)
    assert attempt.subtask == SubtaskId(VertexId("v"), 3)
    assert (str(attempt), str(attempt.subtask)) == ("j/v#3.2", "v#3")
    assert attempt < AttemptId(JobId("j"), VertexId("v"), 3, 10)
    assert len({attempt, AttemptId(JobId("j"), VertexId("v"), 3, 2)}) == 1
    assert msgspec.json.decode(msgspec.json.encode(attempt), type=AttemptId) == attempt


def test_an_id_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        SubtaskId(VertexId("v"), 0).index = 1  # type: ignore[misc]


def test_limits_fit_together() -> None:
    assert limits.STATE_INLINE_BYTES_MAX < limits.FRAME_BYTES_MAX < limits.ARTIFACT_BYTES_MAX
    assert limits.PARALLELISM_MAX <= limits.KEY_GROUPS_MAX <= 2**16  # key groups are stored as uint16
    assert limits.MIN_WATERMARK == -limits.MAX_WATERMARK - 1


def test_the_monotonic_clock_does_not_go_back() -> None:
    clock: Clock = SystemClock()
    readings = [clock.monotonic_ms() for _ in range(100)]
    assert readings == sorted(readings)
    assert clock.wall_ms() > 1_700_000_000_000  # 2023
