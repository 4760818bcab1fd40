"""Restart strategies: what the cases do not say, and how they are configured."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.core.contract import RestartBackoff
from unistream.core.execution import restart_backoff_from_config
from unistream.core.execution.restart_backoff import (
    UNLIMITED,
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
)

PREFIX = "restart-strategy."
GOOD: dict[str, Any] = {
    "initial_ms": 10,
    "max_ms": 1_000,
    "multiplier": 2.0,
    "reset_ms": 100,
    "jitter": 0.0,
    "attempts_max": UNLIMITED,
}


def middle() -> float:
    return 0.5


def exponential(**changes: Any) -> ExponentialDelay:
    return ExponentialDelay(**{**GOOD, "draw": middle, **changes})


def configured(**values: str) -> RestartBackoff:
    options = {PREFIX + key.replace("__", ".").replace("_", "-"): value for key, value in values.items()}
    return restart_backoff_from_config(Configuration(options), middle)


def test_asking_changes_nothing() -> None:
    for backoff in (exponential(), FixedDelay(attempts_max=1, delay_ms=5), NoRestart()):
        backoff.notify_failure(0)
        answers = {(backoff.can_restart, backoff.backoff_ms(0), backoff.describe()) for _ in range(5)}
        assert len(answers) == 1


def test_the_wait_is_not_known_before_a_failure() -> None:
    with pytest.raises(AssertionError, match="no failure yet"):
        exponential().backoff_ms(0)


def test_a_wait_that_outgrows_every_number_is_the_longest_one() -> None:
    backoff = exponential(multiplier=1e300, jitter=1.0, max_ms=50)
    waits = []
    for n in range(1_200):
        backoff.notify_failure(n * 51)
        waits.append(backoff.backoff_ms(n * 51))
    assert set(waits[1:]) == {50}


@given(
    initial=st.integers(1, 500),
    more=st.integers(0, 5_000),
    multiplier=st.floats(1.01, 10),
    jitter=st.floats(0, 1),
    draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20),
    gaps=st.lists(st.integers(0, 10_000), min_size=1, max_size=30),
)
def test_a_wait_is_never_shorter_than_the_first_nor_longer_than_the_longest(
    *, initial: int, more: int, multiplier: float, jitter: float, draws: list[float], gaps: list[int]
) -> None:
    stock = iter(draws * 30)
    backoff = exponential(
        initial_ms=initial,
        max_ms=initial + more,
        multiplier=multiplier,
        jitter=jitter,
        draw=lambda: next(stock),
    )
    now, restart_at = 0, -1
    for gap in gaps:
        now += gap
        new = backoff.notify_failure(now)
        wait = backoff.backoff_ms(now)
        assert new is (now > restart_at)
        if new:
            assert initial <= wait <= initial + more
            restart_at = now + wait
        else:
            assert wait == restart_at - now  # merged: the announced moment stays


@given(gaps=st.lists(st.integers(0, 30), max_size=60), most=st.integers(1, 5), interval=st.integers(1, 40))
def test_the_failure_rate_is_what_a_list_of_all_failures_says(
    gaps: list[int], most: int, interval: int
) -> None:
    backoff = FailureRate(failures_max=most, interval_ms=interval, delay_ms=0)
    times: list[int] = []
    now = 0
    for gap in gaps:
        now += gap
        assert backoff.notify_failure(now)
        times.append(now)
        assert backoff.can_restart is (sum(now - t <= interval for t in times) <= most)


# --- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, ExponentialDelay) for name in ("exponential-delay", "exponentialdelay")),
        *((name, FixedDelay) for name in ("fixed-delay", "fixeddelay")),
        *((name, FailureRate) for name in ("failure-rate", "failurerate")),
        *((name, NoRestart) for name in ("none", "off", "disable")),
    ],
)
def test_every_name_of_a_strategy(name: str, kind: type) -> None:
    assert type(configured(type=name)) is kind


def test_a_job_with_checkpoints_restarts_by_itself() -> None:
    config = Configuration({"execution.checkpointing.interval": "1 s"})
    backoff = restart_backoff_from_config(config, middle)
    assert backoff.describe() == (
        "exponential-delay (initial-backoff 1000 ms, max-backoff 60000 ms, backoff-multiplier 1.5, "
        "reset-backoff-threshold 3600000 ms, jitter-factor 0.1, attempts-before-reset-backoff unlimited; "
        "attempt 0)"
    )
    assert type(restart_backoff_from_config(Configuration(), middle)) is NoRestart
    of_batch = restart_backoff_from_config(Configuration(), middle, batch=True)
    assert of_batch.describe() == "fixed-delay (attempts 3, delay 1000 ms)"
    none = restart_backoff_from_config(Configuration({"restart-strategy.type": "none"}), middle, batch=True)
    assert type(none) is NoRestart


def test_the_jobs_own_options_win() -> None:
    cluster = Configuration({PREFIX + "type": "none"})
    merged = cluster.merged({PREFIX + "type": "fixed-delay", PREFIX + "fixed-delay.attempts": "7"})
    assert restart_backoff_from_config(merged, middle).describe() == "fixed-delay (attempts 7, delay 1000 ms)"


def test_the_options_reach_the_strategy() -> None:
    rate = configured(
        type="failure-rate",
        failure_rate__max_failures_per_interval="3",
        failure_rate__failure_rate_interval="2 min",
        failure_rate__delay="5 s",
    )
    assert rate.describe() == (
        "failure-rate (max-failures-per-interval 3, failure-rate-interval 120000 ms, delay 5000 ms)"
    )


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("type", "sometimes", "exponential-delay, exponentialdelay, fixed-delay"),
        ("exponential-delay.initial-backoff", "0 ms", "a duration of at least 1 ms"),
        ("exponential-delay.initial-backoff", "soon", "a duration such as '2 s'"),
        ("exponential-delay.max-backoff", "0", "a duration of at least 1 ms"),
        ("exponential-delay.backoff-multiplier", "1.0", "a number above 1"),
        ("exponential-delay.backoff-multiplier", "nan", "a number above 1"),
        ("exponential-delay.backoff-multiplier", "1e999", "a number above 1"),
        ("exponential-delay.jitter-factor", "1.1", "a number between 0 and 1"),
        ("exponential-delay.jitter-factor", "-0.1", "a number between 0 and 1"),
        ("exponential-delay.reset-backoff-threshold", "0 s", "a duration of at least 1 ms"),
        ("exponential-delay.attempts-before-reset-backoff", "0", "between 1 and 2147483647"),
        ("fixed-delay.attempts", "-1", "between 0 and 2147483647"),
        ("failure-rate.max-failures-per-interval", "0", "between 1 and 100000"),
        ("failure-rate.failure-rate-interval", "0 min", "a duration of at least 1 ms"),
    ],
)
def test_a_bad_value_is_refused_with_its_key_and_what_is_allowed(key: str, value: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Configuration({PREFIX + key: value})
    text = str(refused.value)
    assert text.startswith(f"{PREFIX}{key}: ")
    assert value in text
    assert allowed in text


def test_the_first_wait_cannot_be_longer_than_the_longest() -> None:
    with pytest.raises(
        ConfigError, match=re.escape("initial-backoff: 120000 ms is more than restart-strategy.e")
    ):
        configured(type="exponential-delay", exponential_delay__initial_backoff="2 min")


def test_no_restart_says_so() -> None:
    backoff = configured(type="off")
    assert backoff.notify_failure(0)
    assert not backoff.can_restart
    assert backoff.backoff_ms(0) == 0
    assert backoff.describe() == "none"
