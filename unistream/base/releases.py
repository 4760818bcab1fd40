"""Which installations work together: two series have no format of code, state and messages in common.

0.1.0 | 0.1.4      one series, the first two numbers: together, whichever is the newer one
0.1.4 | 0.2.0      not together
3.11.2 | 3.11.9    of Python the same: code of a pipeline is pickled by one, and opened by the other
"""

from __future__ import annotations

import platform
import re
from typing import Final, NamedTuple

from unistream.base.errors import ConfigError

SILENT: Final = "0.1.0"
"""The last version whose processes did not say which they are of: who says nothing is of that one."""

SHOWN_CHARS: Final = 40  # of a version that another process has sent
_SERIES: Final = re.compile(r"(\d+)\.(\d+)(?!\d)")


class Release(NamedTuple):
    """What is installed somewhere. `python`: "": it is not known, or does not matter."""

    version: str
    python: str = ""

    def __str__(self) -> str:
        python = f" and Python {self.python[:SHOWN_CHARS]}" if self.python else ""
        return f"unistream {self.version[:SHOWN_CHARS]}{python}"


def own_release() -> Release:
    """That of this process."""
    from unistream import __version__

    return Release(__version__, platform.python_version())


def series(version: str) -> str:
    """What has to be the same: the first two numbers; of a text without numbers all of it.

    >>> series("0.1.4"), series("0.2.0rc1"), series("1.10.0"), series("a checkout")
    ('0.1', '0.2', '1.10', 'a checkout')
    """
    found = _SERIES.match(version)
    return found[0] if found else version


def is_together(one: str, other: str) -> bool:
    """Whether processes of these two versions work together.

    >>> is_together("0.1.0", "0.1.4"), is_together("0.1.0", "0.2.0"), is_together("1.10.0", "1.1.0")
    (True, False, False)
    """
    return series(one) == series(other)


def refusal(there: Release, here: Release, *, who: str, whom: str) -> str | None:
    """Why a process that asks is refused, in one sentence; None: it is not.

    Args:
        there: Of the one that asks.
        here: Of the one that answers.
        who: The one that asks, with its host.
        whom: The one that answers.
    """
    other_version = not is_together(there.version, here.version)
    other_python = bool(there.python and here.python) and not is_together(there.python, here.python)
    if not (other_version or other_python):
        return None
    if not other_python:
        there, here = Release(there.version), Release(here.version)
    with_python = f" with Python {series(here.python)}" if other_python else ""
    return (
        f"{who} has {there}, and {whom} has {here}: the first two numbers have to be the same; install "
        f"unistream {series(here.version)}.*{with_python} there, or use another cluster"
    )


def check_release(there: Release, *, who: str, whom: str) -> None:
    """Raises ConfigError: this process does not work together with that one, see `refusal`."""
    why = refusal(there, own_release(), who=who, whom=whom)
    if why is not None:
        raise ConfigError(why)
