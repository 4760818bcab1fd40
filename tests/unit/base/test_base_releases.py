"""Which versions of unistream and Python work together."""

from __future__ import annotations

import doctest

import pytest

from unistream.base import releases
from unistream.base.releases import Release, refusal


def test_examples_in_docstrings_run() -> None:
    outcome = doctest.testmod(releases)
    assert outcome.attempted > 0
    assert outcome.failed == 0


TOGETHER = [
    pytest.param("0.1.0", "0.1.0", id="the same"),
    pytest.param("0.1.0", "0.1.1", id="the one before"),
    pytest.param("0.1.9", "0.1.10", id="of the same series"),
    pytest.param("0.2.0rc1", "0.2.0", id="before its release"),
    pytest.param("1.0.0.dev3+gabc", "1.0.0", id="a build of a checkout"),
]
APART = [
    pytest.param("0.1.4", "0.2.0", id="the next series"),
    pytest.param("0.9.0", "1.9.0", id="the next major version"),
    pytest.param("1.1.0", "1.10.0", id="a series that begins with the same digit"),
    pytest.param("0.1.0", "", id="nothing"),
    pytest.param("0.1.0", "latest", id="no version"),
]


@pytest.mark.parametrize(("one", "other"), TOGETHER)
def test_one_series_is_together_both_ways(one: str, other: str) -> None:
    for there, here in ((one, other), (other, one)):
        assert refusal(Release(there), Release(here), who="worker w", whom="this cluster") is None


@pytest.mark.parametrize(("one", "other"), APART)
def test_another_series_is_refused_both_ways(one: str, other: str) -> None:
    for there, here in ((one, other), (other, one)):
        why = refusal(Release(there), Release(here), who="worker w", whom="this cluster")
        assert why is not None
        assert f"worker w has unistream {there}, and this cluster has unistream {here}: " in why
        assert "\n" not in why


@pytest.mark.parametrize(
    ("there", "here", "refused"),
    [
        pytest.param("3.11.2", "3.11.9", False, id="of Python the last number may differ"),
        pytest.param("3.11.2", "3.12.2", True, id="the second may not"),
        pytest.param("", "3.12.2", False, id="who says none is not asked"),
        pytest.param("3.1.9", "3.11.9", True, id="it is a number, and no beginning"),
    ],
)
def test_python_counts_too(there: str, here: str, refused: bool) -> None:
    why = refusal(Release("0.1.0", there), Release("0.1.1", here), who="worker w", whom="this cluster")
    assert (why is not None) == refused
    if why is not None:
        assert f"worker w has unistream 0.1.0 and Python {there}, and this cluster has" in why
        assert f"install unistream 0.1.* with Python {here[:4]} there" in why


def test_what_another_process_sends_is_shown_in_part() -> None:
    why = refusal(Release("9" * 10_000), Release("0.1.0"), who="worker w", whom="this cluster")
    assert why is not None
    assert len(why) < 300
