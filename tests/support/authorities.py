"""Authorities of clusters for tests, made once for each process."""

from __future__ import annotations

from functools import cache
from typing import Final

from unistream.base.clock import SystemClock
from unistream.trust.authority import Authority, new_authority

DAY_MS: Final = 24 * 3_600_000
NOW_MS: Final = SystemClock().wall_ms()


@cache
def authority() -> Authority:
    return Authority(new_authority("of a test", NOW_MS))


@cache
def other_authority() -> Authority:
    return Authority(new_authority("of another one", NOW_MS))
