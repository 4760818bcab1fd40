"""How the REST API answers."""

from __future__ import annotations

from typing import Final

import msgspec
from fastapi import Response

JSON: Final = "application/json; charset=UTF-8"


def operation(result: object) -> Response:
    """The status of an asynchronous operation; `result` None: it is in progress."""
    state = "IN_PROGRESS" if result is None else "COMPLETED"
    return json_answer({"status": {"id": state}, "operation": result})


def json_answer(payload: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(payload), status_code=status, media_type=JSON)
