"""GET /unistream/events: what the pages of the web UI show, sent when it changes.

    ?job=ID            with all that is known of this job; may be repeated
    ?checkpoints=ID    with its checkpoints
    ?lastEventId=…     goes on from there, as the header Last-Event-ID does

What is sent, and to whom, is decided by `unistream.rest.event_log`. Here one task looks at each topic that
somebody follows, at most once a second, for all clients together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from unistream.base.errors import NotFound, Transient, UnistreamError
from unistream.base.ids import JobId
from unistream.master.cluster import Dispatcher
from unistream.rest import event_log
from unistream.rest.authorized import still_let_in
from unistream.rest.figures import FiguresApi, NowMs

STREAMS_MAX: Final = 64  # a third of the connections: a stream is served all the time, and makes no room
BEAT_S: Final = 2.0  # a client takes a longer silence for a proxy that buffers, or for a dead server
LINGER_S: Final = 30.0  # a topic is kept that long, for a client that comes back
HEADERS: Final = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}

logger = logging.getLogger(__name__)


class _Topic:
    """What somebody follows, or has followed a moment ago."""

    def __init__(self, name: str) -> None:
        self.log = event_log.TopicLog(name)
        self.followers: set[_Stream] = set()
        self.task: asyncio.Task[None] | None = None
        self.is_fresh = False
        self.looked_ms = 0
        self.interval_s = event_log.INTERVAL_S


class _Stream:
    """One client: what it has of each topic."""

    def __init__(self, topics: Sequence[_Topic], version: int | None) -> None:
        self.topics = topics
        self._has = dict.fromkeys((topic.log.topic for topic in topics), version)
        self.wake = asyncio.Event()

    def news(self, version: int) -> list[bytes]:
        """What it does not have; `version`: the newest of all topics."""
        events = []
        for topic in self.topics:
            if topic.is_fresh:
                events += topic.log.since(self._has[topic.log.topic])
                self._has[topic.log.topic] = version
        return events

    def place(self, stream: str) -> str | None:
        """None: it does not have something of each topic."""
        known = [version for version in self._has.values() if version is not None]
        return event_log.place_of(stream, min(known), [*self._has]) if len(known) == len(self._has) else None


class EventsApi:
    """The handler. All but `_look` runs on the server's own thread."""

    def __init__(self, dispatcher: Dispatcher, figures: FiguresApi, now_ms: NowMs, version: str) -> None:
        self._dispatcher = dispatcher
        self._figures = figures
        self._now_ms = now_ms
        self._server_version = version
        self._id = secrets.token_hex(8)
        self._version = 0
        self._topics: dict[str, _Topic] = {}
        self._streams: set[_Stream] = set()
        self._ends = False

    def routes(self, router: APIRouter) -> None:
        router.get("/unistream/events")(self.events)

    async def events(
        self,
        request: Request,
        job: Annotated[list[str], Query()] = [],  # noqa: B006  # FastAPI copies it
        checkpoints: Annotated[list[str], Query()] = [],  # noqa: B006
        lastEventId: str | None = None,  # as EventSource has it
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Answers with a stream of the topics that the query names, from where the client's last stream
        ended."""
        names = event_log.topics_of(job, checkpoints)
        if len(self._streams) >= STREAMS_MAX:
            raise Transient(f"{STREAMS_MAX} event streams are open, which is the limit; ask without one")
        version = event_log.version_at(lastEventId or last_event_id, self._id, names)
        is_let_in = still_let_in(request)
        return _EventStream(
            lambda: self._opened(names, version), lambda stream: self._sent(stream, is_let_in), self._close
        )

    def end(self) -> None:
        """Ends all streams, with their last event."""
        self._ends = True
        for stream in self._streams:
            stream.wake.set()

    # --- streams ----------------------------------------------------------------------------------

    def _opened(self, names: Sequence[str], version: int | None) -> _Stream:
        topics = [self._topics.setdefault(name, _Topic(name)) for name in names]
        stream = _Stream(topics, version)
        self._streams.add(stream)
        for topic in topics:
            topic.followers.add(stream)
            if topic.task is None:
                topic.task = asyncio.create_task(self._follow(topic))
        return stream

    def _close(self, stream: _Stream) -> None:
        self._streams.discard(stream)
        for topic in stream.topics:
            topic.followers.discard(stream)

    async def _sent(self, stream: _Stream, is_let_in: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Ends when the token of the client does: who asks again learns why."""
        yield event_log.framed([self._hello()])
        loop = asyncio.get_running_loop()
        beat_s = loop.time() + BEAT_S
        while not self._ends:
            stream.wake.clear()
            events = stream.news(self._version)
            if loop.time() >= beat_s:
                if not is_let_in():
                    return
                beat_s = loop.time() + BEAT_S
                events.append(self._beat(stream))
            if events:
                yield event_log.framed(events, stream.place(self._id))
            else:
                await _at_most(stream.wake.wait(), beat_s - loop.time())
        yield event_log.framed([_encoded(event_log.End(now_ms=self._now_ms()))])

    def _hello(self) -> bytes:
        return _encoded(
            event_log.Hello(
                stream=self._id,
                version=self._server_version,
                cluster=self._dispatcher.cluster,
                now_ms=self._now_ms(),
            )
        )

    def _beat(self, stream: _Stream) -> bytes:
        now_ms = self._now_ms()
        late = (event_log.late_since(topic.looked_ms, now_ms, topic.interval_s) for topic in stream.topics)
        since = min((at_ms for at_ms in late if at_ms is not None), default=None)
        is_fresh = all(topic.is_fresh for topic in stream.topics)
        looked_ms = min(topic.looked_ms for topic in stream.topics) if is_fresh else None
        return _encoded(event_log.Beat(now_ms=now_ms, looked_ms=looked_ms, late_since_ms=since))

    # --- topics -----------------------------------------------------------------------------------

    async def _follow(self, topic: _Topic) -> None:
        """Looks at it while somebody follows it."""
        loop, log = asyncio.get_running_loop(), topic.log
        topic.looked_ms = self._now_ms()
        while topic.followers:
            began_s, at_ms = loop.time(), self._now_ms()
            look, cpu_s = await run_in_threadpool(self._look, log.topic, log.picture)
            sent_bytes = self._add(topic, look, at_ms)
            topic.interval_s, topic.looked_ms = event_log.interval_s(cpu_s, sent_bytes), at_ms
            await asyncio.sleep(began_s + topic.interval_s - loop.time())
        topic.task, topic.is_fresh = None, False
        loop.call_later(LINGER_S, self._forget, topic)

    def _add(self, topic: _Topic, look: event_log.Look, at_ms: int) -> int:
        """See `TopicLog.add`."""
        if topic.is_fresh and not look.is_new:
            return 0
        sent_bytes = 0
        if look.is_new:
            self._version += 1
            sent_bytes = topic.log.add(look, self._version, at_ms)
        topic.is_fresh = True
        for stream in topic.followers:
            stream.wake.set()
        return sent_bytes

    def _forget(self, topic: _Topic) -> None:
        if topic.task is None:
            self._topics.pop(topic.log.topic, None)

    def _look(
        self, topic: str, before: event_log.Picture | event_log.PictureRefusal | None
    ) -> tuple[event_log.Look, float]:
        """Looks at a topic, in a thread of the pool; the look, and the seconds of processor time that it has
        taken."""
        began_s = time.thread_time()
        try:
            after: event_log.Picture | event_log.PictureRefusal = self._read(topic)
        except UnistreamError as error:
            after = event_log.PictureRefusal(404 if isinstance(error, NotFound) else 503, (str(error),))
        except Exception as error:
            logger.exception("event=rest_defect topic=%s", topic)
            after = event_log.PictureRefusal(500, ("Internal server error.", type(error).__name__))
        return event_log.compared(before, after), time.thread_time() - began_s

    def _read(self, topic: str) -> event_log.Picture:
        kind, _, job = topic.partition("/")
        if kind == event_log.OVERVIEW:
            return self._figures.read()
        if kind == event_log.CHECKPOINTS:
            return self._dispatcher.checkpoints(JobId(job))
        return self._dispatcher.job(JobId(job))


class _EventStream(StreamingResponse):
    """Has a stream from its first byte to its end, however that comes."""

    def __init__(
        self,
        open_: Callable[[], _Stream],
        sent: Callable[[_Stream], AsyncIterator[bytes]],
        close: Callable[[_Stream], None],
    ) -> None:
        super().__init__((), headers=HEADERS, media_type=event_log.EVENT_STREAM)
        self._open, self._sent, self._close = open_, sent, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = self._open()
        self.body_iterator = self._sent(stream)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close(stream)


async def _at_most(wait: Awaitable[object], timeout_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await wait


def _encoded(event: event_log.Event) -> bytes:
    return msgspec.json.encode(event)
