"""Whether a stream is healthy, by what was seen of its job: pure, one small function for each check.

Figures that are divided by each other are of the same attempts: counters of tasks begin at zero after a
restart, so the ratios are about the time since then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import dagster as dg
import msgspec

from unistream.base.ids import VertexId
from unistream.base.limits import MAX_WATERMARK, MIN_WATERMARK
from unistream.client.job.last_job import has_read_everything
from unistream.dagster.run.metadata import JOB, PAGE
from unistream.dagster.run.seen import Complete, NoJob, Seen, SeenJob, state_text
from unistream.model.counted_rows import dead_letters_of, late_rows_of
from unistream.model.job_info import JobInfo

RUNS: Final = "stream_is_running"
CHECKPOINT_AGE: Final = "checkpoint_age"
RESTARTS: Final = "restarts"
LATE_ROWS: Final = "late_rows"
LATE_RATIO: Final = "late_ratio"
LAG: Final = "lag"
RECORDS_BEHIND: Final = "records_behind"
DEAD_LETTERS: Final = "dead_letters"

FIELDS: Final = {
    CHECKPOINT_AGE: "checkpoint_age_ms",
    RESTARTS: "restarts",
    LATE_ROWS: "late_rows",
    LATE_RATIO: "late_ratio",
    LAG: "watermark_lag_ms",
    RECORDS_BEHIND: "records_behind",
    DEAD_LETTERS: "dead_letter_ratio",
}
"""The fields of `HealthLimits` by the name of the check."""

COUNTED: Final = frozenset({LATE_ROWS, LATE_RATIO, LAG, RECORDS_BEHIND, DEAD_LETTERS})
"""The checks that judge by what the tasks of a job have counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """What a healthy stream stays within; None: not checked.

    Attributes:
        checkpoint_age_ms: Since the start of its newest complete checkpoint, or of the job.
        restarts: How often it has restarted.
        late_rows: Rows dropped behind the watermark.
        late_ratio: Of these, to the rows that its sources have read; 0 to 1.
        watermark_lag_ms: Wall clock minus watermark.
        records_behind: Records that its sources know of and have not read.
        dead_letter_ratio: Of any source, records that it could not decode, to all that it has read; of any
            other operator, rows that it could not process, to all that its tasks have got; 0 to 1.
    """

    checkpoint_age_ms: int | None = None
    restarts: int | None = None
    late_rows: int | None = None
    late_ratio: float | None = None
    watermark_lag_ms: int | None = None
    records_behind: int | None = None
    dead_letter_ratio: float | None = None

    @property
    def names(self) -> list[str]:
        """The names of the checks that are made."""
        return [RUNS, *(name for name, field in FIELDS.items() if getattr(self, field) is not None)]

    @classmethod
    def of(cls, limits: Mapping[str, object]) -> HealthLimits:
        """The limits from those that are given by the name of the check."""
        known = {FIELDS[name]: limit for name, limit in limits.items() if name in FIELDS}
        return msgspec.convert(known, cls)

    @property
    def by_name(self) -> dict[str, float | int]:
        """The limits by the name of the check; `RUNS` has none."""
        return {name: getattr(self, FIELDS[name]) for name in self.names[1:]}

    @property
    def texts(self) -> dict[str, str]:
        """What each check says, for people who look at it."""
        said = {
            RUNS: "The job that writes this table is RUNNING, or has read all of its input.",
            CHECKPOINT_AGE: f"A checkpoint was completed in the last {_duration(self.checkpoint_age_ms)}.",
            RESTARTS: f"The job has restarted {self.restarts} times at most since it was submitted.",
            LATE_ROWS: f"At most {self.late_rows} rows came behind the watermark, and were dropped.",
            LATE_RATIO: f"At most {_percent(self.late_ratio)} of the rows came behind the watermark.",
            LAG: f"The watermark is at most {_duration(self.watermark_lag_ms)} behind the clock.",
            RECORDS_BEHIND: f"At most {self.records_behind} records wait in the topics.",
            DEAD_LETTERS: f"At most {_percent(self.dead_letter_ratio)} of the rows of any operator failed.",
        }
        return {name: said[name] for name in self.names}


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """The result of one check. `severity`: if it fails."""

    passed: bool
    text: str
    metadata: Mapping[str, Any]
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN

    @property
    def result(self) -> str:
        """The result in one word."""
        return "passed" if self.passed else self.severity.value


@dataclass(frozen=True, slots=True)
class SourceRows:
    """What the current attempts of one source have read: rows, and records that could not be decoded."""

    name: str
    rows: int
    dead_letters: int

    @property
    def dead_letter_ratio(self) -> float:
        return _ratio(self.dead_letters, self.rows + self.dead_letters)


@dataclass(frozen=True, slots=True)
class OperatorRows:
    """What the current tasks of one operator have got, and what of it the operator could not process."""

    name: str
    rows: int
    dead_letters: int

    @property
    def dead_letter_ratio(self) -> float:
        return _ratio(self.dead_letters, self.rows)


def judged_seen(seen: Seen, limits: HealthLimits, now_ms: int) -> dict[str, CheckVerdict]:
    """All checks of a stream, by name, in the order of `HealthLimits.names`. What is not known fails nobody's
    pipeline, but passes as nothing either: a warning."""
    if isinstance(seen, SeenJob):
        found = judged(seen.info, seen.newest, limits, now_ms)
        link = {} if seen.page is None else {PAGE: dg.MetadataValue.url(seen.page)}
        return {name: replace(one, metadata={**one.metadata, **link}) for name, one in found.items()}
    is_lost = isinstance(seen, NoJob) and seen.is_lost
    text = f"the job does not run: {seen.why}" if isinstance(seen, NoJob) else f"it is not known: {seen.why}"
    warning = CheckVerdict(False, text, {})
    severe = replace(warning, severity=dg.AssetCheckSeverity.ERROR)
    return {name: severe if is_lost and name == RUNS else warning for name in limits.names}


def _runs(info: JobInfo) -> CheckVerdict:
    """Who stops a stream knows it; who has one that failed does not."""
    passed = info.state == "RUNNING" or has_read_everything(info)
    is_failure = info.state in {"FAILING", "FAILED", "SUSPENDED"}
    severity = dg.AssetCheckSeverity.ERROR if is_failure else dg.AssetCheckSeverity.WARN
    return CheckVerdict(passed, state_text(info), {JOB: str(info.job)}, severity)


def judged(
    info: JobInfo, newest: Complete | None, limits: HealthLimits, now_ms: int
) -> dict[str, CheckVerdict]:
    """All checks of a job, by name, in the order of `HealthLimits.names`.

    Args:
        info: The job.
        newest: Its newest complete checkpoint or savepoint; None: there is none.
        limits: Of the checks.
        now_ms: Wall clock.
    """
    verdicts = {RUNS: _runs(info)}
    if limits.checkpoint_age_ms is not None:
        verdicts[CHECKPOINT_AGE] = _checkpoint_age(info, newest, limits.checkpoint_age_ms, now_ms)
    if limits.restarts is not None:
        text = f"{info.restarts} restarts, allowed {limits.restarts}"
        verdicts[RESTARTS] = CheckVerdict(info.restarts <= limits.restarts, text, {"restarts": info.restarts})
    if limits.late_rows is not None:
        late = sum(info.late_rows.values())
        metadata = {"late_rows": late, "by_operator": dg.MetadataValue.json(info.late_rows)}
        text = f"{late} late rows, allowed {limits.late_rows}"
        verdicts[LATE_ROWS] = CheckVerdict(late <= limits.late_rows, text, metadata)
    if limits.late_ratio is not None:
        verdicts[LATE_RATIO] = _late_ratio(info, limits.late_ratio)
    if limits.watermark_lag_ms is not None:
        verdicts[LAG] = _lag(info, limits.watermark_lag_ms, now_ms)
    if limits.records_behind is not None:
        verdicts[RECORDS_BEHIND] = _records_behind(info, limits.records_behind)
    if limits.dead_letter_ratio is not None:
        verdicts[DEAD_LETTERS] = _dead_letters(info, limits.dead_letter_ratio)
    if info.incomplete:  # what nobody has counted is not 0
        unknown = CheckVerdict(False, f"it is not known any more: {info.incomplete}", {})
        verdicts |= dict.fromkeys(COUNTED & verdicts.keys(), unknown)
    return verdicts


def source_rows(info: JobInfo) -> list[SourceRows]:
    """The rows that each source of a job has read, by name. Two sources of one name count as one, as do their
    counters."""
    rows: dict[str, list[int]] = {}
    for subtask in info.subtasks:
        if subtask.source is not None:
            dead = dead_letters_of(subtask.metrics.user).get(subtask.source, 0)
            total = rows.setdefault(subtask.source, [0, 0])
            total[0] += subtask.metrics.records_in
            total[1] += dead
    return [SourceRows(name, read, dead) for name, (read, dead) in sorted(rows.items())]


def operator_rows(info: JobInfo) -> list[OperatorRows]:
    """The rows of each operator with dead letters that is no source, by name. A task counts its rows where
    they enter it, so operators of one task have the same."""
    rows: Counter[VertexId] = Counter()
    dead: Counter[tuple[str, VertexId]] = Counter()
    for subtask in info.subtasks:
        rows[subtask.vertex] += subtask.metrics.records_in
        for name, count in dead_letters_of(subtask.metrics.user).items():
            if name != subtask.source:
                dead[name, subtask.vertex] += count
    return [OperatorRows(name, rows[vertex], count) for (name, vertex), count in sorted(dead.items())]


def row_count_verdict(rows: int | None, expected: int, tolerance: float) -> CheckVerdict:
    """Judges the number of rows of a table against what a query says.

    Args:
        rows: Of the table; None: there is no table yet.
        expected: By the query.
        tolerance: Allowed difference, as a share of `expected`.
    """
    found = rows or 0
    off = abs(found - expected)
    has = "there is no table" if rows is None else f"the table has {rows:,} rows"
    text = f"{has}, the query says {expected:,}: {off:,} off, allowed {tolerance * expected:,.0f}"
    known = {} if rows is None else {"rows": rows}
    return CheckVerdict(off <= tolerance * expected, text, {**known, "expected": expected})


def _checkpoint_age(info: JobInfo, newest: Complete | None, limit_ms: int, now_ms: int) -> CheckVerdict:
    if has_read_everything(info):
        return CheckVerdict(True, "the job has read all of its input: no checkpoint comes any more", {})
    since_ms = info.submitted_ms if newest is None else newest.at_ms
    age_s = max(0, now_ms - since_ms) / 1000
    what = "there is no complete checkpoint" if newest is None else f"checkpoint {newest.checkpoint_id}"
    text = f"{what}, {age_s:.0f} s ago" if newest else f"{what}, {age_s:.0f} s after the submission"
    return CheckVerdict(age_s * 1000 <= limit_ms, text, {"age_s": age_s})


def _late_ratio(info: JobInfo, limit: float) -> CheckVerdict:
    late = sum(late_rows_of(info.metrics).values())
    read = sum(source.rows for source in source_rows(info))
    ratio = _ratio(late, read)
    text = f"{late:,} of {read:,} rows were late ({ratio:.2%}), allowed {limit:.2%}"
    return CheckVerdict(ratio <= limit, text, {"late_rows": late, "rows_read": read, "late_ratio": ratio})


def _lag(info: JobInfo, limit_ms: int, now_ms: int) -> CheckVerdict:
    """Judges how far the watermark is behind. Without one the time counts from when the tasks began: a
    restart is not a lag by itself."""
    watermark_ms = info.metrics.get("watermark", MIN_WATERMARK)
    if watermark_ms == MAX_WATERMARK:
        return CheckVerdict(True, "all sources have read everything", {"lag_s": 0.0})
    if watermark_ms == MIN_WATERMARK:
        since_ms = max([info.submitted_ms, *(failure.at_ms for failure in info.exceptions[:1])])
        lag_s = max(0, now_ms - since_ms) / 1000
        text = f"there is no watermark yet, {lag_s:.0f} s after the start"
    else:
        lag_s = max(0, now_ms - watermark_ms) / 1000
        text = f"the watermark is {lag_s:.0f} s behind"
    text = f"{text}, allowed {limit_ms / 1000:.0f} s"
    return CheckVerdict(lag_s * 1000 <= limit_ms, text, {"lag_s": lag_s})


def _records_behind(info: JobInfo, limit: int) -> CheckVerdict:
    behind = info.records_behind
    if behind is None:
        return CheckVerdict(False, "not every source of the job says how many records it has not read", {})
    text = f"{behind:,} records are not read yet, allowed {limit:,}"
    return CheckVerdict(behind <= limit, text, {"records_behind": behind})


def _dead_letters(info: JobInfo, limit: float) -> CheckVerdict:
    sources, operators = source_rows(info), operator_rows(info)
    metadata = {
        "by_source": dg.MetadataValue.json(
            {one.name: {"rows": one.rows, "dead_letters": one.dead_letters} for one in sources}
        ),
        "by_operator": dg.MetadataValue.json(
            {one.name: {"rows": one.rows, "dead_letters": one.dead_letters} for one in operators}
        ),
    }
    if not sources and not operators:
        return CheckVerdict(True, "no source has read anything yet", metadata)
    measured: list[SourceRows | OperatorRows] = [*sources, *operators]
    worst = max(measured, key=lambda one: one.dead_letter_ratio)
    if isinstance(worst, SourceRows):
        read = worst.rows + worst.dead_letters
        what = f"source {worst.name}: {worst.dead_letters:,} of {read:,} records could not be decoded"
    else:
        what = f"operator {worst.name}: {worst.dead_letters:,} of {worst.rows:,} rows could not be processed"
    text = f"{what} ({worst.dead_letter_ratio:.2%}), allowed {limit:.2%}"
    return CheckVerdict(worst.dead_letter_ratio <= limit, text, metadata)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _duration(ms: int | None) -> str:
    """A duration in the largest unit of which it is a whole number.

    >>> _duration(600_000), _duration(90_000), _duration(7_200_000)
    ('10 min', '90 s', '2 h')
    """
    whole = ms or 0
    units = (("h", 3_600_000), ("min", 60_000), ("s", 1_000))
    unit, size = next((one for one in units if whole % one[1] == 0), ("ms", 1))
    return f"{whole // size} {unit}"


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0):g} %"
