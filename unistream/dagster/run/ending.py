"""A stream that was stopped in order is no failed step.

A run counts as CANCELED if an interruption comes out of its executor. If it comes out of a step, Dagster logs
that as STEP_FAILURE with a stack trace, whatever the step has done before. So the step ends as a success,
with materialisations of what its job has written, and a hook behind it interrupts the run: no other step
begins.
"""

from __future__ import annotations

from typing import Final

import dagster as dg

_STOPPED: Final[dict[str, str]] = {}
"""Sentences by id of the run: a step and its hooks are in one process, and on one thread."""

NAME: Final = "unistream_terminated"


@dg.success_hook(name=NAME)
def terminated(context: dg.HookContext) -> None:
    """Raises dg.DagsterExecutionInterruptedError: the run was terminated, and the step has ended in order."""
    text = _STOPPED.pop(context.run_id, None)
    if text is not None:
        raise dg.DagsterExecutionInterruptedError(text)


def has_hook(context: dg.AssetExecutionContext) -> bool:
    """The step may end as a success although its run was terminated."""
    return any(hook.name == NAME for hook in context.assets_def.hook_defs)


def stopped(run_id: str, text: str) -> None:
    """The step ends in order now, since its run was terminated. `text`: what it has left."""
    _STOPPED[run_id] = text
