"""Work for a client that is stopped when the client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from fastapi import Request
from starlette.concurrency import run_in_threadpool

LOOKS_EVERY_S: Final = 0.25

T = TypeVar("T")


async def while_connected(request: Request, work: Callable[[], T], stop: Callable[[], object]) -> T:
    """What `work` returns, on another thread; `stop` is called as soon as nobody waits, and at the end."""
    try:
        answer = asyncio.ensure_future(run_in_threadpool(work))
        while not (await asyncio.wait([answer], timeout=LOOKS_EVERY_S))[0]:
            if await request.is_disconnected():
                stop()
        return await answer
    finally:
        stop()
