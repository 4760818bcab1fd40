"""How errors are answered: by their sentence, with the status that says what the client can do."""

from __future__ import annotations

import logging
import math
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from unistream.base.errors import (
    AccessDenied,
    AlreadyEnded,
    Busy,
    ConfigError,
    CorruptSnapshot,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    Transient,
    UnistreamError,
)
from unistream.rest.answers import json_answer as _json
from unistream.rest.plans import PlanFailed
from unistream.rest.too_many import TooManyRequests
from unistream.rest.triggers import OperationFailed

RETRY_AFTER_S: Final = 1  # what is away is asked again each second here, too

logger = logging.getLogger(__name__)


def add_error_handlers(app: FastAPI) -> None:
    """What goes wrong is answered by its sentence."""
    app.add_exception_handler(UnistreamError, _on_unistream_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(Exception, _on_defect)


def _errors(status: int, *texts: str) -> Response:
    return _json({"errors": list(texts)}, status)


def _status_of(error: UnistreamError) -> int:
    match error:
        case TooManyRequests():
            return 429
        case Forbidden():
            return 403
        case AccessDenied():
            return 401
        case NotFound():
            return 404
        case AlreadyEnded() | Busy():
            return 409
        case OperationFailed():
            return 500
        case ConfigError() | CorruptSnapshot():
            return 400
        case Transient() | OutcomeUnknown():  # all requests may be repeated, with their own ids
            return 503
    return 500


async def _on_unistream_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, UnistreamError)
    frames = [error.frames] if isinstance(error, PlanFailed) and error.frames else []
    answer = _errors(_status_of(error), str(error), *frames)
    if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(error, TooManyRequests):
        answer.headers["Retry-After"] = str(math.ceil(error.wait_s))
    if isinstance(error, AccessDenied | TooManyRequests):
        answer.headers["Connection"] = "close"  # the body of the request may not have been read
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code in (404, 405):
        return _errors(404, f"Not found: {request.url.path}")
    answer = _errors(error.status_code, str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


async def _on_invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    texts = [f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors()]
    return _errors(400, *texts)


async def _on_defect(request: Request, error: Exception) -> Response:
    logger.error("event=rest_defect method=%s path=%s", request.method, request.url.path, exc_info=error)
    return _errors(500, "Internal server error.", type(error).__name__)
