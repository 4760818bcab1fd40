from __future__ import annotations

import pytest

from unistream.cli.stack import unusual
from unistream.testing.devtools import ServerStatus
from unistream.testing.devtools.stack import chosen_ports


@pytest.mark.parametrize(
    ("kept", "usual", "taken", "then"),
    [
        pytest.param((), 9092, (), (9092, 28), id="the first start takes the usual port"),
        pytest.param((), 9092, (9092,), (27, 28), id="it is taken"),
        pytest.param((31, 32), 9092, (9092,), (31, 32), id="it is taken, and clients know another one"),
        pytest.param((31, 32), 9092, (9092, 32), (31, 28), id="what clients know stays"),
        pytest.param((31, 32), 9092, (), (9092, 32), id="it has become free"),
        pytest.param((), None, (), (27, 28), id="a test wants none that others want"),
        pytest.param((31,), None, (31,), (27, 28), id="an older version needed fewer"),
    ],
)
def test_the_ports_of_a_server_that_starts(
    kept: tuple[int, ...], usual: int | None, taken: tuple[int, ...], then: tuple[int, ...]
) -> None:
    assert chosen_ports(kept, (27, 28), usual, lambda port: port not in taken) == then


@pytest.mark.parametrize(
    ("address", "is_free", "then"),
    [
        pytest.param("127.0.0.1:2181", False, [], id="where everybody looks for it"),
        pytest.param(None, True, [], id="it does not run"),
        pytest.param("127.0.0.1:27", False, ["taken by another program"], id="another program is there"),
        pytest.param(
            "127.0.0.1:27",
            True,
            ["free now: 'unistream stack down zookeeper' and 'unistream stack up zookeeper' take it"],
            id="nobody is there any more",
        ),
    ],
)
def test_a_server_on_another_port_is_named(address: str | None, is_free: bool, then: list[str]) -> None:
    server = ServerStatus(
        name="zookeeper", state="running", address=address, pid=1, started_ms=0, log="zookeeper.log"
    )
    said = f"zookeeper is on {address}, not on its usual port 2181, which is "
    assert unusual([server], lambda _port: is_free) == [said + why for why in then]
