"""The reader of config.yaml: a text -> options with lines, and one sentence for each fault."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from unistream.base.config import OPTIONS
from unistream.base.config_file import FILE_BYTES_MAX, read_yaml


def options(text: str | bytes) -> dict[str, tuple[str, int]]:
    content = text.encode() if isinstance(text, str) else text
    found, faults = read_yaml(content, "config.yaml")
    assert faults == []
    return {one.key: (one.text, one.place.line) for one in found}


def faults(text: str | bytes) -> list[str]:
    content = text.encode() if isinstance(text, str) else text
    return [str(fault) for fault in read_yaml(content, "config.yaml")[1]]


@pytest.mark.parametrize(
    ("text", "then"),
    [
        pytest.param("", {}, id="an empty file sets nothing"),
        pytest.param("# rest.port: 1\n\n", {}, id="nor does one of comments"),
        pytest.param("---\n", {}, id="nor a document without anything"),
        pytest.param("rest.port: 8081", {"rest.port": ("8081", 1)}, id="a flat key"),
        pytest.param(
            "execution:\n  checkpointing:\n    interval: 10 s",
            {"execution.checkpointing.interval": ("10 s", 3)},
            id="a nested key",
        ),
        pytest.param(
            "execution.checkpointing:\n  interval: 10 s\nexecution:\n  checkpointing.mode: AT_LEAST_ONCE",
            {
                "execution.checkpointing.interval": ("10 s", 2),
                "execution.checkpointing.mode": ("AT_LEAST_ONCE", 4),
            },
            id="nested and flat keys mixed",
        ),
        pytest.param("rest: {port: 8081}", {"rest.port": ("8081", 1)}, id="a mapping on one line"),
        pytest.param('{"rest.port": 8081}', {"rest.port": ("8081", 1)}, id="JSON is YAML"),
        pytest.param(
            "high-availability: zookeeper\nhigh-availability.cluster-id: a",
            {"high-availability": ("zookeeper", 1), "high-availability.cluster-id": ("a", 2)},
            id="a key that is the beginning of others",
        ),
        pytest.param(
            "spark:\n  executor:\n    memoryOverhead: 1g",
            {"spark.executor.memoryOverhead": ("1g", 3)},
            id="Spark's keys nest, too",
        ),
        pytest.param("execution:\n# checkpointing:\n", {}, id="a section whose keys are comments"),
        pytest.param("rest.port: 1 # why", {"rest.port": ("1", 1)}, id="a comment is no part of a value"),
        pytest.param("﻿rest.port: 1", {"rest.port": ("1", 1)}, id="a byte order mark is no part of a key"),
        pytest.param(
            "rest.port: 1\r\nspark.a: b\r\n", {"rest.port": ("1", 1), "spark.a": ("b", 2)}, id="CRLF"
        ),
        pytest.param('spark.a: ""', {"spark.a": ("", 1)}, id="quotes make an empty value"),
        pytest.param('spark.a: "~"', {"spark.a": ("~", 1)}, id="and a tilde"),
        pytest.param("spark.a: |\n  b\n  c\n", {"spark.a": ("b\nc\n", 1)}, id="a block"),
    ],
)
def test_options(text: str, then: dict[str, tuple[str, int]]) -> None:
    assert options(text) == then


@pytest.mark.parametrize(
    "value",
    [
        *(
            "on",
            "off",
            "yes",
            "No",
            "true",
            "TRUE",
            "1:30",
            "1e3",
            "010",
            "0o10",
            "0x1F",
            "1_000",
            ".5",
            ".inf",
        ),
        *("2026-11-30", "10 s", "s3://a/b", "-1", "+1", "!important"[1:], "a: b"[:1], "Null and void"),
    ],
)
def test_a_value_is_the_text_that_stands_there(value: str) -> None:
    """YAML 1.1 would make other values of most of them."""
    assert options(f"spark.a: {value}") == {"spark.a": (value, 1)}


@pytest.mark.parametrize(
    ("text", "then"),
    [
        pytest.param(
            "a", "line 1: a configuration has lines such as 'rest.port: 8081', not a text", id="a text"
        ),
        pytest.param(
            "- a\n- b", "line 1: a configuration has lines such as 'rest.port: 8081', not a list", id="a list"
        ),
        pytest.param(
            "rest:\n  port: 1\n  port: 2",
            "line 3: rest.port is there twice, on line 2 and here: remove one",
            id="a key twice",
        ),
        pytest.param(
            "rest:\n  port: 1\nrest:\n  address: a",
            "line 3: rest is there twice, on line 1 and here: remove one",
            id="a section twice",
        ),
        pytest.param(
            "rest:\n  port: 1\nrest.port: 1",
            "line 3: rest.port is there twice, on line 2 and here: remove one",
            id="a key nested and flat",
        ),
        pytest.param(
            "rest.port: [1, [2, {a: b}]]",
            "line 1: rest.port is a list: write its parts as one text, with commas between them",
            id="a value that is a list",
        ),
        pytest.param(
            "rest.port:", "line 1: rest.port has no value: give it one, or remove the line", id="no value"
        ),
        pytest.param(
            "rest.port: ~", "line 1: rest.port has no value: give it one, or remove the line", id="a null"
        ),
        pytest.param(
            "nonsense:", "line 1: unknown configuration key 'nonsense'", id="an empty section of no key"
        ),
        pytest.param("a: &x 1", "line 1: &x: anchors are not supported: write the value out", id="an anchor"),
        pytest.param(
            "spark.a: *x", "line 1: *x: anchors are not supported: write the value out", id="an alias"
        ),
        pytest.param("<<: {rest.port: 1}", "line 1: '<<' is not supported: write the keys out", id="a merge"),
        pytest.param(
            "rest.port: !!int 1",
            "line 1: tags such as '!!str' are not supported: every value is a text already",
            id="a tag",
        ),
        pytest.param(
            "a: !!python/object/apply:os.system [ls]",
            "line 1: tags such as '!!str' are not supported: every value is a text already",
            id="a tag that would run code elsewhere",
        ),
        pytest.param("? [a]\n: b", "line 1: a key is a text, such as rest.port", id="a key that is a list"),
        pytest.param(
            "rest:\n\tport: 1", "line 2: a tab stands here: YAML wants spaces before a key", id="a tab"
        ),
        pytest.param(
            "metadata.url: a: b",
            "line 1: a second ': ' on the line, or a wrong number of spaces before it: put the value in "
            "quotes",
            id="two colons",
        ),
        pytest.param(
            "rest.port: 1\n---\nrest.port: 2",
            "line 2: a second document begins here: remove the '---' before it",
            id="two documents",
        ),
        pytest.param(
            b"rest.port: 1\nspark.a: \xff",
            "line 2: the file is not UTF-8: save it in that encoding",
            id="bytes",
        ),
        pytest.param(
            "rest.port: 1\nspark.a: \x01",
            "line 2: a character that no text has (U+0001): remove it",
            id="a control character",
        ),
        pytest.param(
            b"#" * (FILE_BYTES_MAX + 1),
            ": the file has more than 256 KiB, so it is no configuration",
            id="too much",
        ),
        pytest.param(
            "{a: " * 17 + "b" + "}" * 17,
            f"line 1: {'a.' * 15}a…: no key has more than 16 parts",
            id="a key of too many parts",
        ),
    ],
)
def test_faults(text: str | bytes, then: str) -> None:
    separator = "" if then.startswith(":") else " "
    assert faults(text) == [f"config.yaml{separator}{then}"]


def test_all_faults_are_found_at_once_and_the_rest_counts() -> None:
    text = "rest.port: [1]\nspark.a: &b c\nspark.d: e\nspark.f:\n  g: {h: [i]}\n"
    found, wrong = read_yaml(text.encode(), "config.yaml")
    assert [one.key for one in found] == ["spark.d"]
    assert [fault.place.line for fault in wrong] == [1, 2, 5]


def test_what_stands_before_a_broken_line_counts() -> None:
    found, wrong = read_yaml(b"spark.a: b\nspark.c: [\n", "config.yaml")
    assert [one.key for one in found] == ["spark.a"]
    assert len(wrong) >= 1


def test_a_bomb_of_anchors_is_refused_before_it_is_built() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join(f'*{before}' for _ in range(9))}]")
    assert len(faults("\n".join(lines))) == 9


TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@given(st.dictionaries(st.sampled_from(sorted(OPTIONS)), TEXTS, max_size=8))
def test_what_a_library_writes_is_read_as_it_was(values: dict[str, str]) -> None:
    text = yaml.safe_dump(values, default_style='"')
    assert {key: value for key, (value, _) in options(text).items()} == values


@given(st.binary(max_size=60) | TEXTS.map(str.encode))
def test_anything_is_read_or_has_a_fault(content: bytes) -> None:
    found, wrong = read_yaml(content, "config.yaml")
    assert all(str(fault).startswith("config.yaml") for fault in wrong)
    assert all(one.place.line > 0 for one in found)
