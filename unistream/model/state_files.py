"""Paths of a state's files below the directory of a snapshot:

    <operator uid>/<state name>/part-<random>.arrow        a table: keyed state, timers
    <operator uid>/<state name>/part-<random>.msgpack      a long list of operator state

Only the manifest says what a file contains; folders are for people and for tools that read a whole folder.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

NAME_CHARACTERS_MAX: Final = 120  # of a folder; file systems end at 255 bytes, object keys at 1024 in all
_KEPT: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_LOOKS_ESCAPED: Final = re.compile(r"_(?=x[0-9A-F]{2})")


def state_folder(uid: str, state: str) -> str:
    """Relative path of the folder of one state of one operator.

    >>> state_folder("orders/é", "last-seen")
    'orders_x2F_xC3_xA9/last-seen'
    """
    return f"{escaped(uid)}/{escaped(state)}"


def file_hint(uid: str, state: str, suffix: str) -> str:
    """Path of such a file without the random part, which the `StateWriter` adds.

    >>> file_hint("orders", "last-seen", "arrow")
    'orders/last-seen/part.arrow'
    """
    return f"{state_folder(uid, state)}/part.{suffix}"


def escaped(name: str) -> str:
    """`name` as a folder name: letters, digits, ``-``, ``_`` and single inner dots are kept; each UTF-8 byte
    of any other character becomes ``_x`` and two hex digits. A name that is too long is cut and ends in ``_``
    and 16 hex digits of its SHA-256.

    >>> escaped("..."), escaped("_x2F"), len(escaped("a" * 500))
    ('_x2E_x2E_x2E', '_x5Fx2F', 120)
    """
    text = _LOOKS_ESCAPED.sub("_x5F", name)
    made = "".join(
        character
        if character in _KEPT and not (character == "." and _is_bad_dot(text, place))
        else "".join(f"_x{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
        for place, character in enumerate(text)
    )
    if len(made) <= NAME_CHARACTERS_MAX:
        return made
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{made[: NAME_CHARACTERS_MAX - 17]}_{digest}"


def _is_bad_dot(text: str, place: int) -> bool:
    """Whether the dot is at either end or next to another one, where it has a meaning for file systems."""
    inner = 0 < place < len(text) - 1
    return not inner or text[place - 1] == "." or text[place + 1] == "."
