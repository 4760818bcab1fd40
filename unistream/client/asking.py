"""The same question to several clusters at once; a silent one hardly delays the answers of the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

from unistream.base.errors import Unreachable
from unistream.client.rest_client import RestClient

T = TypeVar("T")


def ask_all(
    clusters: Sequence[RestClient],
    ask: Callable[[RestClient], T],
    *,
    all_within_s: float,
    one_within_s: float,
) -> tuple[list[tuple[RestClient, T]], list[Unreachable]]:
    """Answers in the order of `clusters`, and one error for each that is silent.

    Args:
        clusters: Whom to ask.
        ask: The question; runs on a thread of its own for each cluster.
        all_within_s: How long all of them are waited for.
        one_within_s: How long they are waited for while none has answered; the more the user can do with
            nothing else, the longer. At least `all_within_s`.
    """
    asked = [_in_background(ask, cluster) for cluster in clusters]
    late = wait(asked, timeout=all_within_s).not_done
    if not any(_has_answered(answer) for answer in asked):
        wait(late, timeout=one_within_s - all_within_s, return_when=FIRST_COMPLETED)
    answers: list[tuple[RestClient, T]] = []
    silent: list[Unreachable] = []
    for cluster, answer in zip(clusters, asked, strict=True):
        if not answer.done():
            silent.append(
                Unreachable(f"the cluster at {cluster.url} does not answer within {all_within_s:g} s")
            )
            continue
        try:
            answers.append((cluster, answer.result()))
        except Unreachable as error:
            silent.append(error)
    return answers, silent


def _has_answered(answer: Future[T]) -> bool:
    return answer.done() and answer.exception() is None


def _in_background(ask: Callable[[RestClient], T], cluster: RestClient) -> Future[T]:
    """On a daemon thread: the end of the process does not wait for it."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask(cluster))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name=f"ask-{cluster.url}", daemon=True).start()
    return answer
