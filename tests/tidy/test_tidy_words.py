"""Plain words: what the field has a noun for is called by that noun, in the product and its documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "unistream").rglob("*.py*"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])

PLAIN = {
    "told": "notified, reported, sent",
    "fate": "outcome",
    "whoever": "the caller, the owner, the client",
    "anew": "again, new",
    "wish": "request",
    "beside": "next to",
    "lies in": "is stored in, is in",
    "became of": "outcome, result",
    "become of": "outcome, result",
}


@pytest.mark.parametrize("word", PLAIN)
def test_the_field_s_word_is_used(word: str) -> None:
    odd = re.compile(rf"(?<!\")\b{word}\b", re.IGNORECASE)  # a quoted one is a name that programs read
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in FILES
        if path.suffix in {".py", ".pyi", ".md"}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if odd.search(line)
    ]
    assert found == [], f"write: {PLAIN[word]}"
