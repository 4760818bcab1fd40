"""Many control messages in one request: packed by the sender, handled one by one by the receiver.

    sender                                              receiver
    messages ─► `parcels` ─► request, request, …   ══►  `answer_each` ─► act(message), act(message), …
    one answer for each ◄─ `Parcel.answers`        ◄══  one answer for each, in one `Answers`

A job of hundreds of tasks is deployed by a few requests, and reports that arise while a request is sent are
in the next one; no message waits for others. The guarantees are those of single messages:

- Order: the messages of a request are handled in their order, requests one after the other.
- A message that fails (it cannot be encoded or decoded, or its handler fails) fails alone.
- A request without an answer may have been handled fully, partly or not at all. It may be sent again, because
  each message may be delivered twice.
- No request is larger than FRAME_BYTES_MAX. A message that is too large is sent, and refused, alone.

    >>> from unistream.base.ids import TaskManagerId
    >>> from unistream.model.messages import Ack, Ping
    >>> [parcel] = parcels([Ping(task_manager=TaskManagerId(name)) for name in ("a", "b")])
    >>> type(parcel.request).__name__, len(parcel.messages)
    ('Bundle', 2)
    >>> answer_each(parcel.request, lambda message: Ack())
    Answers(answers=(Ack(), Ack()))
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from unistream.base.errors import ProtocolError
from unistream.base.limits import BUNDLE_MESSAGES_MAX, FRAME_BYTES_MAX
from unistream.model import messages as msg
from unistream.model.codec import encode

ENVELOPE_BYTES: Final = 64  # more than a bundle needs in addition to its messages

M = TypeVar("M", bound=msg.ToTaskManager | msg.ToJobManager)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parcel(Generic[M]):
    """Content of one request: a single message, or several in a bundle."""

    messages: tuple[M, ...]
    request: M | msg.Bundle

    def answers(self, answer: msg.Answer) -> tuple[msg.Answer | msg.Broken, ...]:
        """One for each message, in their order. A single answer applies to all: a worker that shuts down
        refuses any request.

        Raises:
            ProtocolError: there are more or fewer answers than messages.
        """
        if not isinstance(answer, msg.Answers):
            return (answer,) * len(self.messages)
        if len(answer.answers) != len(self.messages):
            raise ProtocolError(f"{len(answer.answers)} answers to {len(self.messages)} messages")
        return answer.answers


def parcels(
    messages: Sequence[M], *, bytes_max: int = FRAME_BYTES_MAX, count_max: int = BUNDLE_MESSAGES_MAX
) -> Iterator[Parcel[M]]:
    """`messages`, in their order, in as few requests as the limits allow."""
    if len(messages) == 1:  # nothing to measure
        yield Parcel((messages[0],), messages[0])
        return
    packed: list[tuple[M, bytes]] = []
    size = ENVELOPE_BYTES
    for message in messages:
        content = _encoded(message, bytes_max - ENVELOPE_BYTES)
        if packed and (content is None or size + len(content) > bytes_max or len(packed) >= count_max):
            yield _parcel(packed)
            packed, size = [], ENVELOPE_BYTES
        if content is None:
            yield Parcel((message,), message)
            continue
        packed.append((message, content))
        size += len(content)
    if packed:
        yield _parcel(packed)


def answer_each(bundle: msg.Bundle, answer: Callable[[msgspec.Raw], msg.Answer]) -> msg.Answers:
    """Answers every message of `bundle`, in order; an error of `answer` affects only its message."""
    return msg.Answers(answers=tuple(_answered(message, answer) for message in bundle.messages))


def _answered(
    message: msgspec.Raw, answer: Callable[[msgspec.Raw], msg.Answer]
) -> msg.Ack | msg.Refused | msg.Broken:
    try:
        given = answer(message)
    except ProtocolError as error:
        return msg.Broken(reason=str(error))
    except Exception as error:  # a bug of ours must not affect the other messages of the bundle
        logger.exception("event=message_failed")
        return msg.Broken(reason=f"{type(error).__name__}: {error}")
    if isinstance(given, msg.Ack | msg.Refused):
        return given
    return msg.Broken(reason=f"{type(given).__name__} is not an answer to a message of a bundle")


def _encoded(message: msg.ToTaskManager | msg.ToJobManager, bytes_max: int) -> bytes | None:
    """None: it must be sent alone, so that its sender gets the error."""
    try:
        content = encode(message)
    except ProtocolError:
        return None
    return content if len(content) <= bytes_max else None


def _parcel(packed: Sequence[tuple[M, bytes]]) -> Parcel[M]:
    messages = tuple(message for message, _ in packed)
    if len(messages) == 1:
        return Parcel(messages, messages[0])
    return Parcel(messages, msg.Bundle(messages=tuple(msgspec.Raw(content) for _, content in packed)))
