"""A host of somebody else, from where a cluster is attacked: with nothing, with tokens that do not count, and
with the certificate of a worker."""

from __future__ import annotations

import encodings.idna  # noqa: F401  # the other user cannot read what is imported later
import http.client
import os
import pickle  # noqa: TID251  # as a canary
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from pyarrow import flight

from tests.integration.hosts_fuzzer import frames
from tests.support.authorities import DAY_MS, NOW_MS, other_authority
from unistream.base.clock import SystemClock
from unistream.base.errors import UnistreamError
from unistream.base.ids import AttemptId, TaskManagerId
from unistream.client.remote.address import FixedAddress
from unistream.client.remote.joining import joined
from unistream.model import messages as msg
from unistream.model.credentials import JOB_MANAGER
from unistream.net import wire
from unistream.net.client import FlightControlClient

NOBODY: Final = 65_534
CALL_S: Final = 20.0


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (Path(self._path),)


def rest(url: str, operations: list[list[str]], token: str, as_nobody: bool) -> dict[str, int]:
    """The status of the answer to each request. `as_nobody`: as another user of this machine."""
    if as_nobody:
        os.setgroups([])
        os.setuid(NOBODY)
    context = ssl._create_unverified_context()  # the attacker believes anybody
    place, found = urlsplit(url), {}
    for method, path in operations:
        connection = http.client.HTTPSConnection(place.netloc, timeout=CALL_S, context=context)
        body = "{}" if method in {"POST", "PUT", "PATCH"} else None
        headers = {
            "content-type": "application/json",
            **({"authorization": f"Bearer {token}"} if token else {}),
        }
        connection.request(method, f"/v1{path}", body, headers)
        found[f"{method} {path}"] = connection.getresponse().status
        connection.close()
    return found


def ports(places: list[str], canary: str, calls_s: float) -> list[str]:
    """Which calls were answered at those ports."""
    payload = pickle.dumps(Canary(canary))
    return [
        f"{call.__name__} {location}"
        for place in places
        for location, options in _ways(place)
        for call in (_action, _exchange)
        if _is_answered(call, location, options, payload, flight.FlightCallOptions(timeout=calls_s))
    ]


def _ways(place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield f"grpc+tcp://{place}", {}
    yield f"grpc+tls://{place}", {"disable_server_verification": True}
    shown = other_authority().issue(JOB_MANAGER, now_ms=NOW_MS, lasts_ms=DAY_MS)
    own = {"cert_chain": shown.certificate, "private_key": shown.key.reveal()}
    yield f"grpc+tls://{place}", {"disable_server_verification": True, **own}


def _action(client: Any, payload: bytes, options: Any) -> None:
    list(client.do_action(flight.Action(wire.CONTROL_ACTION, payload), options))


def _exchange(client: Any, payload: bytes, options: Any) -> None:
    _, reader = client.do_exchange(flight.FlightDescriptor.for_command(payload), options)
    reader.read_chunk()


def _is_answered(
    call: Callable[[Any, bytes, Any], None], location: str, how: dict[str, Any], payload: bytes, options: Any
) -> bool:
    with flight.FlightClient(location, **how) as client:
        try:
            call(client, payload, options)
        except (flight.FlightUnavailableError, flight.FlightTimedOutError):
            return False  # nobody has read it
        except wire.WIRE_ERRORS:
            return True  # somebody has, and refuses it
    return True


def joins(url: str, tokens: dict[str, str]) -> dict[str, str]:
    """Why each token lets nobody join; "": it does."""
    found = {}
    for name, token in tokens.items():
        try:
            joined(FixedAddress(url), token, clock=SystemClock(), timeout_s=CALL_S)
            found[name] = ""
        except UnistreamError as error:
            found[name] = str(error)
    return found


def member(url: str, token: str, worker: str, address: str, attempt: Any) -> dict[str, str]:
    """What a worker that has joined is answered when it speaks for another one, or to it."""
    own = joined(FixedAddress(url), token, clock=SystemClock(), timeout_s=CALL_S)
    given, other = msgspec.convert(attempt, AttemptId), TaskManagerId(worker)
    failure = msg.TaskFailure(kind="UserCodeError", message="said by another worker")
    to_master: list[Any] = [
        msg.Heartbeat(task_manager=other),
        msg.RegisterTaskManager(task_manager=other, address=address, slots=9, pid=1, host="x"),
        msg.TaskStateChanged(attempt=given, state="FAILED", failure=failure),
        msg.FetchArtifact(job=given.job, sha256="0" * 64),
    ]
    to_worker: list[Any] = [
        msg.CancelTask(attempt=given),
        msg.ReleaseTaskManager(task_manager=other, reason="said by another worker"),
    ]
    return {
        type(message).__name__: getattr(
            FlightControlClient(place, CALL_S, credentials=own.credentials).call(message), "reason", "taken"
        )
        for place, messages in ((own.control, to_master), (address, to_worker))
        for message in messages
    }


ATTACKS: Final[dict[str, Callable[..., Any]]] = {
    "rest": rest,
    "ports": ports,
    "joins": joins,
    "member": member,
    "frames": frames,
}
