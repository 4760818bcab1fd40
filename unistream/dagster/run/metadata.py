"""What the metadata of events says of a job, in the order of the questions that people have: pure.

how many rows, how far behind     rows, records behind, watermark, lag, age of the last checkpoint
is it well                        late rows, dead letters, restarts
where do I look                   the job, its page, savepoints, offsets
which one was it                  versions, ids, numbers: as text, since a plot of them says nothing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import dagster as dg
import pyarrow as pa

from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.dagster.run.savepoints import savepoints_of
from unistream.dagster.run.seen import newest_in
from unistream.model.job_info import JobInfo, SinkInfo
from unistream.model.metric_names import user_metrics_of
from unistream.model.positions import SourcePositions

HIDDEN: Final = ".dagster/unistream_"
"""Beginning of tags of runs that Dagster's pages do not show; a run that is repeated from there has no copy
of them."""

SINK_METADATA: Final = "unistream/sink_uid"
"""Metadata key of an AssetSpec: the uid of the sink that writes this asset."""

SAVEPOINT_TAG: Final = "unistream/savepoint"
"""Tag of a run: the snapshot that its job has left. Also metadata: the newest savepoint from which a job can
go on."""

NO_SAVEPOINT: Final = "none yet"
"""Value of that tag, of a run that has the copy of another one's."""

TERMINAL_SAVEPOINT: Final = "unistream/terminal_savepoint"
"""Metadata: the savepoint after the end of data that a drain has taken, from which no job goes on."""

JOB: Final = "unistream/job_id"

PAGE: Final = "unistream/job_page"
"""Metadata: where the web UI shows the job; of a cluster that ends with its run as long as that lasts."""

STATE: Final = "unistream/state"
"""Metadata of an observation: what the job is at."""

SEQ: Final = "unistream/outbox_seq"
"""Metadata of an event: the last commit in it."""

LAG: Final = "unistream/lag_s"
TABLE_VERSION: Final = "unistream/table_version"

OPERATION_METADATA: Final = "unistream/operation"
"""Metadata of a job of Dagster that stops a stream or takes its savepoint: the name of the stream's job."""

BACKFILL_METADATA: Final = "unistream/backfill_of"
"""Metadata key of an AssetSpec: the name of the job whose table it computes again."""

COLUMN_SCHEMA: Final = "dagster/column_schema"
ROW_COUNT: Final = "dagster/row_count"

ORDER: Final = (
    STATE,
    "unistream/new_rows",
    "unistream/rows",
    ROW_COUNT,
    "unistream/records_behind",
    "unistream/watermark",
    LAG,
    "unistream/checkpoint_age_s",
    "unistream/late_rows",
    "unistream/dead_letters",
    "unistream/skipped_rows",
    "unistream/commits_not_kept",
    "unistream/restarts",
    JOB,
    PAGE,
    SAVEPOINT_TAG,
    TERMINAL_SAVEPOINT,
    "unistream/metrics",
    "unistream/late_rows_by_operator",
    "unistream/out_of_order_rows",
    "unistream/dead_letters_by_operator",
    "unistream/skipped_rows_by_operator",
    "unistream/offsets",
    TABLE_VERSION,
    "unistream/checkpoint_id",
    "unistream/checkpoints",
    "unistream/new_commits",
    "unistream/commits",
    SEQ,
    COLUMN_SCHEMA,
)
"""The keys of the metadata in the order in which Dagster shows them."""

NUMBERS: Final = frozenset(
    {
        TABLE_VERSION,
        "unistream/fence_version",
        "unistream/checkpoint_id",
        "unistream/checkpoints",
        "unistream/commits",
        SEQ,
    }
)
"""Keys whose values name something, or only ever rise: text, so that Dagster draws no plot of them."""

_YEAR_9999_MS: Final = 253_370_764_800_000  # Dagster shows timestamps up to it


def ordered(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata in the `ORDER`, with `NUMBERS` as text.

    >>> ordered({"unistream/outbox_seq": 7, "mine": 1, "unistream/rows": 5})
    {'unistream/rows': 5, 'unistream/outbox_seq': '7', 'mine': 1}
    """
    known = [key for key in ORDER if key in metadata]
    rest = [key for key in metadata if key not in ORDER]
    return {key: str(metadata[key]) if key in NUMBERS else metadata[key] for key in [*known, *rest]}


def asset_metadata(spec: dg.AssetSpec, info: JobInfo, now_ms: int, page: str | None = None) -> dict[str, Any]:
    """The job's figures and those of the sink that writes this asset."""
    metadata = job_metadata(info, now_ms, page)
    sink = info.sinks.get(spec.metadata.get(SINK_METADATA, ""))
    if sink is not None:
        metadata |= {"unistream/rows": sink.rows, "unistream/commits": sink.commits}
        metadata |= positions_metadata(sink.positions) | table_rows_metadata(sink)
        if sink.table_version is not None:
            metadata[TABLE_VERSION] = sink.table_version
    return ordered(metadata)


def table_rows_metadata(sink: SinkInfo | None) -> dict[str, Any]:
    """Rows of the whole table after the newest commit; empty: the sink does not count them."""
    return {} if sink is None or sink.table_rows is None else {ROW_COUNT: sink.table_rows}


def job_metadata(info: JobInfo, now_ms: int, page: str | None = None) -> dict[str, Any]:
    """Metadata common to all assets of a job. What is not known is left out.

    Args:
        info: The job.
        now_ms: Wall clock; of a job that has ended its end counts.
        page: Of the job in the web UI; None: there is none.
    """
    metadata: dict[str, Any] = {
        JOB: str(info.job),
        "unistream/checkpoints": info.checkpoints_completed,
        "unistream/restarts": info.restarts,
    }
    if page is not None:
        metadata[PAGE] = dg.MetadataValue.url(page)
    if info.late_rows or not info.incomplete:
        metadata["unistream/late_rows"] = sum(info.late_rows.values())
    if info.late_rows:
        metadata["unistream/late_rows_by_operator"] = dg.MetadataValue.json(info.late_rows)
    if info.out_of_order_rows:
        metadata["unistream/out_of_order_rows"] = dg.MetadataValue.json(info.out_of_order_rows)
    if info.dead_letters:
        metadata["unistream/dead_letters"] = sum(info.dead_letters.values())
        metadata["unistream/dead_letters_by_operator"] = dg.MetadataValue.json(info.dead_letters)
    if info.skipped_rows:
        metadata["unistream/skipped_rows"] = sum(info.skipped_rows.values())
        metadata["unistream/skipped_rows_by_operator"] = dg.MetadataValue.json(info.skipped_rows)
    named = zip((SAVEPOINT_TAG, TERMINAL_SAVEPOINT), savepoints_of(info), strict=True)
    metadata |= {key: dg.MetadataValue.path(path) for key, path in named if path is not None}
    counted = user_metrics_of(info.metrics)
    if counted:
        metadata["unistream/metrics"] = dg.MetadataValue.json(counted)
    return ordered(metadata | _progress(info, info.ended_ms or now_ms))


def _progress(info: JobInfo, at_ms: int) -> dict[str, Any]:
    """How far it is behind."""
    found: dict[str, Any] = {}
    watermark_ms = info.metrics.get("watermark", MIN_WATERMARK)
    if watermark_ms not in (MIN_WATERMARK, MAX_WATERMARK) and abs(watermark_ms) < _YEAR_9999_MS:
        found["unistream/watermark"] = dg.MetadataValue.timestamp(watermark_ms / 1000)
        found[LAG] = max(0, at_ms - watermark_ms) / 1000
    newest = newest_in(info.checkpoints)
    if newest is not None:
        found["unistream/checkpoint_age_s"] = max(0, at_ms - newest.at_ms) / 1000
    if info.records_behind is not None:
        found["unistream/records_behind"] = info.records_behind
    return found


def positions_metadata(positions: Sequence[SourcePositions]) -> dict[str, Any]:
    """The positions up to which the sources were read, by what is read and partition; empty: it is not
    known."""
    if not positions:
        return {}
    offsets: dict[str, dict[str, int]] = {}
    for one in positions:
        offsets.setdefault(one.name, {}).update(one.offsets)
    return {"unistream/offsets": dg.MetadataValue.json(offsets)}


def table_schema(schema: pa.Schema) -> dg.TableSchema:
    """Columns as Dagster shows them, with Arrow's names of types."""
    columns = [
        dg.TableColumn(field.name, str(field.type), constraints=_constraints(field)) for field in schema
    ]
    return dg.TableSchema(columns)


def _constraints(field: pa.Field[Any]) -> dg.TableColumnConstraints:
    return dg.TableColumnConstraints(nullable=field.nullable)


def schema_text(schema: dg.TableSchema) -> str:
    """Columns in one line.

    >>> schema_text(dg.TableSchema([dg.TableColumn("id", "int64"), dg.TableColumn("day", "date32")]))
    'id int64, day date32'
    """
    return ", ".join(f"{column.name} {column.type}" for column in schema.columns)


def data_version(spec: dg.AssetSpec, info: JobInfo) -> dict[str, str] | None:
    """The table's version as Dagster's data version, by which it knows whether an asset has changed."""
    sink = info.sinks.get(spec.metadata.get(SINK_METADATA, ""))
    if sink is None or sink.table_version is None:
        return None
    return {"dagster/data_version": str(sink.table_version)}
