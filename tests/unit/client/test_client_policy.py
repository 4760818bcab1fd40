"""Which call is sent again, when, and what it ends with: the rules, without a cluster."""

from __future__ import annotations

import pytest

from unistream.base.errors import NothingListens, Unreachable
from unistream.client.remote.policy import (
    LOST,
    PAUSE_MAX_S,
    REFUSED_MAX,
    RULES,
    Again,
    AttemptFailure,
    CallEnd,
    CallKind,
    Tried,
    after,
    attempt_limit,
    last_error,
    pause,
)

LIMIT_S = 60.0
REPEATABLE = [call for call in CallKind if RULES[call].idempotent]


def tried(
    failure: AttemptFailure,
    *,
    attempts: int = 1,
    lost: int | None = None,
    waited_s: float = 0.5,
    known: bool = True,
) -> Tried:
    if lost is None:
        lost = attempts if failure in LOST else 0
    return Tried(failure=failure, attempts=attempts, lost=lost, waited_s=waited_s, known=known)


def step(call: CallKind, so_far: Tried, limit_s: float = LIMIT_S) -> str:
    """again, give up or done."""
    match after(call, so_far, limit_s=limit_s, jitter=0.5):
        case Again():
            return "again"
        case CallEnd.DONE:
            return "done"
    return "give up"


def test_every_call_has_a_rule() -> None:
    assert set(RULES) == set(CallKind)
    assert set(REPEATABLE) == set(CallKind) - {CallKind.ONCE}
    assert all(0 < RULES[call].answer_s < LIMIT_S for call in REPEATABLE)


@pytest.mark.parametrize("call", CallKind)
@pytest.mark.parametrize("limit_s", [0.5, 5.0, LIMIT_S, 3_600.0])
def test_a_cluster_that_hangs_gets_all_the_time_that_the_user_gives(call: CallKind, limit_s: float) -> None:
    rule = RULES[call]
    assert attempt_limit(call, limit_s) * rule.lost_max >= limit_s
    assert attempt_limit(call, limit_s) >= rule.answer_s
    assert limit_s < LIMIT_S or not rule.idempotent or attempt_limit(call, limit_s) < limit_s, (
        "one attempt of it"
    )


@pytest.mark.parametrize("call", REPEATABLE)
@pytest.mark.parametrize("failure", AttemptFailure)
def test_an_idempotent_call_is_sent_again_after_any_failure(call: CallKind, failure: AttemptFailure) -> None:
    assert step(call, tried(failure)) == "again"


@pytest.mark.parametrize(
    ("failure", "then"),
    [
        (AttemptFailure.REFUSED, "again"),
        (AttemptFailure.UNCONNECTED, "again"),
        (AttemptFailure.LEADERLESS, "again"),
        (AttemptFailure.BROKEN, "give up"),
        (AttemptFailure.SILENT, "give up"),
        (AttemptFailure.UNAVAILABLE, "give up"),
    ],
)
def test_any_other_call_is_sent_again_only_if_it_was_not_sent(failure: AttemptFailure, then: str) -> None:
    assert step(CallKind.ONCE, tried(failure)) == then


@pytest.mark.parametrize("call", CallKind)
@pytest.mark.parametrize("failure", AttemptFailure)
def test_nothing_is_sent_after_the_limit(call: CallKind, failure: AttemptFailure) -> None:
    assert step(call, tried(failure, waited_s=LIMIT_S)) == "give up"
    assert step(call, tried(failure, waited_s=LIMIT_S - 0.01)) == "give up", "not in time behind the pause"


@pytest.mark.parametrize(
    ("call", "so_far", "then"),
    [
        pytest.param(
            CallKind.READ,
            tried(AttemptFailure.REFUSED, attempts=REFUSED_MAX, known=False),
            "give up",
            id="nothing has ever listened there",
        ),
        pytest.param(
            CallKind.READ,
            tried(AttemptFailure.REFUSED, attempts=REFUSED_MAX - 1, known=False),
            "again",
            id="it may be about to start",
        ),
        pytest.param(
            CallKind.READ,
            tried(AttemptFailure.REFUSED, attempts=100),
            "again",
            id="a cluster that was there may come back",
        ),
        pytest.param(
            CallKind.READ,
            tried(AttemptFailure.LEADERLESS, attempts=100, known=False),
            "again",
            id="an election is waited for until the limit",
        ),
        pytest.param(
            CallKind.READ,
            tried(AttemptFailure.UNAVAILABLE, attempts=100),
            "again",
            id="a cluster that says that it is away, too",
        ),
        pytest.param(
            CallKind.SUBMIT,
            tried(AttemptFailure.BROKEN, attempts=RULES[CallKind.SUBMIT].lost_max),
            "give up",
            id="a submission that breaks its cluster is not sent for ever",
        ),
        pytest.param(
            CallKind.SUBMIT,
            tried(AttemptFailure.REFUSED, attempts=50, lost=RULES[CallKind.SUBMIT].lost_max - 1),
            "again",
            id="attempts that were not sent do not count for that",
        ),
        pytest.param(
            CallKind.READ,
            tried(AttemptFailure.SILENT, attempts=RULES[CallKind.READ].lost_max),
            "give up",
            id="too many lost answers",
        ),
        pytest.param(
            CallKind.SHUTDOWN,
            tried(AttemptFailure.REFUSED, attempts=2, lost=1),
            "done",
            id="a cluster that has ended was shut down",
        ),
        pytest.param(
            CallKind.SHUTDOWN,
            tried(AttemptFailure.REFUSED, attempts=REFUSED_MAX, known=False),
            "give up",
            id="one that was never there was not",
        ),
        pytest.param(
            CallKind.CANCEL,
            tried(AttemptFailure.REFUSED, attempts=2, lost=1),
            "again",
            id="a cluster that has ended may have cancelled the job, or not",
        ),
    ],
)
def test_when_it_is_enough(call: CallKind, so_far: Tried, then: str) -> None:
    assert step(call, so_far) == then


def test_pauses_grow_are_bounded_and_differ_between_clients() -> None:
    longest = [pause(attempts, 1.0) for attempts in range(1, 60)]
    assert longest == sorted(longest)
    assert longest[-1] == PAUSE_MAX_S
    for attempts, whole_s in enumerate(longest, 1):
        assert pause(attempts, 0.0) == whole_s / 2
        assert whole_s / 2 < pause(attempts, 0.3) < whole_s


def test_a_call_that_never_succeeds_ends_within_its_limit() -> None:
    for failure in AttemptFailure:
        waited_s, attempts = 0.0, 0
        while attempts < 1_000:
            attempts += 1
            next_step = after(
                CallKind.READ,
                tried(failure, attempts=attempts, waited_s=waited_s),
                limit_s=LIMIT_S,
                jitter=1.0,
            )
            if not isinstance(next_step, Again):
                break
            waited_s += next_step.pause_s
        assert waited_s < LIMIT_S
        assert attempts < 60


@pytest.mark.parametrize("failure", AttemptFailure)
def test_the_last_error_names_the_place_the_wait_and_what_to_do(failure: AttemptFailure) -> None:
    so_far = tried(failure, attempts=3, waited_s=12.34)
    error = last_error(so_far, where="http://there:1", reason="because")
    text = str(error)
    assert text.startswith(
        "the cluster at http://there:1 does not answer: because (asked 3 times in 12.3 s); "
    )
    assert "\n" not in text
    assert isinstance(error, Unreachable)
    assert isinstance(error, NothingListens) is (failure is AttemptFailure.REFUSED)
    short = str(last_error(so_far, where="http://there:1", reason="because", longer=False))
    helps = failure not in {AttemptFailure.REFUSED, AttemptFailure.BROKEN}
    assert text == (f"{short}, or set client.timeout higher to wait longer" if helps else short)


@pytest.mark.parametrize(
    ("so_far", "is_in_doubt"),
    [
        pytest.param(tried(AttemptFailure.REFUSED), False, id="nothing was sent"),
        pytest.param(tried(AttemptFailure.LEADERLESS), False, id="to nobody"),
        pytest.param(tried(AttemptFailure.BROKEN), True, id="an answer is missing"),
        pytest.param(tried(AttemptFailure.REFUSED, attempts=3, lost=1), True, id="one was missing before"),
        pytest.param(tried(AttemptFailure.UNAVAILABLE), True, id="a gateway has passed it on, perhaps"),
    ],
)
def test_what_is_not_known_is_said_if_it_was_sent(so_far: Tried, is_in_doubt: bool) -> None:
    error = last_error(so_far, where="x", reason="because", doubt="who knows")
    assert str(error).endswith("; who knows") is is_in_doubt
    assert isinstance(error, NothingListens) is (so_far.failure is AttemptFailure.REFUSED and not is_in_doubt)


def test_one_attempt_is_not_counted() -> None:
    error = last_error(tried(AttemptFailure.SILENT, waited_s=3.0), where="x", reason="because", longer=False)
    assert str(error).startswith("the cluster at x does not answer: because (waited 3.0 s); it hangs")


@pytest.mark.parametrize(
    "failure", [AttemptFailure.REFUSED, AttemptFailure.UNCONNECTED, AttemptFailure.LEADERLESS]
)
def test_where_a_leader_is_elected_another_one_is_waited_for(failure: AttemptFailure) -> None:
    error = last_error(tried(failure), where="zookeeper://zk", reason="because", elected=True)
    assert "a standby leads as soon as the session of the last leader is over" in str(error)
    assert str(error).endswith(", or set client.timeout higher to wait longer")
