"""The choices of a run, as one of its tags, by which its job is ended when its process is gone. Its log says
the same to people.

A run may have another `on_terminate` than the resource of the code location: of its own configuration, or
since the code has been deployed again meanwhile.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Final, cast, get_args

from unistream.dagster.run.attached import EndPolicy, OnTerminate, SavepointFormat
from unistream.dagster.run.metadata import HIDDEN

POLICY_TAG: Final = f"{HIDDEN}policy"

EARLIER_POLICY_TAG: Final = "unistream/policy"
"""The tag that runs of earlier versions have instead of `POLICY_TAG`."""

_DIRECTORY: Final = "savepoint_dir"  # the last one: it is the only one with any characters
_PART: Final = re.compile(r"(\w+)=([^,]*)(?:, |$)")


def written(chosen: Mapping[str, str], policy: EndPolicy) -> str:
    """The choices as the text of the tag.

    Args:
        chosen: How the run comes to its job, and how long it lasts.
        policy: How it ends its job.

    >>> ends = EndPolicy(on_terminate="drain", savepoint_dir=None, timeout_s=90.0)
    >>> written({"mode": "attached"}, ends)
    'mode=attached, on_terminate=drain, terminate_timeout_s=90, savepoint_format=canonical'
    """
    parts = {
        **chosen,
        "on_terminate": policy.on_terminate,
        "terminate_timeout_s": f"{policy.timeout_s:g}",
        "savepoint_format": policy.savepoint_format,
        **({_DIRECTORY: policy.savepoint_dir} if policy.savepoint_dir else {}),
    }
    return ", ".join(f"{name}={value}" for name, value in parts.items())


def end_policy_of(tags: Mapping[str, str], resource: EndPolicy) -> EndPolicy:
    """How the run of these tags ends its job. `resource`: what counts where the tag does not say it, as that
    of a run of an earlier version, or says what cannot be.

    >>> ends = EndPolicy(on_terminate="cancel", savepoint_dir="s3://here", timeout_s=5.0)
    >>> end_policy_of({POLICY_TAG: "on_terminate=drain, terminate_timeout_s=soon"}, ends)
    ... # doctest: +NORMALIZE_WHITESPACE
    EndPolicy(on_terminate='drain', savepoint_dir='s3://here', timeout_s=5.0, savepoint_format='canonical')
    """
    text = tags.get(POLICY_TAG) or tags.get(EARLIER_POLICY_TAG, "")
    before, _, directory = text.partition(f", {_DIRECTORY}=")
    parts = dict(_PART.findall(before))
    found = resource
    if parts.get("on_terminate") in get_args(OnTerminate):
        found = dataclasses.replace(found, on_terminate=cast(OnTerminate, parts["on_terminate"]))
    if parts.get("savepoint_format") in get_args(SavepointFormat):
        form = cast(SavepointFormat, parts["savepoint_format"])
        # only a tag with a format names the folder, if there is one
        found = dataclasses.replace(found, savepoint_format=form, savepoint_dir=directory or None)
    timeout_s = _seconds(parts.get("terminate_timeout_s", ""))
    return found if timeout_s is None else dataclasses.replace(found, timeout_s=timeout_s)


def _seconds(text: str) -> float | None:
    """None: it is no duration."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
