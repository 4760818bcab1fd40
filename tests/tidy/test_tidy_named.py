"""Every command and option that a message names exists: a refusal names no way out that there is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.parsed import parsed
from unistream.base.config.configuration import FOREIGN, OPTIONS
from unistream.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
GAP = "\0"  # what a message is told when it is made
COMMAND = re.compile(r"['`\"(]unistream ([a-z][^'`\")\n]*)")
KEYS = re.compile(
    rf"(?<![\w./$@-])(?:{'|'.join(sorted({re.escape(key.partition('.')[0]) for key in OPTIONS}))})"
    r"(?:\.[a-z][A-Za-z0-9-]*)+(?![\w(/*{\0]|\.\w|-)"
)
NO_OPTIONS = (
    "metadata.db",
    "task.off-heap",
    "security.protocol",
)  # a file, a part of several options, Kafka's


@cache
def messages() -> tuple[tuple[str, str], ...]:
    """Where a text of more than one word is, and the text; docstrings are none."""
    return tuple(_messages())


def _messages() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "unistream").rglob("*.py")):
        if "testing" in path.parts:
            continue
        tree = parsed(path)
        inside: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr):
                inside.add(id(node.value))
            if isinstance(node, ast.JoinedStr):
                inside |= {id(part) for part in node.values}
        for node in ast.walk(tree):
            text = _text(node)
            if id(node) not in inside and " " in text:
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", text


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value) or GAP for value in values)
    return ""


def wrong_in(command: str) -> str | None:
    """What of the words behind "unistream" there is not; None: nothing."""
    first, *words = command.split(GAP, maxsplit=1)[0].split()
    if first not in COMMANDS:
        return first
    found = COMMANDS[first].load(first)
    while words and words[0] in getattr(found, "commands", {}):
        found, words = found.commands[words[0]], words[1:]
    if words and words[0].isalpha() and getattr(found, "commands", None) and first != "savepoint":
        return words[0]
    known = {name for param in found.params for name in (*param.opts, *param.secondary_opts)}
    return next(
        (word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word) and word not in known), None
    )


def test_every_command_that_a_message_names_exists() -> None:
    named = [(where, found[1]) for where, text in messages() for found in COMMAND.finditer(text)]
    assert len(named) > 30, "they are found"
    assert [(where, command) for where, command in named if wrong_in(command) is not None] == []


def test_every_option_that_a_message_names_exists() -> None:
    named = [(where, key) for where, text in messages() for key in KEYS.findall(text)]
    assert len(named) > 30, "they are found"
    known = [*OPTIONS, *(other for option in OPTIONS.values() for other in option.other_keys)]
    wrong = [
        (where, key)
        for where, key in named
        if not key.startswith((FOREIGN, *NO_OPTIONS))
        and not any(key == one or one.endswith(f".{key}") or one.startswith(f"{key}.") for one in known)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("cluster start -t local --workdir " + GAP, None),
        ("cluster begin", "begin"),
        ("run -s latest", None),
        ("run --from latest", "--from"),
        ("fly", "fly"),
    ],
)
def test_a_command_that_is_none_is_seen(command: str, wrong: str | None) -> None:
    assert wrong_in(command) == wrong
