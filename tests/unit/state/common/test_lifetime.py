"""When a value expires."""

from __future__ import annotations

import pytest

from unistream.model.state import StateTtl
from unistream.state.common.lifetime import Lifetime
from unistream.testing.harness.operators import ManualClock


@pytest.mark.parametrize(
    ("ttl_ms", "expires"),
    [
        pytest.param(1, 1_001, id="after its time"),
        pytest.param(2**63 - 1_001, 2**63 - 1, id="at the last moment that int64 has"),
        pytest.param(2**63 - 1, 2**63 - 1, id="never, which is later than that"),
    ],
)
def test_a_value_expires(ttl_ms: int, expires: int) -> None:
    assert Lifetime(StateTtl(ttl_ms), ManualClock(1_000)).expiry() == expires
