"""The sinks of a pipeline as Dagster assets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import dagster as dg

from unistream.api.environment import Environment
from unistream.base.errors import ConfigError
from unistream.dagster.run.ending import terminated
from unistream.dagster.run.launch_config import launch_options
from unistream.dagster.run.metadata import SINK_METADATA
from unistream.dagster.run.translator import UnistreamTranslator, build_unistream_asset_specs
from unistream.port.sink import ReplacesRows, Sink

STEP_CHARS_MAX: Final = 200  # it is the name of the job, and in that of the link to it


def sink_asset(key: str | Sequence[str], *, sink_uid: str, **spec: Any) -> dg.AssetSpec:
    """An asset that the sink with uid `sink_uid` writes; `spec`: further arguments of `dg.AssetSpec`.

    >>> sink_asset("orders", sink_uid="lake").metadata["unistream/sink_uid"]
    'lake'
    """
    metadata = {**spec.pop("metadata", {}), SINK_METADATA: sink_uid}
    kinds = {"unistream", *spec.pop("kinds", ())}
    return dg.AssetSpec(key, metadata=metadata, kinds=kinds, **spec)


def unistream_assets(
    build: Callable[[Environment], None] | None = None,
    *,
    specs: Sequence[dg.AssetSpec] | None = None,
    translator: UnistreamTranslator | None = None,
    name: str | None = None,
    bounded: bool = False,
    **options: Any,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Declares the tables that one pipeline writes; the function yields from `UnistreamResource.run`.

    One job writes all of them, so they are materialised together; limit the pool `unistream_<name>` to 1, so
    that no two runs write at the same time. A launch may set `resume`, `on_running`, `mode`, `on_terminate`
    and `config` of the resource for its run, as config of the step, unless the function has a `config`. A
    retry policy is refused: after a termination Dagster would start the step again, and the run would end as
    a success.

    Args:
        build: Adds the pipeline to the environment; the assets are those of `build_unistream_asset_specs`.
        specs: Instead of `build`: at least one, created by `sink_asset` or a translator.
        translator: With `build`: how its ends become assets; None: `UnistreamTranslator()`.
        name: Name of the step and the job; default: the function's name.
        bounded: The pipeline ends, and each run writes the partition of that run: only then there may be a
            `partitions_def`. A run whose pipeline does not end, or whose sinks would add the rows of a
            partition a second time, fails before anything is started.
        options: Further arguments of `dg.multi_asset`.

    Raises:
        ConfigError: neither or both of `build` and `specs`, a spec without a sink's uid, two for one sink or
            of one key, partitions without `bounded`, or a retry policy; from `build`, as
            `build_unistream_asset_specs`.

    Example:
        @unistream_assets(build_orders)
        def orders(context: dg.AssetExecutionContext, unistream: UnistreamResource):
            yield from unistream.run(context, build_orders)
    """
    if build is not None:
        if specs is not None:
            raise ConfigError("unistream_assets takes the pipeline or the specs of its assets, not both")
        specs = build_unistream_asset_specs(build, translator=translator)
    elif translator is not None:
        raise ConfigError("unistream_assets: a translator needs the pipeline: unistream_assets(build, …)")
    if not specs:
        raise ConfigError("unistream_assets needs the pipeline, or at least one asset spec")
    _check_specs(specs)
    partitioned = [options.get("partitions_def"), *(spec.partitions_def for spec in specs)]
    if not bounded and any(one is not None for one in partitioned):
        raise ConfigError(
            "a streaming asset takes no partitions_def: one job writes all of its table; leave it out, or, "
            "for a pipeline that ends and writes the partition of its run, declare bounded=True"
        )
    if options.get("retry_policy") is not None:
        raise ConfigError(
            "a streaming asset takes no retry_policy: the job restarts itself (restart-strategy.type), "
            "and a step that is retried after a termination would end as a success"
        )
    return _decorator(list(specs), name, options)


def _decorator(
    specs: list[dg.AssetSpec], name: str | None, options: dict[str, Any]
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    def decorate(function: Callable[..., Any]) -> dg.AssetsDefinition:
        step = name or function.__name__
        if len(step) > STEP_CHARS_MAX:
            raise ConfigError(
                f"step {step!r:.60}: its name has {len(step)} of at most {STEP_CHARS_MAX} characters"
            )
        options.setdefault("pool", f"unistream_{step}")
        launch = launch_options(function, options)
        hooks = {terminated, *(options.pop("hooks", None) or ())}
        return dg.multi_asset(specs=specs, name=step, hooks=hooks, **launch, **options)(function)

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


def check_partition(context: dg.AssetExecutionContext, env: Environment) -> None:
    """Checks the pipeline of a run that materialises partitions. Raises ConfigError: its job would never end,
    or would add the rows of a partition that is there already."""
    if not (context.has_partition_key or context.has_partition_key_range):
        return
    if not env.is_bounded():
        raise ConfigError(
            "a run of one partition needs a pipeline that ends, and a source of this one has no end: read "
            "the partition alone, from a source that is bounded"
        )
    sinks = env.sinks()
    for spec in context.assets_def.specs:
        sink = sinks[spec.metadata[SINK_METADATA]]
        if not (isinstance(sink, ReplacesRows) and sink.replaces_rows):
            raise ConfigError(
                f"asset {spec.key.to_user_string()} has partitions, and its sink would add the rows of one "
                "that is materialised again: give the sink mode='overwrite-partitions', or mode='upsert' and "
                "a key"
            )


def _check_specs(specs: Sequence[dg.AssetSpec]) -> None:
    assets: dict[str, str] = {}
    outputs: dict[str, str] = {}
    for spec in specs:
        asset = spec.key.to_user_string()
        if SINK_METADATA not in spec.metadata:
            raise ConfigError(f"asset {asset} has no sink: create its spec with sink_asset(...)")
        sink = spec.metadata[SINK_METADATA]
        if asset in assets.values():
            raise ConfigError(f"two specs have the key {asset}: give each its own")
        other = outputs.setdefault(spec.key.to_python_identifier(), asset)
        if other != asset:
            raise ConfigError(
                f"assets {other} and {asset} are one name of an output to Dagster, "
                f"{spec.key.to_python_identifier()}: give one of them another key"
            )
        if sink in assets:
            raise ConfigError(
                f"assets {assets[sink]} and {asset} name the same sink {sink!r}: each asset is written by a "
                "sink of its own"
            )
        assets[sink] = asset
