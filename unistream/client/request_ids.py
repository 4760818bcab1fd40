"""Ids by which a cluster knows a submission that comes again."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from msgspec import structs

if TYPE_CHECKING:
    from unistream.master.job_setup import SubmitRequest


def identified(request: SubmitRequest) -> SubmitRequest:
    """`request` with an id of its own, unless it has one: however often it is sent, it is one job."""
    if request.request_id is not None:
        return request
    return structs.replace(request, request_id=uuid.uuid4().hex)
