"""The options of the retention."""

from __future__ import annotations

import pytest

from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.port.retention import DAY_MS, MetadataRetention


def test_the_options_have_the_defaults_of_the_code() -> None:
    assert MetadataRetention.of(Configuration({})) == MetadataRetention()


def test_an_option_sets_its_limit() -> None:
    given = {"metadata.retention.age": "7 d", "metadata.retention.jobs": "3"}
    assert MetadataRetention.of(Configuration(given)) == MetadataRetention(age_ms=7 * DAY_MS, jobs=3)


@pytest.mark.parametrize(
    "given",
    [
        {"metadata.retention.age": "1 s"},
        {"metadata.retention.jobs": "-1"},
        {"metadata.retention.interval": "0"},
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        MetadataRetention.of(Configuration(given))
