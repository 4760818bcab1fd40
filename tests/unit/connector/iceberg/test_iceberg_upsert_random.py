"""Rows that replace others by key, in a table that others append to, delete from in every way, compact and
change, while committers die and are told twice: after each checkpoint each key has its last row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from tests.contract.sinks.case import permit, request
from tests.iceberg_lake import Lake
from tests.unit.connector.iceberg.parts import Parts, rows
from tests.unit.connector.iceberg.source_tables import compact, delete_equal, delete_positions
from tests.unit.connector.iceberg.test_iceberg_upsert_files import KEYED, data, numbered
from unistream.base.crash_points import passing
from unistream.port.sink import CommitOutcome


def data_files(table: Table) -> list[str]:
    """Of the head, also with deletes that pyiceberg's scan refuses."""
    head = table.current_snapshot()
    return [
        entry.data_file.file_path
        for manifest in (head.manifests(table.io) if head is not None else ())
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    ]


class Others:
    """What others and the sink do to a table, and which rows are then there. `model`: (i, n), sorted."""

    def __init__(self, lake: Lake, parts: Parts, chance: random.Random) -> None:
        self.lake, self.parts, self.chance = lake, parts, chance
        self.model: list[tuple[int, int]] = []
        self.sink = parts.sink(**KEYED, delete_when=pc.field("n") == -1)
        self.checkpoint = 0

    def upsert(self) -> None:
        """Of one or two writers; the committer dies before, or is told twice."""
        self.checkpoint += 1
        staged, last = list[bytes](), dict[int, int]()
        for ids in (range(0, 40, 2), range(1, 40, 2))[: self.chance.choice([1, 2, 2])]:
            given = [(self.chance.choice(ids), self.chance.choice([-1, *range(50)])) for _ in range(9)]
            last |= dict(given)
            made = rows(i=[i for i, _ in given], n=[n for _, n in given])
            staged += self.parts.staged(self.checkpoint, made, self.parts.writer(self.sink))
        self._commit(staged)
        kept = [row for row in self.model if row[0] not in last]
        self.model = sorted([*kept, *((i, n) for i, n in last.items() if n >= 0)])

    def _commit(self, staged: Sequence[bytes]) -> None:
        given = request(self.checkpoint, *staged)
        point = self.chance.choice([*STEPS, ""])
        restored = self.checkpoint - 1 or None
        with suppress(Killed), passing(partial(_die_at, point)):
            self.parts.committer(self.sink, restored=restored).commit(permit(self.checkpoint), given)
        for _ in range(2):
            again = self.parts.committer(self.sink, restored=self.checkpoint)
            assert again.commit(permit(self.checkpoint), given).outcome is not CommitOutcome.RETRY

    def append(self) -> None:
        new = [(self.chance.randrange(40), 100 + self.chance.randrange(9)) for _ in range(3)]
        self.lake.change(lambda table: table.append(self._typed(table, new)))
        self.model = sorted([*self.model, *new])

    def delete(self) -> None:
        low = self.chance.randrange(40)
        self.lake.change(lambda table: table.delete(f"i >= {low} and i < {low + 3}"))
        self._lose(low, low + 3)

    def delete_by_equality(self) -> None:
        i = self.chance.randrange(40)
        if self._is_whole():
            self.lake.change(lambda table: delete_equal(table, pa.table({"i": [i]}), 1))
            self._lose(i, i + 1)

    def _lose(self, low: int, high: int) -> None:
        self.model = [row for row in self.model if not low <= row[0] < high]

    def _is_whole(self) -> bool:
        """Without partitions, which those who write files here by hand do not know."""
        with self.lake.table() as table:
            return not table.spec().spec_id

    def delete_by_position(self) -> None:
        """The first row of a file."""
        with self.lake.table() as table:
            found = data_files(table)
            if not self._is_whole() or not found:
                return
            path = found[0]
            stored = pq.read_table(path.removeprefix("file://")).to_pylist()
            delete_positions(table, path, 0)
        before = list(self.model)
        gone = (stored[0]["i"], stored[0]["n"])
        self.model = numbered(self.lake)
        lost = Counter(before) - Counter(self.model)
        assert lost in (Counter(), Counter([gone])), "of our row, or of one that was deleted before"

    def repartition(self) -> None:
        def change(table: Table) -> None:
            with table.update_spec() as update:
                if table.spec().fields:
                    update.remove_field(table.spec().fields[0].name)
                update.add_field("n", BucketTransform(self.chance.randrange(2, 9)))

        self.lake.change(change)

    def add_column(self) -> None:
        def change(table: Table) -> None:
            with table.update_schema() as update:
                update.add_column(f"more_{len(table.schema().fields)}", StringType())

        self.lake.change(change)

    def compact(self) -> None:
        if self._is_whole():
            self.lake.change(compact)

    @staticmethod
    def _typed(table: Table, new: Sequence[tuple[int, int]]) -> pa.Table:
        return data(*new).select([name for name in ("i", "n") if name in table.schema().column_names])


STEPS = ("iceberg.before_commit", "iceberg.rewritten", "iceberg.manifests_written", "iceberg.committed")


class Killed(BaseException):
    """What stands for the death of a process."""


def _die_at(point: str, passed: str) -> None:
    if passed == point:
        raise Killed


@pytest.mark.parametrize("seed", range(12))
def test_whatever_others_do_and_whoever_dies_each_key_has_its_last_row(
    lake: Lake, parts: Parts, seed: int
) -> None:
    chance = random.Random(seed)
    lake.create(data((0, 0)).schema)
    played = Others(lake, parts, chance)
    others = [played.append, played.delete_by_position, played.repartition, played.add_column]
    with_pyiceberg = [played.delete, played.compact]  # which does not know deletes by equality
    others += [played.delete_by_equality] if seed % 2 else with_pyiceberg
    for _ in range(10):
        played.upsert()
        for act in chance.sample(others, 2):
            act()
        assert numbered(lake) == played.model
        assert lake.rows("SELECT i, n FROM t ORDER BY i, n") == played.model
