"""A process becomes the leader, and stops being one, as the election says."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.eventually import eventually
from unistream.base.errors import ConfigError, Fenced, OutcomeUnknown, UnistreamError, Unreachable
from unistream.base.ids import LeaderEpoch
from unistream.client.embedded.contending import Contending, OnEnd, Term
from unistream.port.ha import Contender, LeaderInfo


class Store:
    """Of a leader; only `epoch` and `leads` count here."""

    def __init__(self, epoch: int) -> None:
        self.epoch = LeaderEpoch(epoch)
        self.is_leading = True

    def leads(self) -> bool:
        return self.is_leading


class Election:
    """Grants when the test says so, or at once."""

    def __init__(self, *, at_once: bool = False) -> None:
        self._at_once = at_once
        self._epoch = 0
        self.closed = 0
        self.contender: Contender | None = None

    def start(self, contender: Contender) -> None:
        self.contender = contender
        if self._at_once:
            self.grant()

    def grant(self) -> Store:
        assert self.contender is not None
        self._epoch += 1
        store = Store(self._epoch)
        self.contender.granted(store)  # type: ignore[arg-type]
        return store

    def revoke(self) -> None:
        assert self.contender is not None
        self.contender.revoked("lost")

    def publish(self, info: LeaderInfo) -> None:
        raise AssertionError(f"not asked for here: {info}")

    def contenders(self) -> tuple[()]:
        return ()

    def close(self) -> None:
        self.closed += 1


class Leaders:
    """Makes leaders, and remembers what became of them; the first attempts raise `errors`."""

    def __init__(self, *errors: Exception) -> None:
        self.log: list[str] = []
        self.failures: list[UnistreamError] = []
        self._errors = list(errors)

    def begin(self, term: Term) -> Leader:
        if self._errors:
            term.leadership.end("an attempt that failed was shut down while it was suspended")
            raise self._errors.pop(0)
        assert term.leadership.over is None
        self.log.append(f"{term.store.epoch} leads on {threading.current_thread().name}")
        return Leader(self.log, term.store.epoch)

    def fail(self, error: UnistreamError) -> None:
        self.failures.append(error)


class Leader:
    def __init__(self, log: list[str], epoch: int) -> None:
        self._log = log
        self._epoch = epoch

    def end(self, reason: str | None, on_end: OnEnd) -> None:
        self._log.append(f"{self._epoch} closes" if reason is None else f"{self._epoch} steps down: {reason}")
        on_end(None)


def contending(election: Election, leaders: Leaders) -> Contending:
    return Contending(election, leaders.begin, leaders.fail)


def awaits(log: list[str], last: str) -> Callable[[], bool]:
    return lambda: bool(log) and log[-1] == last


def test_an_only_master_leads_when_start_returns() -> None:
    election, leaders = Election(at_once=True), Leaders()
    with contending(election, leaders) as contender:
        contender.start()
        assert leaders.log == ["1 leads on MainThread"]
    contender.close()
    assert leaders.log == ["1 leads on MainThread", "1 closes"]
    assert election.closed


def test_one_of_several_leads_steps_down_and_leads_again() -> None:
    election, leaders = Election(), Leaders()
    with contending(election, leaders) as contender:
        contender.start()
        assert leaders.log == []
        for epoch in (1, 2):
            election.grant()
            eventually(awaits(leaders.log, f"{epoch} leads on leadership"), "it leads")
            election.revoke()
            eventually(awaits(leaders.log, f"{epoch} steps down: lost"), "it leads no more")
    assert len(leaders.log) == 4
    assert election.closed == 1


class SlowLeader:
    """Its end is over when the test says so."""

    def __init__(self, log: list[str], epoch: int) -> None:
        self._log = log
        self._epoch = epoch
        self.ends: list[OnEnd] = []

    def end(self, reason: str | None, on_end: OnEnd) -> None:
        self._log.append(f"{self._epoch} begins to end")
        self.ends.append(on_end)


def test_a_term_begins_when_nothing_is_left_of_the_one_before_it() -> None:
    election, log = Election(), list[str]()
    leaders: list[SlowLeader] = []

    def begin(term: Term) -> SlowLeader:
        log.append(f"{term.store.epoch} leads")
        leaders.append(SlowLeader(log, term.store.epoch))
        return leaders[-1]

    with Contending(election, begin, lambda _: None) as contender:
        contender.start()
        election.grant()
        eventually(awaits(log, "1 leads"), "it leads")
        election.revoke()
        election.grant()
        eventually(awaits(log, "1 begins to end"), "it leads no more")
        [first] = leaders
        first.ends.pop()(None)
        eventually(awaits(log, "2 leads"), "it leads again")
        left = contender.leave()
        eventually(awaits(log, "2 begins to end"), "it leaves")
        assert not left.done()
        leaders[-1].ends.pop()(RuntimeError("a server did not end"))
        with pytest.raises(RuntimeError, match="did not end"):
            contender.close()
        assert left.done()
    assert log == ["1 leads", "1 begins to end", "2 leads", "2 begins to end"]


def test_a_standby_ends() -> None:
    election, leaders = Election(), Leaders()
    with contending(election, leaders) as contender:
        contender.start()
    assert (leaders.log, election.closed) == ([], 1)


@pytest.mark.parametrize("error", [Unreachable("away"), OutcomeUnknown("away"), Fenced("older")], ids=repr)
def test_a_service_that_is_away_is_asked_again(
    error: UnistreamError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unistream.client.embedded.contending.RETRY_S", 0.01)
    election, leaders = Election(), Leaders(error, error)
    with contending(election, leaders) as contender:
        contender.start()
        election.grant()
        eventually(awaits(leaders.log, "1 leads on leadership"), "it leads")
    assert leaders.failures == []


def test_leadership_that_is_over_before_it_began_is_nobodys() -> None:
    election, leaders = Election(), Leaders(*[Unreachable("away")] * 3)
    with contending(election, leaders) as contender:
        contender.start()
        election.grant()
        election.revoke()
        election.grant()
        eventually(lambda: any(line.startswith("2 leads") for line in leaders.log), "the second one leads")
    assert [line.partition(" on ")[0] for line in leaders.log] == ["2 leads", "2 closes"]


@pytest.mark.parametrize("error", [ConfigError("never"), RuntimeError("a bug")], ids=repr)
def test_what_no_repetition_mends_ends_the_process(error: Exception) -> None:
    election, leaders = Election(), Leaders(error)
    with contending(election, leaders) as contender:
        contender.start()
        election.grant()
        eventually(lambda: len(leaders.failures) == 1, "its end is requested")
    assert str(error) in str(leaders.failures[0])
    assert leaders.log == []


def test_an_only_master_that_cannot_lead_says_so_at_once() -> None:
    election = Election(at_once=True)
    with (
        contending(election, Leaders(ConfigError("never"))) as contender,
        pytest.raises(ConfigError, match="never"),
    ):
        contender.start()
    assert election.closed == 1
