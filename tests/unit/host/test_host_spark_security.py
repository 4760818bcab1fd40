"""When a cluster says that others may get the keys that Spark carries."""

from __future__ import annotations

import pytest

from unistream.base.config import Configuration
from unistream.host.spark_security import exposure, leaves_machine

KNOWS = {"spark.authenticate": "true"}
ENCRYPTS = {"spark.network.crypto.enabled": "true"}


@pytest.mark.parametrize(
    ("settings", "says", "does_not_say"),
    [
        pytest.param({}, ("spark.authenticate", "spark.network.crypto.enabled"), (), id="nothing is on"),
        pytest.param(KNOWS, ("speak plain text",), ("spark.authenticate",), id="plain text"),
        pytest.param(ENCRYPTS, ("take everybody for one of them",), ("spark.network",), id="no secret"),
        pytest.param({**KNOWS, "spark.ssl.rpc.enabled": "false"}, ("plain text",), (), id="off by name"),
    ],
)
def test_what_is_off_is_named(
    settings: dict[str, str], says: tuple[str, ...], does_not_say: tuple[str, ...]
) -> None:
    said = exposure(settings.get, "spark://m:7077")
    assert said is not None
    assert all(word in said for word in says)
    assert not any(word in said for word in does_not_say)


@pytest.mark.parametrize(
    "encrypts",
    [ENCRYPTS, {"spark.authenticate.enableSaslEncryption": "true"}, {"spark.ssl.rpc.enabled": "TRUE"}],
)
def test_nothing_is_said_of_one_that_keeps_what_it_carries(encrypts: dict[str, str]) -> None:
    assert exposure({**KNOWS, **encrypts}.get, "yarn") is None


@pytest.mark.parametrize(
    ("config", "leaves"),
    [
        ({}, False),
        ({"jobmanager.bind-host": "127.0.0.5"}, False),
        ({"jobmanager.bind-host": "0.0.0.0"}, True),
        ({"security.ssl.internal.enabled": "true"}, True),
    ],
)
def test_a_cluster_of_one_machine_asks_nothing(config: dict[str, str], leaves: bool) -> None:
    assert leaves_machine(Configuration(config)) == leaves
