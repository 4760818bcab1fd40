"""Hosts that lose workers are avoided, as long as there are others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core.resource.test_resource_supply import Cluster, names
from unistream.core.resource import BlockRules
from unistream.core.resource.workers import Blocklist


class TestBlockedHosts:
    def cluster(
        self, *, elsewhere: bool = False, failures: int = 2, event_ms: int = 0, **rules: Any
    ) -> Cluster:
        block = BlockRules(
            failures=failures, window_ms=60_000, block_ms=3_000, event_ms=event_ms, elsewhere=elsewhere
        )
        return Cluster(block=block, **rules)

    def blocked(self, *, pause_ms: int = 0) -> Cluster:
        """Of two hosts `bad` has lost two workers, and has a third now. `pause_ms`: after each loss."""
        cluster = self.cluster(active=False)
        cluster.join("good", host="good")
        self.lose(cluster, "bad-1", "bad-2", pause_ms=pause_ms)
        cluster.join("bad-3", host="bad")
        return cluster

    def lose(self, cluster: Cluster, *names: str, pause_ms: int = 0) -> None:
        """Workers that come up on `bad`, and are lost."""
        for name in names:
            cluster.join(name, host="bad")
            cluster.end(name)
            cluster.pass_time(pause_ms)

    def test_its_free_slots_are_not_given_out_for_a_time(self) -> None:
        cluster = self.blocked()
        cluster.want("a", "0", "1")
        assert cluster.granted == {("a", "0"): "good"}
        blocked = {view.task_manager: view.blocked_ms for view in cluster.machine.view()}
        assert blocked == {"good": 0, "bad-3": 3_000}
        (bad,) = cluster.machine.blocked()
        assert (bad.host, bad.left_ms, bad.shut, bad.losses) == ("bad", 3_000, True, ("killed", "killed"))
        cluster.pass_time(3_000)
        assert cluster.granted["a", "1"] == "bad-3"
        assert cluster.machine.blocked() == ()

    def test_the_last_host_is_never_blocked(self) -> None:
        cluster = self.cluster(active=False)
        for name in ("1", "2", "3"):
            cluster.join(name)
            cluster.end(name)
        cluster.join("4")
        cluster.want("a", "0")
        assert cluster.granted

    def test_it_serves_again_when_no_other_is_left(self) -> None:
        cluster = self.blocked()
        cluster.want("a", "0", "1")
        assert cluster.granted == {("a", "0"): "good"}
        cluster.end("good")
        assert cluster.granted == {("a", "1"): "bad-3"}
        assert [view.blocked_ms for view in cluster.machine.view()] == [0]
        assert [(host.host, host.shut) for host in cluster.machine.blocked()] == [("bad", False)]
        cluster.join("bad-4", host="bad")
        cluster.join("good-2", host="good")
        cluster.want("a", "2", "3")
        assert cluster.granted == {("a", "1"): "bad-3", ("a", "2"): "good-2"}, "there is another again"

    def test_new_workers_avoid_it_and_one_that_comes_up_there_is_sent_away(self) -> None:
        cluster = self.cluster(elsewhere=True)
        for _ in range(2):
            cluster.want("a", "0")
            cluster.join_all(host="bad")
            cluster.end(next(iter(cluster.up)))
        cluster.want("a", "0")
        ((worker, order),) = cluster.starting.items()
        assert order.avoid == ("bad",)
        assert names(cluster.join(worker, host="bad")) == ["AnnounceLoss", "StopWorker"]
        cluster.pass_time(1_000)
        cluster.join_all(host="good")
        assert cluster.granted

    def test_a_host_on_which_no_worker_even_starts_is_avoided_and_no_pause_is_made_for_it(self) -> None:
        cluster = self.cluster(elsewhere=True)
        cluster.want("a", "0")
        for _ in range(2):
            (worker,) = cluster.starting
            cluster.end(worker, host="bad")
            if not cluster.starting:
                cluster.pass_time(500)  # the pause after the first start that failed
        ((worker, order),) = cluster.starting.items()
        assert order.avoid == ("bad",), "at once: what failed is avoided now"
        cluster.join(worker, host="good")
        assert cluster.granted

    def test_what_fails_on_a_blocked_host_does_not_make_it_longer(self) -> None:
        cluster = self.cluster(active=False)
        cluster.join("good", host="good")
        self.lose(cluster, "1", "2")
        cluster.pass_time(2_000)
        self.lose(cluster, "3", "4")
        cluster.join("5", host="bad")
        cluster.want("a", "0", "1")
        assert cluster.granted == {("a", "0"): "good"}
        cluster.pass_time(1_000)
        assert cluster.granted["a", "1"] == "5", "3 s after it was blocked"

    def block(self, cluster: Cluster, host: str) -> None:
        """Blocks `host` by two workers that start there and are lost; a third is wanted then."""
        cluster.want("a", "0")
        for _ in range(2):
            cluster.join_all(host=host)
            cluster.end(next(iter(cluster.up)))
            cluster.want("a", "0")
        assert [order.avoid for order in cluster.starting.values()] == [(host,)]

    def test_the_only_host_of_a_driver_that_may_have_others_is_not_avoided_for_long(self) -> None:
        cluster = self.cluster(elsewhere=True)
        self.block(cluster, "only")
        cluster.end(next(iter(cluster.starting)), host="only")  # placed there all the same, so it ended
        cluster.pass_time(500)
        ((worker, order),) = cluster.starting.items()
        assert order.avoid == ("only",), "once is chance"
        cluster.end(worker, host="only")
        ((worker, order),) = cluster.starting.items()
        assert order.avoid == (), "without a pause, and long before its time is over"
        cluster.join(worker, host="only")
        assert cluster.granted

    def test_a_host_is_avoided_as_long_as_workers_are_placed_elsewhere(self) -> None:
        cluster = self.cluster(elsewhere=True, max_workers=4)
        self.block(cluster, "bad")
        for key in ("1", "2", "3"):
            cluster.end(next(iter(cluster.starting)), host="bad")
            cluster.pass_time(500)
            cluster.join_all(host="good")
            cluster.want("a", key)
            assert [order.avoid for order in cluster.starting.values()] == [("bad",)], key

    def test_workers_that_are_lost_together_are_one_loss(self) -> None:
        cluster = self.cluster(elsewhere=True, failures=3, event_ms=1_000, slots=2)
        wanted = [str(key) for key in range(8)]
        for avoid in [
            (),
            (),
            ("bad",),
        ]:  # of the workers that are started after the first, second, third loss
            cluster.want("a", *wanted)
            cluster.join_all(host="bad")
            cluster.pass_time(2_000)
            for worker in sorted(cluster.up):
                cluster.end(worker)
                cluster.now_ms += 200  # one after the other is noticed
            cluster.want("a", *wanted)
            assert {order.avoid for order in list(cluster.starting.values())[-1:]} == {avoid}

    @pytest.mark.parametrize(
        ("started_ms", "lost_ms", "is_blocked"),
        [
            pytest.param(0, 2_000, False, id="both ran, and were lost within the time of one loss"),
            pytest.param(0, 2_001, True, id="both ran, the second was lost later"),
            pytest.param(1_000, 1_500, True, id="the second was started when the first was lost"),
        ],
    )
    def test_what_is_one_loss(self, started_ms: int, lost_ms: int, is_blocked: bool) -> None:
        """The first worker runs from 0 to 1,000 ms."""
        blocklist = Blocklist(BlockRules(failures=2, event_ms=1_000, elsewhere=True))
        assert not blocklist.lost("h", 1_000, started_ms=0, alternative=True)
        assert blocklist.lost("h", lost_ms, started_ms=started_ms, alternative=True) is is_blocked

    def test_failures_of_long_ago_do_not_count(self) -> None:
        cluster = self.blocked(pause_ms=61_000)
        cluster.want("a", "0", "1")
        assert len(cluster.granted) == 2
