"""What functions log becomes reports: whose lines, when, and how many."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from unistream.base.clock import SystemClock
from unistream.base.ids import AttemptId, JobId, VertexId
from unistream.model.messages import LogLine, LogReported, TaskStateChanged, ToJobManager
from unistream.testing.harness.operators import ManualClock
from unistream.worker.task.user_log import LINE_CHARS_MAX, LINES_MAX, REPORT_EVERY_MS, LogTail, UserLog

ATTEMPT, OTHER = (AttemptId(JobId("a" * 32), VertexId("v"), index, 0) for index in (0, 1))
log = logging.getLogger("orders")


class Worker:
    """With the handler on the root logger."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sent: list[ToJobManager] = []
        self.user_log = UserLog(self.sent.append, self.clock)

    def lines(self) -> list[tuple[int, str]]:
        """Subtask and message of all lines that were sent."""
        return [(r.attempt.index, one.message) for r in self.reports() for one in r.lines]

    def reports(self) -> list[LogReported]:
        return [one for one in self.sent if isinstance(one, LogReported)]

    def later(self) -> None:
        self.clock.now_ms += REPORT_EVERY_MS


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    with worker.user_log.installed():
        yield worker


def on_a_thread(action: object) -> None:
    thread = threading.Thread(target=action)  # type: ignore[arg-type]
    thread.start()
    thread.join()


def test_lines_are_of_the_task_on_whose_thread_they_were_logged(worker: Worker) -> None:
    def task(attempt: AttemptId) -> None:
        worker.user_log.begin(attempt)
        log.warning("of %s", attempt.index)

    log.warning("of no task")
    on_a_thread(lambda: task(ATTEMPT))
    on_a_thread(lambda: task(OTHER))
    assert worker.lines() == [(0, "of 0"), (1, "of 1")]
    line = worker.reports()[0].lines[0]
    assert (line.level, line.logger) == ("WARNING", "orders")


@pytest.mark.parametrize("name", ["unistream.worker.task", "kafka.client", "py4j", "deltalake"])
def test_lines_of_the_runtime_and_its_libraries_stay_in_the_worker(worker: Worker, name: str) -> None:
    worker.user_log.begin(ATTEMPT)
    logging.getLogger(name).warning("partition assigned")
    logging.getLogger("unistreamed").info("of a user")
    log.debug("too detailed")
    assert worker.lines() == [(0, "of a user")]


def test_lines_go_together_once_a_second_and_with_each_heartbeat(worker: Worker) -> None:
    worker.user_log.begin(ATTEMPT)
    for number in range(3):
        log.info("%s", number)
    assert worker.lines() == [(0, "0")]
    worker.later()
    log.info("3")
    assert worker.lines() == [(0, str(number)) for number in range(4)]
    log.info("4")
    worker.user_log.report()
    worker.user_log.report()
    assert [report.number for report in worker.reports()] == [1, 2, 3]
    assert worker.lines()[-1] == (0, "4")


def test_lines_come_before_the_state_that_may_be_the_last(worker: Worker) -> None:
    task = worker.user_log.begin(ATTEMPT)
    log.info("first")
    log.info("last")
    ended = TaskStateChanged(attempt=ATTEMPT, state="FINISHED")
    task.post(ended)
    assert worker.sent[-1] == ended
    assert worker.lines() == [(0, "first"), (0, "last")]
    log.info("in close")
    worker.user_log.end(ATTEMPT)
    assert worker.lines()[-1] == (0, "in close")


def test_too_many_lines_are_counted_and_not_formatted(worker: Worker) -> None:
    class Counting(logging.Formatter):
        formatted = 0

        def format(self, record: logging.LogRecord) -> str:
            self.formatted += 1
            return super().format(record)

    worker.user_log.begin(ATTEMPT)
    counting = Counting()
    worker.user_log.setFormatter(counting)
    for number in range(LINES_MAX + 501):
        log.info("%s", number)
    assert counting.formatted == LINES_MAX + 1, "the first one was sent at once"
    worker.later()
    log.info("dropped as well, since nothing was sent meanwhile")
    assert [(len(report.lines), report.dropped) for report in worker.reports()] == [(1, 0), (LINES_MAX, 501)]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        pytest.param("x" * (LINE_CHARS_MAX + 5), "x" * LINE_CHARS_MAX, id="long"),
        pytest.param("half \ud800", "half \\ud800", id="half of a character"),
    ],
)
def test_what_cannot_be_sent_is_changed(worker: Worker, text: str, sent: str) -> None:
    worker.user_log.begin(ATTEMPT)
    record = logging.LogRecord("orders", logging.INFO, __file__, 1, "%s", (text,), None)
    worker.user_log.handle(record)  # not by the logger: what pytest captures has to be sendable, too
    assert worker.lines() == [(0, sent)]


def test_a_traceback_is_part_of_the_message(worker: Worker) -> None:
    worker.user_log.begin(ATTEMPT)
    try:
        float("no number")
    except ValueError:
        log.exception("row refused")
    [(_, message)] = worker.lines()
    assert message.startswith("row refused\nTraceback")
    assert message.endswith("could not convert string to float: 'no number'")


@pytest.mark.parametrize(
    ("lines", "dropped", "reports"),
    [
        ([], 0, []),
        ([3], 0, [(3, 0)]),
        ([LINES_MAX, 2], 0, [(0, 2), (LINES_MAX, 0)]),
        ([1, 1], 5, [(0, 10), (2, 0)]),
    ],
)
def test_the_tail_has_the_newest_lines_and_counts_the_others(
    lines: list[int], dropped: int, reports: list[tuple[int, int]]
) -> None:
    """`lines`: of each report that is added; `reports`: lines and dropped ones of those that come out."""
    tail = LogTail()
    texts = iter(range(10 * LINES_MAX))
    for number, count in enumerate(lines, start=1):
        said = tuple(
            LogLine(at_ms=0, level="INFO", logger="orders", message=str(next(texts))) for _ in range(count)
        )
        tail.add(LogReported(attempt=ATTEMPT, number=number, lines=said, dropped=dropped))
    found = tail.reports(ATTEMPT)
    assert [(len(report.lines), report.dropped) for report in found] == reports
    assert [report.number for report in found] == list(range(1, len(found) + 1))
    kept = [line.message for report in found for line in report.lines]
    assert kept == [str(number) for number in range(sum(lines))][-LINES_MAX:]


def test_what_a_root_logger_without_handlers_prints_it_prints_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    user_log = UserLog(lambda _report: None, SystemClock())
    with user_log.installed():
        user_log.begin(ATTEMPT)
        log.warning("grave")
        log.info("not grave")
    assert capsys.readouterr().err == "grave\n"
    assert logging.getLogger().handlers == []
