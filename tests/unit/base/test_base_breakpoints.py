"""A breakpoint in a worker says how to debug, unless a debugger listens elsewhere."""

from __future__ import annotations

import sys

import pytest

from unistream.base.breakpoints import VARIABLE, refuse_breakpoints

CALLED: list[str] = []


def listens() -> None:
    CALLED.append("a debugger")


def test_a_breakpoint_says_how_to_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    refuse_breakpoints()
    with pytest.raises(RuntimeError, match=r"a worker has no terminal.*unistream.testing.MiniCluster"):
        breakpoint()


def test_one_that_listens_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{__name__}.listens")
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    refuse_breakpoints()
    breakpoint()
    assert CALLED == ["a debugger"]
