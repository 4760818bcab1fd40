"""A token that asks more often than it may."""

from __future__ import annotations

from unistream.base.config import REST_RATE
from unistream.base.errors import Transient


class TooManyRequests(Transient):
    """Nothing of the request was done. `name`: of the token. `wait_s`: until it may ask again."""

    def __init__(self, name: str, wait_s: float) -> None:
        super().__init__(
            f"token {name!r} asks more often than it may ({REST_RATE.key}): ask again after {wait_s:.2g} s, "
            "or give each program a token of its own"
        )
        self.wait_s = wait_s
