"""Pipelines as Dagster assets: a resource that runs them and a decorator that declares their tables."""

from __future__ import annotations

from dagster_shared.libraries import DagsterLibraryRegistry

from unistream import __version__
from unistream.dagster.assets import sink_asset, unistream_assets
from unistream.dagster.resource import UnistreamResource

__all__ = ["UnistreamResource", "sink_asset", "unistream_assets"]

DagsterLibraryRegistry.register("dagster-unistream", __version__, is_dagster_package=False)
