"""How the REST API answers."""

from __future__ import annotations

from typing import Final

import msgspec
from fastapi import Response

JSON: Final = "application/json; charset=UTF-8"


def json_answer(payload: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(payload), status_code=status, media_type=JSON)
