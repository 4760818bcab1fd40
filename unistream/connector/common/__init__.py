"""What several connectors share: committers, staged files, partition folders, JSON, Avro, values that
do not fit, splits of files and their readers.

May import: `port`, `model`, `base`. Start with `committing`.
"""

from __future__ import annotations

from unistream.connector.common.avro_columns import AvroPlan, NotOfIt, planned, resolved_by_record
from unistream.connector.common.avro_defaults import Defaults, with_values
from unistream.connector.common.avro_schema import (
    AvroRecord,
    ParsedSchema,
    UnknownSchema,
    alike,
    family,
    parsed,
)
from unistream.connector.common.avro_types import NoColumn, Types, arrow_schema, read_as, unfit_fields
from unistream.connector.common.buffers import PADDING, Int64s, UInt8s, padded
from unistream.connector.common.cells import NOT_BUILT, Build, RecordCells
from unistream.connector.common.committing import (
    TargetMemory,
    changed_target,
    check_staged,
    decode_formatted,
    kept_snapshot,
    overwrites_once,
    rewound,
    uncommitted_elsewhere,
)
from unistream.connector.common.databases import remedy, sqlite_code, sqlstate
from unistream.connector.common.decoded import Decoded, first_reasons, merged
from unistream.connector.common.delete_when import check_condition, check_delete_when, deletes
from unistream.connector.common.deleted_rows import (
    DELETED,
    first_rows,
    marks,
    packed,
    unpacked,
    without_deleted,
)
from unistream.connector.common.filtered_groups import constant_bounds, filtered_groups
from unistream.connector.common.json_maps import TWICE, repeated_keys, with_single_keys
from unistream.connector.common.json_objects import table_of_objects
from unistream.connector.common.json_reader import JsonReader, JsonRows, warm_up_json
from unistream.connector.common.json_text import json_column, json_lines, json_misfit, json_rows
from unistream.connector.common.keyed_rows import (
    DELETES,
    Upsert,
    check_key,
    check_keys,
    checked_upsert,
    last_of_each_key,
    with_deletes,
)
from unistream.connector.common.misfits import beyond_years, reasons_of, uncastable
from unistream.connector.common.partition_buffers import PartitionBuffers, rows_that_fill
from unistream.connector.common.partitions import (
    NULL_PARTITION,
    PartitionKey,
    by_partition,
    by_values,
    folder_misfit,
    folder_name,
    partition_folder,
    partition_text,
    value_folder,
    value_text,
    without_folder,
)
from unistream.connector.common.plain_sink import PlainSink, PlainWriter
from unistream.connector.common.read_ahead import SplitReader
from unistream.connector.common.recorded_positions import (
    SEVERAL,
    Commits,
    RecordedCommit,
    find_recorded,
    number_of,
    owner_number,
    owners,
)
from unistream.connector.common.row_check import ColumnsRowCheck
from unistream.connector.common.row_filter import (
    ColumnStatistics,
    Condition,
    Filter,
    RowFilter,
    arrow_scalar,
    checked_filter,
    comparable,
    filter_columns,
    groups_of,
    lenient,
    may_select,
    plain_filter,
    selected_rows,
)
from unistream.connector.common.row_groups import (
    RowChunk,
    RowGroupRange,
    UnitRows,
    chunks,
    row_group_ranges,
    row_groups,
    time_ranges,
)
from unistream.connector.common.samples import sample
from unistream.connector.common.selected_groups import may_be_selected, selected_groups
from unistream.connector.common.source_arguments import (
    EPOCH,
    At,
    check_one_begin,
    check_unbounded,
    checked_columns,
    conditions_of_range,
    read_schema,
    said_time,
    time_ms,
    written_schema,
)
from unistream.connector.common.spans import binary_array, line_spans
from unistream.connector.common.splits import (
    ListedSplits,
    decoded_split,
    discovery_options,
    encoded_split,
)
from unistream.connector.common.stage_files import StageFiles, absolute
from unistream.connector.common.staged import BYTES_SENT, columns_text, count_sent, staged_name
from unistream.connector.common.target_committer import (
    ATTEMPTS_MAX,
    CheckpointCommittables,
    CommittedVersion,
    Conflict,
    TargetCommitter,
    Unknown,
)
from unistream.connector.common.target_sink import KeyedSink, OnRewind, TargetSink, check_on_rewind, names_of
from unistream.connector.common.text_times import parsed as parsed_times
from unistream.connector.common.untimed import untimed
