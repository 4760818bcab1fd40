"""How many examples a property is tried with: few, and the same ones, in the gate; many new ones at night.

A number in a test (``@settings(max_examples=5)``) is that of the gate, and at most IN_THE_GATE there. At
night it is AT_NIGHT times as many. That holds for state machines, too. What `@example` names is always tried.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

IN_THE_GATE: Final = 25
AT_NIGHT: Final = 20
BUSY: Final = [HealthCheck.too_slow]  # how fast examples are made says how busy the machine is


def register_profiles() -> None:
    """A change is judged by the same examples every time; the profile "random" looks for new ones."""
    same = settings(max_examples=IN_THE_GATE, derandomize=True, deadline=None, suppress_health_check=BUSY)
    settings.register_profile("same", same)
    settings.register_profile("random", same, max_examples=IN_THE_GATE * AT_NIGHT, derandomize=False)
    settings.load_profile("same")


def scaled(given: settings) -> settings:
    """The same, with as many examples as this run tries."""
    number = min(given.max_examples, IN_THE_GATE)
    return settings(given, max_examples=number if settings.default.derandomize else number * AT_NIGHT)


def scale(items: list[pytest.Item]) -> None:
    """Each property of `items` that names a number of examples, once: rows of a table share it."""
    done: set[Any] = set()
    for item in items:
        if not is_hypothesis_test(getattr(item, "obj", None)):
            continue
        function = getattr(item.obj, "__func__", item.obj)  # type: ignore[attr-defined]
        machine = getattr(item, "cls", None) if hasattr(function, "_hypothesis_state_machine_class") else None
        owner, name = (machine, "settings") if machine else (function, "_hypothesis_internal_use_settings")
        if owner not in done and getattr(owner, name, None) is not None:
            done.add(owner)
            setattr(owner, name, scaled(getattr(owner, name)))
