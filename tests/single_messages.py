"""A master of a test that knows no bundles: workers then send their reports one by one."""

from __future__ import annotations

from unistream.base.errors import ProtocolError
from unistream.model.codec import decode_for_job_manager
from unistream.model.messages import Bundle, ToJobManager


def decode_single(data: bytes) -> ToJobManager:
    """Raises ProtocolError for a bundle, as a master of an older version does."""
    message = decode_for_job_manager(data)
    if isinstance(message, Bundle):
        raise ProtocolError("a bundle of messages")
    return message
