"""How a pipeline's lineage becomes Dagster's assets: sinks are assets, data sets of sources what is upstream.

pipeline ──► LineageGraph ──► UnistreamTranslator ──► an AssetSpec of each sink, with deps
│
└────────────► AssetSpecs of what it reads, without a run here
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import dagster as dg

from unistream.api.described import described
from unistream.api.environment import Environment
from unistream.api.upgrade import code_version
from unistream.base.config import Configuration
from unistream.base.config_file import LayeredConfig
from unistream.base.errors import ConfigError
from unistream.base.ids import OperatorUid
from unistream.dagster.run.metadata import COLUMN_SCHEMA, SINK_METADATA, table_schema
from unistream.model.lineage import LineageDataset, LineageGraph, SinkLineage, SourceLineage

COLUMN_LINEAGE: Final = "dagster/column_lineage"
URI: Final = "dagster/uri"
TABLE_NAME: Final = "dagster/table_name"
STORAGE_KIND: Final = "dagster/storage_kind"

TOPICS: Final = "kafka"
"""System of topics, and the prefix of their keys."""

_KINDS: Final = {
    "delta": "deltalake",
    "iceberg": "iceberg",
    "json": "json",
    "parquet": "parquet",
    "csv": "csv",
}
NAMED_MAX: Final = 12
"""Operators that a description names."""

_SUFFIXES: Final = (".csv", ".json", ".jsonl", ".parquet")
_NOT_IN_KEYS: Final = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTranslatorData:
    """A data set that a pipeline reads.

    Attributes:
        source: That reads it; one source may read several.
    """

    dataset: LineageDataset
    source: SourceLineage


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTranslatorData:
    """A sink of a pipeline.

    Attributes:
        pipeline: All ends of it.
    """

    sink: SinkLineage
    pipeline: LineageGraph

    @property
    def upstream(self) -> list[SourceTranslatorData]:
        """What its rows come from, without what the pipeline writes itself (a history of its own)."""
        own = {dataset.uri for sink in self.pipeline.sinks for dataset in sink.datasets}
        sources = [self.pipeline.source(uid) for uid in self.sink.sources]
        found = [
            SourceTranslatorData(dataset=dataset, source=source)
            for source in sources
            for dataset in source.datasets
        ]
        return [data for data in found if data.dataset.uri not in own]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTranslatorData:
    """A check of a stream.

    Attributes:
        asset: That it is of.
        name: Of the check, such as ``lag``.
        description: What passes it.
    """

    asset: dg.AssetSpec
    name: str
    description: str


class UnistreamTranslator:
    """How the ends of a pipeline become assets; override what should differ.

    Example:
        class InLayers(UnistreamTranslator):
            def get_asset_spec(self, data):
                spec = super().get_asset_spec(data)
                return spec.replace_attributes(key=spec.key.with_prefix("silver"), owners=["team:data"])
    """

    def get_asset_spec(self, data: SinkTranslatorData) -> dg.AssetSpec:
        """The asset that a sink writes, with columns, their lineage, and deps as far as they are known. Its
        key has the last two parts of the path of the table or folder, such as ``lake/orders`` of
        ``s3://lake/orders``; of a sink that does not say what it writes it is the uid."""
        sink = data.sink
        metadata: dict[str, Any] = {SINK_METADATA: str(sink.uid), **_place(sink.datasets)}
        if sink.schema is not None:
            metadata[COLUMN_SCHEMA] = table_schema(sink.schema)
        lineage = self._column_lineage(data)
        if lineage.deps_by_column:
            metadata[COLUMN_LINEAGE] = lineage
        return dg.AssetSpec(
            key=_key(sink.datasets, sink.uid),
            deps=self._deps(data),
            description=_description(data),
            kinds={"unistream", *_kinds(sink.datasets)},
            metadata=metadata,
        )

    def get_source_asset_spec(self, data: SourceTranslatorData) -> dg.AssetSpec:
        """What a pipeline reads, as an asset that others write. The key of a topic is ``kafka/TOPIC``, that
        of a path the same as of a sink, so that a table which another pipeline writes is upstream."""
        metadata: dict[str, Any] = {**_place([data.dataset])}
        if data.source.schema is not None:
            metadata[COLUMN_SCHEMA] = table_schema(data.source.schema)
        kinds = set(_kinds([data.dataset]))
        return dg.AssetSpec(key=_key([data.dataset], data.source.uid), kinds=kinds, metadata=metadata)

    def get_asset_check_spec(self, data: CheckTranslatorData) -> dg.AssetCheckSpec:
        """A check of `build_stream_checks`; another name, an automation condition, or ``blocking``."""
        return dg.AssetCheckSpec(data.name, asset=data.asset.key, description=data.description)

    def _deps(self, data: SinkTranslatorData) -> list[dg.AssetKey]:
        return sorted({self.get_source_asset_spec(upstream).key for upstream in data.upstream})

    def _column_lineage(self, data: SinkTranslatorData) -> dg.TableColumnLineage:
        keys: dict[OperatorUid, set[dg.AssetKey]] = {}
        for upstream in data.upstream:
            keys.setdefault(upstream.source.uid, set()).add(self.get_source_asset_spec(upstream).key)
        found: dict[str, list[dg.TableColumnDep]] = {}
        for column, origins in data.sink.columns.items():
            deps = [
                dg.TableColumnDep(asset_key=key, column_name=name)
                for uid, name in sorted(origins)
                for key in sorted(keys.get(uid, ()))
            ]
            if deps:
                found[column] = deps
        return dg.TableColumnLineage(deps_by_column=found)


def build_unistream_asset_specs(
    build: Callable[[Environment], None], *, translator: UnistreamTranslator | None = None
) -> list[dg.AssetSpec]:
    """The assets that a pipeline writes: one for each sink with a uid.

    The pipeline is built, and not run. Sinks do not look at their tables. Of a source that cannot read its
    columns now (its table is not there yet) nothing but its place is known.

    Args:
        build: Adds the pipeline to the environment.
        translator: None: `UnistreamTranslator()`.

    Raises:
        ConfigError: the pipeline is wrong; a sink of a table or folder has no uid; there is no sink with
            one; or the translator gives two sinks the same key.
    """
    graph, version = _described(build)
    translator = translator or UnistreamTranslator()
    of_sinks = {
        sink.uid: _versioned(
            translator.get_asset_spec(SinkTranslatorData(sink=sink, pipeline=graph)), version
        )
        for sink in graph.sinks
        if _is_asset(sink)
    }
    if not of_sinks:
        raise ConfigError(
            "no sink of the pipeline has a uid, by which its asset is found: give each one "
            'sink_to(...).uid("...")'
        )
    _check_keys(of_sinks)
    sources = [(source, dataset) for source in graph.sources for dataset in source.datasets]
    _check_sources([SourceTranslatorData(dataset=one, source=source) for source, one in sources], translator)
    return list(of_sinks.values())


def build_source_asset_specs(
    *builds: Callable[[Environment], None], translator: UnistreamTranslator | None = None
) -> list[dg.AssetSpec]:
    """What pipelines read and none of them writes, each once: topics, tables, folders, as external assets.

    Raises:
        ConfigError: a pipeline is wrong, or the translator gives two the same key whose names differ only in
            characters that keys do not have.
    """
    translator = translator or UnistreamTranslator()
    graphs = [lineage_of(build) for build in builds]
    written = {dataset.uri for graph in graphs for sink in graph.sinks for dataset in sink.datasets}
    sources = [
        SourceTranslatorData(dataset=dataset, source=source)
        for source in chain.from_iterable(graph.sources for graph in graphs)
        for dataset in source.datasets
        if dataset.uri not in written
    ]
    _check_sources(sources, translator)
    found: dict[dg.AssetKey, dg.AssetSpec] = {}
    for data in sources:
        spec = translator.get_source_asset_spec(data)
        found.setdefault(spec.key, spec)
    return list(found.values())


def lineage_of(build: Callable[[Environment], None]) -> LineageGraph:
    """The lineage of a pipeline that is built to be described. Raises ConfigError."""
    env = Environment(LayeredConfig(Configuration()))
    with described():
        build(env)
        return env.lineage()


def _described(build: Callable[[Environment], None]) -> tuple[LineageGraph, str | None]:
    """A pipeline's lineage and the version of its code. None: it is not known, or would change by itself once
    a source finds its table."""
    env = Environment(LayeredConfig(Configuration()))
    with described():
        build(env)
        graph = env.lineage()
        is_known = all(source.schema is not None for source in graph.sources)
        return graph, code_version(env) if is_known else None


def _versioned(spec: dg.AssetSpec, version: str | None) -> dg.AssetSpec:
    """The spec with the version of its pipeline, unless the translator gives one: so Dagster shows that the
    code has changed since the asset was materialised."""
    if version is None or spec.code_version is not None:
        return spec
    return spec.replace_attributes(code_version=version)


def _check_keys(specs: Mapping[OperatorUid, dg.AssetSpec]) -> None:
    """Checks that each sink has an asset key of its own. Raises ConfigError."""
    seen: dict[dg.AssetKey, OperatorUid] = {}
    for uid, spec in specs.items():
        other = seen.setdefault(spec.key, uid)
        if other != uid:
            raise ConfigError(
                f"sinks {other!r} and {uid!r} have the same asset key {spec.key.to_user_string()}: let "
                "get_asset_spec of the translator give each its own"
            )
    for uid, spec in specs.items():
        own = [dep.asset_key.to_user_string() for dep in spec.deps if dep.asset_key in seen]
        if own:
            raise ConfigError(
                f"the asset of sink {uid!r} depends on {own[0]}, the key of what the pipeline writes itself: "
                "let get_source_asset_spec of the translator give what it reads another key"
            )


def _check_sources(sources: Iterable[SourceTranslatorData], translator: UnistreamTranslator) -> None:
    """Raises ConfigError: two that differ would be one asset, since keys do not have all characters."""
    seen: dict[dg.AssetKey, LineageDataset] = {}
    for data in sources:
        key = translator.get_source_asset_spec(data).key
        other = seen.setdefault(key, data.dataset)
        parts = [_key_parts([dataset], data.source.uid) for dataset in (other, data.dataset)]
        if parts[0] != parts[1] and _cleaned(parts[0]) == _cleaned(parts[1]):
            raise ConfigError(
                f"{other.uri} and {data.dataset.uri} have the same asset key {key.to_user_string()}: let "
                "get_source_asset_spec of the translator give each its own"
            )


def _is_asset(sink: SinkLineage) -> bool:
    """Whether the sink is shown as an asset. Raises ConfigError: it writes a table and has no uid."""
    if sink.has_uid:
        return True
    if sink.datasets:
        raise ConfigError(
            f"sink {sink.name!r} ({sink.datasets[0].uri}) has no uid, by which its asset is found: "
            'sink_to(...).uid("...")'
        )
    return False  # such as print()


def _key(datasets: Sequence[LineageDataset], otherwise: str) -> dg.AssetKey:
    """The asset key of the first data set, or `otherwise`: two pipelines that name the same one have the same
    key."""
    return dg.AssetKey(_cleaned(_key_parts(datasets, otherwise)))


def _cleaned(parts: Sequence[str]) -> list[str]:
    return [_NOT_IN_KEYS.sub("_", part) for part in parts]


def _key_parts(datasets: Sequence[LineageDataset], otherwise: str) -> list[str]:
    if not datasets:
        return [otherwise]
    system, _, host = datasets[0].namespace.partition("://")
    if system == TOPICS:
        return [TOPICS, datasets[0].name]
    parts = [host, *datasets[0].name.split("/")]
    folder, last = ["", *(part for part in parts if part)][-2:]
    for suffix in _SUFFIXES:
        last = last.removesuffix(suffix)
    return [folder, last] if folder else [last]


def _kinds(datasets: Iterable[LineageDataset]) -> list[str]:
    found = []
    for dataset in datasets:
        is_topic = dataset.namespace.startswith(f"{TOPICS}://")
        kind = TOPICS if is_topic else _KINDS.get(dataset.format)
        if kind is not None:
            found.append(kind)
    return found[:1]


def _place(datasets: Sequence[LineageDataset]) -> Mapping[str, str]:
    """URI, and the name of a table in a catalogue or a database. A table that is a folder has none."""
    if not datasets:
        return {}
    first = datasets[0]
    system, _, catalogue = first.namespace.partition("://")
    if system == "iceberg":
        return {URI: first.uri, TABLE_NAME: f"{catalogue}.{first.name}", STORAGE_KIND: system}
    if system == "postgres":
        return {URI: first.uri, TABLE_NAME: first.name, STORAGE_KIND: system}
    return {URI: first.uri}


def _description(data: SinkTranslatorData) -> str:
    """What its rows are, by the graph."""
    sink = data.sink
    if sink.dead_letters_of is not None:
        return (
            f"What {sink.dead_letters_of!r} could not decode or process: each row or record with the reason."
        )
    names = list(sink.operators)
    if len(names) > NAMED_MAX:
        names = [*names[: NAMED_MAX - 1], "…", names[-1]]
    way = " → ".join([", ".join(data.pipeline.source(uid).name for uid in sink.sources), *names])
    if sink.side_output_of is None:
        return way
    operator, tag = sink.side_output_of
    return f"Side output {tag!r} of {operator!r}: {way}"
