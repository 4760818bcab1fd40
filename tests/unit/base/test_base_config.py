"""Configuration: values with units, ranges, and errors that name the key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import config_doc
from unistream.base import config
from unistream.base.config import (
    CHECKPOINT_INTERVAL,
    CHECKPOINT_RETENTION,
    OPTIONS,
    PARALLELISM,
    SAVEPOINT_DIR,
    Configuration,
    parse_assignments,
    parse_bool,
    parse_bytes,
    parse_duration_ms,
    parse_int,
)
from unistream.base.config.parsing import DURATION_MS_MAX
from unistream.base.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("100", 100),
        ("0", 0),
        ("2 s", 2_000),
        ("2s", 2_000),
        (" 3 sec ", 3_000),
        ("5 min", 300_000),
        ("5 m", 300_000),
        ("1 H", 3_600_000),
        ("7 d", 604_800_000),
        ("250 ms", 250),
        ("1 milli", 1),
        ("2 millis", 2),
        ("3 Millisecond", 3),
        ("4 milliseconds", 4),
        ("1 secs", 1_000),
        ("1 second", 1_000),
        ("2seconds", 2_000),
        ("1 minute", 60_000),
        ("2 MINUTES", 120_000),
        ("1 hour", 3_600_000),
        ("2 hours", 7_200_000),
        ("1 day", 86_400_000),
        ("365 days", 31_536_000_000),
        ("2000 µs", 2),
        ("3000 micros", 3),
        ("1000 microsecond", 1),
        ("5000000 ns", 5),
        ("1000000 nanos", 1),
        ("2000000 nanoseconds", 2),
        ("17179869184", 17_179_869_184),
        ("0000000000001 s", 1_000),
        ("31536000000000 ms", 31_536_000_000_000),
        ("99999999999 d", DURATION_MS_MAX),
        (str(2**63 - 1), DURATION_MS_MAX),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10", 10),
        ("10 b", 10),
        ("10 bytes", 10),
        ("17179869184", 17_179_869_184),
        (" 0017179869184 Bytes ", 17_179_869_184),
        (str(2**63 - 1), 2**63 - 1),
        ("2 k", 2048),
        ("2 kb", 2048),
        ("2 kibibytes", 2048),
        ("64 mb", 64 << 20),
        ("64MB", 64 << 20),
        ("64m", 64 << 20),
        ("1 MebiBytes", 1 << 20),
        ("1 g", 1 << 30),
        ("3 gb", 3 << 30),
        ("1 gibibytes", 1 << 30),
        ("2t", 2 << 40),
        ("2 TB", 2 << 40),
        ("1 tebibytes", 1 << 40),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


WRONG = [
    "",
    " ",
    "s",
    "-1 s",
    "1.5 s",
    "1 2 s",
    "1 parsec",
    "2 s s",
    "1e3",
    "0x10",
    "٣",
    "1_000",
    "9" * 5_000,
    str(2**63),
    "µ",
    "1 s 2",
]


@pytest.mark.parametrize("text", [*WRONG, "5 mb", "5 mins", "5 hr", "1 month"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a duration such as '2 s'"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", [*WRONG, "5 min", "5 byte", "5 kib", "1 p"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size such as '64 mb'"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["1 ns", "1500 µs", "999999 nanos"])
def test_a_part_of_a_millisecond_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"'{text}' is not a duration in whole milliseconds"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["9007199254740992 kb", "8388608 t"])
def test_more_bytes_than_a_number_of_flink_has_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size below 2"):
        parse_bytes(text)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), (" false ", False)])
def test_booleans(text: str, value: bool) -> None:
    assert parse_bool(text) is value


@pytest.mark.parametrize("text", ["", "1", "yes", "on", "truee"])
def test_what_is_no_boolean_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not true or false"):
        parse_bool(text)


@pytest.mark.parametrize("text", ["", "1.0", "٣", "1_0", "--1", "9" * 20, "9" * 5_000, str(2**63)])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a whole number"):
        parse_int(text)


def refusal(key: str, text: str) -> str | None:
    try:
        Configuration({key: text})
    except ConfigError as error:
        return str(error)
    return None


@given(st.text())
def test_any_text_is_a_value_or_a_config_error(text: str) -> None:
    for option in OPTIONS.values():
        refused = refusal(option.key, text)
        assert refused is None or refused.startswith(f"{option.key}: ")


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_round_trip(value: int) -> None:
    assert parse_int(str(value)) == value


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("parallelism.default", "two", "'two' is not a whole number"),
        ("parallelism.default", "0", "0 is not between 1 and 4096"),
        ("parallelism.default", "4097", "4097 is not between 1 and 4096"),
        ("pipeline.max-parallelism", "0", "0 is not between 1 and 32768"),
        ("execution.checkpointing.interval", "soon", "'soon' is not a duration"),
        ("execution.checkpointing.num-retained", "0", "0 is not between 1"),
        ("pipeline.operator-chaining.enabled", "maybe", "'maybe' is not true or false"),
        ("restart-strategy.type", "exponential", "'exponential' is not one of exponential-delay"),
        ("rest.port", "65536", "65536 is not between 0 and 65535"),
    ],
)
def test_a_bad_value_names_its_key_before_anything_starts(key: str, value: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(key)}: {re.escape(why)}"):
        Configuration({key: value})


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("parallelism.defualt", "parallelism.default"),
        ("execution.checkpointing.intervall", "execution.checkpointing.interval"),
        ("taskmanager.number-of-task-slots", "taskmanager.numberOfTaskSlots"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(key: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown configuration key '{key}'; did you mean '{nearest}'"):
        Configuration({key: "1"})


def test_a_key_that_is_near_to_none_is_refused_without_a_guess() -> None:
    with pytest.raises(ConfigError, match=r"^unknown configuration key 'zzz'$"):
        Configuration({"zzz": "1"})


def test_values_defaults_and_unset() -> None:
    settings = Configuration({"parallelism.default": "4"})
    assert settings.get(PARALLELISM) == 4
    assert Configuration().get(PARALLELISM) == 1
    assert settings.find(CHECKPOINT_INTERVAL) is None
    assert settings.get(CHECKPOINT_RETENTION) == "NO_EXTERNALIZED_CHECKPOINTS"
    with pytest.raises(ConfigError, match=r"^execution\.checkpointing\.savepoint-dir is not set: fsspec URL"):
        settings.get(SAVEPOINT_DIR)


def test_merged_values_lie_on_top_and_the_original_stays() -> None:
    below = Configuration({"parallelism.default": "2", "rest.port": "1"})
    merged = below.merged({"parallelism.default": "3"})
    assert merged.to_dict() == {"parallelism.default": "3", "rest.port": "1"}
    assert below.get(PARALLELISM) == 2
    merged.to_dict()["rest.port"] = "9"
    assert merged.to_dict()["rest.port"] == "1"
    with pytest.raises(ConfigError, match="unknown"):
        below.merged({"no.such.key": "1"})


def test_assignments_of_a_command_line() -> None:
    assert parse_assignments(["a.b=1", " c = x=y ", "d="]) == {"a.b": "1", "c": "x=y", "d": ""}


@pytest.mark.parametrize("text", ["", "a", "=1", " =1"])
def test_what_is_no_assignment_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="-D takes key=value"):
        parse_assignments([text])


# --- the table of options and its page ------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(OPTIONS))
def test_every_option_is_documented_and_its_default_is_valid(key: str) -> None:
    option = OPTIONS[key]
    assert option.key == key
    assert option.doc.endswith(".")
    assert f"| `{key}` |" in config_doc.render()
    if option.default is not None:
        Configuration({key: option.default})


def test_every_declared_option_is_in_the_table() -> None:
    declared = [option for topic in config.TOPICS for option in config.options_of(topic)]
    assert len(declared) == len(OPTIONS), "two options share a key"
    assert set(Path(config.__file__).parent.glob("*.py")) - {
        Path(t.__file__ or "") for t in config.TOPICS
    } == {
        Path(config.__file__).with_name(f"{name}.py")
        for name in ("__init__", "configuration", "kinds", "parsing")
    }, "a module of options is missing in TOPICS"


def test_every_option_can_be_imported_without_its_topic() -> None:
    by_name = {value.key for value in vars(config).values() if isinstance(value, config.ConfigOption)}
    assert by_name == set(OPTIONS)


def test_the_reference_page_is_up_to_date() -> None:
    page = ROOT / "docs" / "reference" / "configuration.md"
    assert page.read_text(encoding="utf-8") == config_doc.render(), (
        "run: python -m tests.support.config_doc > docs/reference/configuration.md"
    )


def test_keys_of_spark_go_through_as_they_are() -> None:
    config = Configuration({"spark.executor.memory": "2g", "spark.master": "spark://h:7077"})
    assert config.to_dict() == {"spark.executor.memory": "2g", "spark.master": "spark://h:7077"}
    with pytest.raises(ConfigError, match="unknown configuration key 'sparkle'"):
        Configuration({"sparkle": "1"})


AFTER_FINISH = "execution.checkpointing.checkpoints-after-tasks-finish"


def test_an_option_is_known_by_its_other_keys_too() -> None:
    config = Configuration({f"{AFTER_FINISH}.enabled": "false"})
    assert config.get(OPTIONS[AFTER_FINISH]) is False
    assert config.to_dict() == {AFTER_FINISH: "false"}
    assert config.merged({f"{AFTER_FINISH}.enabled": True}).to_dict() == {AFTER_FINISH: "true"}


def test_two_keys_of_one_option_must_agree() -> None:
    assert Configuration({AFTER_FINISH: "false", f"{AFTER_FINISH}.enabled": "false"}).to_dict()
    with pytest.raises(ConfigError, match=f"{AFTER_FINISH} is true and .* is false; they are one option"):
        Configuration({AFTER_FINISH: "true", f"{AFTER_FINISH}.enabled": "false"})
