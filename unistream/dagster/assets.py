"""The sinks of a pipeline as Dagster assets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from unistream.base.errors import ConfigError
from unistream.dagster.report import SINK_METADATA
from unistream.port.sink import Sink


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
        ConfigError: no specs, a spec without a sink's uid, two for one sink, partitions, or a retry policy.

    Example:
        @unistream_assets(specs=[sink_asset("orders", sink_uid="lake")])
        def orders(context: dg.AssetExecutionContext, unistream: UnistreamResource):
            yield from unistream.run(context, build_orders)
    """
    if not specs:
        raise ConfigError("unistream_assets needs at least one asset spec")
    _check_specs(specs)
    if options.get("partitions_def") is not None or any(spec.partitions_def is not None for spec in specs):
        raise ConfigError(
            "a streaming asset takes no partitions_def: one job writes all of its table; leave it out"
        )
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


def check_sinks(specs: Sequence[dg.AssetSpec], sinks: Mapping[str, Sink]) -> None:
    """Raises ConfigError: an asset names a sink that the pipeline does not have."""
    for spec in specs:
        uid = spec.metadata[SINK_METADATA]
        if uid not in sinks:
            has = f"it has {', '.join(map(repr, sorted(sinks)))}" if sinks else "it has none"
            raise ConfigError(
                f"asset {spec.key.to_user_string()}: the pipeline has no sink with the uid {uid!r}; {has}"
            )


def _check_specs(specs: Sequence[dg.AssetSpec]) -> None:
    assets: dict[str, str] = {}
    for spec in specs:
        asset = spec.key.to_user_string()
        if SINK_METADATA not in spec.metadata:
            raise ConfigError(f"asset {asset} has no sink: create its spec with sink_asset(...)")
        other = assets.setdefault(spec.metadata[SINK_METADATA], asset)
        if other != asset:
            raise ConfigError(
                f"assets {other} and {asset} name the same sink {spec.metadata[SINK_METADATA]!r}: each asset "
                "is written by a sink of its own"
            )
