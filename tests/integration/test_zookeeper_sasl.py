"""Servers that only let in who logs in by SASL."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.eventually import WAIT_S
from tests.integration.zookeeper_leaders import Recorder, contending, new_cluster, settings_of
from tests.support.servers.ensemble import ZooKeeperEnsemble
from unistream.base.errors import ConfigError, Unreachable
from unistream.ha.zookeeper import ZooKeeperElection, ZooKeeperRetrieval, ZooKeeperSettings
from unistream.port.ha import LeaderInfo


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("guarded")
    with ZooKeeperEnsemble(folder, members=1, users={"ann": "s3cret", "bob": "other"}) as servers:
        yield servers.address


def test_a_master_and_a_client_log_in_and_what_they_write_is_their_own(guarded: str) -> None:
    name = new_cluster()
    mine = settings_of(guarded, name, client_acl="creator", client_authorization="sasl:ann:s3cret")
    with contending(mine) as (election, leader), ZooKeeperRetrieval(mine) as retrieval:
        leader.expect("granted")
        store = leader.granted_store
        store.create("jobs/1/job", b"1")
        election.publish(LeaderInfo(epoch=store.epoch, cluster="a"))
        found = retrieval.leader(WAIT_S)
        assert found is not None
        assert found.epoch == store.epoch
        theirs = settings_of(guarded, name, client_acl="creator", client_authorization="sasl:bob:other")
        assert "denies access" in refusal(theirs)
        assert leader.words == ["granted"]


@pytest.mark.parametrize("credentials", ["sasl:ann:wrong", "sasl:eve:s3cret"])
def test_a_login_that_is_refused_gets_one_sentence_at_once(guarded: str, credentials: str) -> None:
    patient = {"client_connection_timeout": "1 h"}  # which is not waited for
    settings = settings_of(guarded, new_cluster(), client_authorization=credentials, **patient)
    said = refusal(settings)
    assert "denies access" in said
    assert "with these credentials (sasl)" in said
    assert "s3cret" not in said


@pytest.mark.parametrize("given", [{}, {"client_authorization": "digest:ann:s3cret"}], ids=["none", "digest"])
def test_who_does_not_log_in_is_not_served(guarded: str, given: dict[str, str]) -> None:
    assert re.search("denies access|did not answer", refusal(settings_of(guarded, new_cluster(), **given)))


def refusal(settings: ZooKeeperSettings) -> str:
    recorder = Recorder()
    with ZooKeeperElection(settings) as election, pytest.raises((ConfigError, Unreachable)) as caught:
        election.start(recorder)
    assert recorder.words == []
    return str(caught.value)
