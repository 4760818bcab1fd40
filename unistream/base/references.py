"""References in a text: ``${env:NAME}``, ``${file:PATH}``; ``$${`` stands for ``${`` itself. Pure.

Who resolves one looks at the text once: in what a variable or a file holds, nothing is a reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

REFERENCE: Final = re.compile(r"\$\$\{|\$\{(env|file):([^}]+)\}")
"""One reference, with its kind and what it names; or an escaped beginning of one, which has no groups."""
_BEGIN: Final = re.compile(r"\$\{[^}]*\}?")


def is_reference(text: str) -> bool:
    """One reference, and nothing else."""
    found = REFERENCE.fullmatch(text)
    return found is not None and found[1] is not None


def has_reference(text: str) -> bool:
    """What it will be is known only where it is used.

    >>> has_reference("db://u:${env:PW}@host/d"), has_reference("db://u:p@host/d"), has_reference("$${env:A}")
    (True, False, False)
    """
    return any(found[1] is not None for found in REFERENCE.finditer(text))


def replaced(text: str, named: Callable[[str, str], str]) -> str:
    """The text with what its references name in their places. `named`: of a kind and what is named.

    >>> replaced("s3://${env:BUCKET}/$${env:BUCKET}", lambda kind, where: f"<{where}>")
    's3://<BUCKET>/${env:BUCKET}'
    """
    return REFERENCE.sub(lambda found: "${" if found[1] is None else named(found[1], found[2]), text)


def escaped(text: str) -> str:
    """Text that is `text` once it was looked at.

    >>> replaced(escaped("a${env:B}"), lambda kind, where: "-")
    'a${env:B}'
    """
    return text.replace("${", "$${")


def unclear(text: str) -> str | None:
    """What begins like a reference in the text, and is none.

    >>> unclear("${HOME}/a"), unclear("${env:HOME}/$${b"), unclear("a${env:}")
    ('${HOME}', None, '${env:}')
    """
    found = _BEGIN.search(REFERENCE.sub("", text))
    return None if found is None else found[0]
