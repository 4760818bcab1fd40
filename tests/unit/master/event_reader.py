"""A client of the event stream, for tests: it keeps pictures as the web UI does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final

import msgspec

from tests.asking import as_owner
from tests.eventually import WAIT_S
from unistream.rest.event_log import Event

ROWS: Final = {"overview": "jobs", "job": "subtasks", "checkpoints": "latest"}


def key(topic: str, row: Any) -> str:
    kind = topic.partition("/")[0]
    if kind == "overview":
        return str(row["summary"]["job"])
    return f"{row['vertex']} {row['index']}" if kind == "job" else str(row["checkpoint_id"])


class Pictures:
    """What a client has, from the events that it got. A change of what it does not have fails."""

    def __init__(self) -> None:
        self.whole: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        self.refused: dict[str, Any] = {}

    def take(self, event: Any) -> None:
        topic = event.get("topic")
        match event["event"]:
            case "overview" | "job" | "checkpoints":
                self.whole[topic] = event["whole"]
                self.refused.pop(topic, None)
            case "refused":
                self.refused[topic] = event
                self.whole.pop(topic, None)
            case "change":
                if event["version"] <= self.versions[topic]:
                    return  # it came before the connection ended, and its id did not
                assert event["base"] == self.versions[topic], event
                self.whole[topic] = changed(topic, self.whole[topic], event)
            case _:
                return
        self.versions[topic] = event["version"]


def changed(topic: str, before: Any, change: Any) -> Any:
    field = ROWS[topic.partition("/")[0]]
    rows = {key(topic, row): row for row in [*before[field], *change["rows"]]}
    order = change["order"]
    if order is None:
        order = [key(topic, row) for row in before[field]]
    return {**before, **change["fields"], field: [rows[name] for name in order]}


def events_of(lines: Iterable[str]) -> Iterator[tuple[Any, str | None]]:
    """Each event, and the id that came with it. Fails where one is not as described."""
    id_ = None
    for line in lines:
        name, _, value = line.rstrip("\n").partition(": ")
        if name == "id":
            id_ = value
        elif name == "data":
            event = json.loads(value)
            decoded = msgspec.json.decode(value, type=Event)
            assert json.loads(msgspec.json.encode(decoded)) == event
            yield event, id_
            id_ = None


class Events:
    """One connection."""

    def __init__(self, port: int, path: str = "", **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        headers = {**as_owner(f"http://127.0.0.1:{port}"), **headers}
        self._connection.request("GET", f"/unistream/events{path}", headers=headers)
        self.answer = self._connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.pictures = Pictures()
        self.last_id: str | None = None
        self._events = events_of(line.decode() for line in iter(self.answer.readline, b""))

    def next(self) -> Any:
        """The next event; None: the stream has ended."""
        event, id_ = next(self._events, (None, None))
        if event is not None:
            self.pictures.take(event)
            self.last_id = id_ or self.last_id
        return event

    def until(self, kind: str, **fields: Any) -> Any:
        """The next event of this kind with these fields; it fails if the stream ends before."""
        while (event := self.next()) is not None:
            if event["event"] == kind and fields.items() <= event.items():
                return event
        raise AssertionError(f"the stream has ended without {kind} {fields}")

    def beat(self, **fields: Any) -> Any:
        """The next beat with these fields, once it has something of each topic: a place to go on from."""
        while True:
            event = self.until("beat", **fields)
            if self.last_id is not None:
                return event

    def close(self) -> None:
        self._connection.close()
        self.answer.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
