"""Calls one cluster until it answers, as `client.remote.policy` says: clock, dice and network for it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from unistream.base.closing import Closing
from unistream.base.errors import ClusterEnded, Unreachable
from unistream.client.machine.tokens import token_for
from unistream.client.machine.trusted import Trusted
from unistream.client.remote.address import LeaderAddress
from unistream.client.remote.answers import UNAVAILABLE, errors_in
from unistream.client.remote.http import Http, NoAnswer, Response
from unistream.client.remote.policy import (
    ANSWERED,
    CONNECT_S,
    LOST,
    Again,
    AttemptFailure,
    CallEnd,
    CallKind,
    Tried,
    after,
    attempt_limit,
    last_error,
)

INSTANT_S = 0.001  # a timeout of 0 means another thing to a socket
DENIED_MAX = 3  # answers in a row that know no token of ours, before that is the answer of the leader
UNAUTHENTICATED, TOO_MANY = 401, 429


class Caller(Closing):
    """The connections to one cluster, wherever its leader is. Thread-safe. Closes `address` with itself.
    `why_ended`, `token`: see `RestClient`."""

    def __init__(
        self,
        address: LeaderAddress,
        why_ended: Callable[[], str | None] = lambda: None,
        token: str | None = None,
    ) -> None:
        self._token = token
        self._address = address
        self._why_ended = why_ended
        self._url: str | None = None
        self._is_current = False  # the leader was there when it was called last
        self._known = address.is_elected
        self._http = Http(Trusted(token).context)
        self._denied = 0
        self._never = threading.Event()

    @property
    def url(self) -> str:
        """Where the cluster was reached last."""
        return self._url or self._address.name

    @property
    def is_elected(self) -> bool:
        """See `LeaderAddress`."""
        return self._address.is_elected

    def close(self) -> None:
        self._http.close()
        self._address.close()

    def call(
        self,
        call: CallKind,
        method: str,
        path: str,
        *,
        content: bytes,
        content_type: str,
        limit_s: float,
        longer: bool,
        doubt: str,
    ) -> Response:
        """The first answer of any status but 429, 502, 503 and 504.

        Raises:
            Unreachable: there is none in `limit_s`; `longer` and `doubt`: see `last_error`.
            ClusterEnded: there will be none.
        """
        attempt_s = attempt_limit(call, limit_s)

        def send(url: str, left_s: float) -> Response:
            return self._send(method, f"{url}/v1{path}", content, content_type, min(attempt_s, left_s))

        began_s, attempts, lost, said = time.monotonic(), 0, 0, ""
        while True:
            answer = self._attempt(send, limit_s - (time.monotonic() - began_s))
            if isinstance(answer, Response):
                return answer
            ended = None if answer.failure in ANSWERED else self._why_ended()
            if ended is not None:
                raise ClusterEnded(ended) from answer
            attempts += 1
            lost += answer.failure in LOST
            said = str(answer) if answer.failure in ANSWERED else said
            self._known = self._known or lost > 0
            tried = Tried(
                failure=answer.failure,
                attempts=attempts,
                lost=lost,
                waited_s=time.monotonic() - began_s,
                known=self._known,
                asked_s=answer.wait_s,
            )
            match after(call, tried, limit_s=limit_s, jitter=random.random()):  # noqa: S311  # no secret
                case Again(pause_s):
                    self._never.wait(pause_s)
                case CallEnd.DONE:
                    return Response(method, path, 202, b"{}")
                case CallEnd.GIVE_UP:
                    why = str(answer) if said in ("", str(answer)) else f"{answer}; before it said: {said}"
                    raise self._given_up(tried, why, longer, doubt) from answer

    def _send(self, method: str, url: str, content: bytes, content_type: str, within_s: float) -> Response:
        return self._http.send(
            method,
            url,
            content,
            content_type,
            token=self._token or token_for(url),
            connect_s=min(CONNECT_S, within_s),
            within_s=within_s,
        )

    def _given_up(self, tried: Tried, why: str, longer: bool, doubt: str) -> Unreachable:
        where = self._address.name if self.is_elected else self.url
        return last_error(tried, where=where, reason=why, longer=longer, doubt=doubt, elected=self.is_elected)

    def _attempt(self, send: Callable[[str, float], Response], left_s: float) -> Response | NoAnswer:
        """Sends a call once. When there is no answer, the next attempt asks where the leader is by then."""
        began_s = time.monotonic()
        url, is_current, self._is_current = self._url, self._is_current, False
        try:
            if url is None or not is_current:
                url = self._url = self._address.url(max(INSTANT_S, left_s))
            response = send(url, max(INSTANT_S, left_s - (time.monotonic() - began_s)))
        except Unreachable as error:
            return NoAnswer(AttemptFailure.LEADERLESS, str(error))
        except NoAnswer as missing:
            return missing
        self._known = True
        if self._may_be_another(response):
            return NoAnswer(AttemptFailure.UNAVAILABLE, "; ".join(errors_in(response)))
        if response.status == TOO_MANY:
            return NoAnswer(AttemptFailure.LIMITED, "; ".join(errors_in(response)), response.retry_after_s)
        if response.status in UNAVAILABLE:
            return NoAnswer(AttemptFailure.UNAVAILABLE, "; ".join(errors_in(response)))
        self._is_current = True
        return response

    def _may_be_another(self, response: Response) -> bool:
        """A master that has just stepped down passes on what was meant for it, with its own token, to the
        next leader, who has another one: that is asked for again."""
        denied = response.status == UNAUTHENTICATED and self._address.is_elected
        self._denied = self._denied + 1 if denied else 0
        return 0 < self._denied < DENIED_MAX
