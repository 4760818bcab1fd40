"""The sinks of a pipeline as Dagster assets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg

from unistream.base.errors import ConfigError
from unistream.dagster.report import SINK_METADATA


def sink_asset(key: str | Sequence[str], *, sink_uid: str, **spec: Any) -> dg.AssetSpec:
    """An asset that the sink with uid `sink_uid` writes; `spec`: further arguments of `dg.AssetSpec`.

    >>> sink_asset("orders", sink_uid="lake").metadata["unistream/sink_uid"]
    'lake'
    """
    metadata = {**spec.pop("metadata", {}), SINK_METADATA: sink_uid}
    kinds = {"unistream", *spec.pop("kinds", ())}
    return dg.AssetSpec(key, metadata=metadata, kinds=kinds, **spec)


def unistream_assets(
    *, specs: Sequence[dg.AssetSpec], name: str | None = None, **options: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Declares the tables that one pipeline writes; the function yields from `UnistreamResource.run`.

    One job writes all of them, so they are materialised together; limit the pool `unistream_<name>` to 1, so
    that no two runs write at the same time. A retry policy is refused: after a termination Dagster would
    start the step again, and the run would end as a success.

    Args:
        specs: At least one, created by `sink_asset`.
        name: Name of the step and the job; default: the function's name.
        options: Further arguments of `dg.multi_asset`.

    Raises:
        ConfigError: no specs, a spec without a sink's uid, or a retry policy.

    Example:
        @unistream_assets(specs=[sink_asset("orders", sink_uid="lake")])
        def orders(context: dg.AssetExecutionContext, unistream: UnistreamResource):
            yield from unistream.run(context, build_orders)
    """
    if not specs:
        raise ConfigError("unistream_assets needs at least one asset spec")
    for spec in specs:
        if SINK_METADATA not in spec.metadata:
            asset = spec.key.to_user_string()
            raise ConfigError(f"asset {asset} has no sink: create its spec with sink_asset(...)")
    if options.get("retry_policy") is not None:
        raise ConfigError(
            "a streaming asset takes no retry_policy: the job restarts itself (restart-strategy.type), "
            "and a step that is retried after a termination would end as a success"
        )

    def decorate(function: Callable[..., Any]) -> dg.AssetsDefinition:
        step = name or function.__name__
        options.setdefault("pool", f"unistream_{step}")
        return dg.multi_asset(specs=specs, name=step, **options)(function)

    return decorate
