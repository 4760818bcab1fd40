"""Answers of a cluster, recorded once, and what pages are drawn from: each page in its states.

    python -m tests.browser.drawn     records them again, from a job that runs well

`typed` makes them what the API says today: a new field has its default, and a path whose answer has changed
in another way is refused.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import msgspec

from tests.asking import as_owner
from tests.browser.drawn_hosts import beyond_loopback, disks
from tests.browser.incidents import running_well
from tests.eventually import WAIT_S
from tests.unit.master.described import operation_of
from unistream import __version__
from unistream.client.machine.home import HOME_VARIABLE
from unistream.client.remote.rest_client import RestClient
from unistream.client.remote.tokens import TokensClient
from unistream.model.access import Scope

Json: TypeAlias = Any
Answers: TypeAlias = dict[str, list[Json]]  # path -> status, body

HERE: Final = Path(__file__).parent
RECORDED: Final = HERE.parents[1] / "ui" / "stories" / "recorded.json"
PICTURES: Final = HERE / "pictures"
OF_JOB: Final = ("", "/timeline", "/checkpoints", "/state", "/commits", "/log", "/explain", "/vertices")
OF_CLUSTER: Final = (
    *("/config", "/unistream/overview", "/unistream/workers", "/unistream/cluster"),
    *("/unistream/identity", "/unistream/tokens"),
)
LISTS: Final = ("/unistream/history", "/unistream/run-links", "/unistream/kept-jobs", "/unistream/procedures")
DAY_MS: Final = 24 * 3_600_000
WIDE: Final = {"size": {"width": 1400, "height": 900}, "colorScheme": "light"}
DARK: Final = {"size": {"width": 1400, "height": 900}, "colorScheme": "dark"}
NARROW: Final = {"size": {"width": 400, "height": 800}, "colorScheme": "dark"}
LIGHT_NARROW: Final = {"size": {"width": 400, "height": 800}, "colorScheme": "light"}
TABS: Final = (
    *("graph", "timeline", "checkpoints", "state", "commits", "dead-letters", "exceptions", "log", "plan"),
    "configuration",
)
PAGES: Final = (
    *("overview", "workers", "cluster", "history", "procedures", "explain", "simulation", "tokens"),
    *("audit", "hosts", "certificates"),
)
CHANGING: Final = (
    "overview",
    "graph",
    "timeline",
    "checkpoints",
    "commits",
    "exceptions",
    "workers",
    "history",
    "procedures",
    "tokens",
    "audit",
    "hosts",
    "certificates",
)
ODD: Final = (
    "a name with <b>markup</b> & more",
    "اسم من اليمين إلى اليسار",
    "one-word-that-has-no-end-" * 8,
    "名前 📈",
    "a name of several words that goes on and on until there is no room left for it in its column " * 2,
)
MESSAGE: Final = (
    "operator 'fare', subtask 0: function 'fare_of' raised ValueError: invalid literal for int(): "
    "'free' at row 1 of the batch: {'n': 300, 'text': 'free'}"
)
STACK: Final = """Traceback (most recent call last):
  File "/opt/unistream/operator/common/rows.py", line 48, in process_batch
    take(function(row))
  File "/srv/flights/fares.py", line 12, in fare_of
    return {"fare": int(row["text"])}
"""
STATES: Final = ("RUNNING", "RESTARTING", "FAILED", "FINISHED", "CANCELED", "INITIALIZING")


def record(url: str, job: str) -> Answers:
    """What a cluster answers now."""
    paths = [f"/unistream/jobs/{job}{end}" for end in OF_JOB]
    paths += [f"/jobs/{job}", f"/jobs/{job}/plan", f"/jobs/{job}/checkpoints/config", *OF_CLUSTER, *LISTS]
    with httpx.Client(base_url=url, headers=as_owner(url), trust_env=False, timeout=WAIT_S) as http:
        asked = {path: http.get(path, params={"job": job} if path in LISTS[1:] else None) for path in paths}
    return {path: [answer.status_code, answer.json()] for path, answer in asked.items()}


def make_tokens(url: str) -> None:
    """Those that the page of tokens shows."""
    with RestClient(url) as client:
        tokens = TokensClient(client)
        tokens.create("nightly", Scope.OPERATE, 90 * DAY_MS)
        tokens.create("dashboard on the wall", Scope.READ)


def typed(answers: Answers) -> Answers:
    """The same as the API describes them now. Raises ValidationError."""
    found: Answers = {}
    for path, (status, body) in answers.items():
        operation = operation_of("GET", path)
        assert operation is not None, f"there is no path {path} any more: record the answers again"
        decoded = msgspec.convert(body, operation.answer)
        found[path] = [status, json.loads(msgspec.json.encode(decoded))]
    return found


class Drawn:
    """Recorded answers, and what becomes of them in each state."""

    def __init__(self) -> None:
        given = json.loads(RECORDED.read_text())
        self.job: str = given["job"]
        self.here = typed(given["answers"])
        overview = self._body(self.here, "/unistream/overview")
        overview["version"] = __version__
        self.now_ms: int = overview["now_ms"]
        self._info(self.here)["exceptions"] = [self._failure()]
        self.here |= typed(beyond_loopback(self.now_ms, self.job))
        self._body(self.here, "/unistream/cluster")["disks"] = disks()

    def _failure(self) -> Json:
        vertex = self._info(self.here)["subtasks"][0]
        return {
            "at_ms": self.now_ms - 30_000,
            "kind": "UserCodeError",
            "message": MESSAGE,
            "traceback": STACK,
            "attempt": f"{self.job}/{vertex['vertex']}#0.0",
            "task_manager": "tm-643b78fcd02b",
            "task_name": f"{vertex['vertex_name']} (1/2) - execution #0",
            "endpoint": "10.0.0.7:40111",
            "concurrent": [],
        }

    @staticmethod
    def _body(answers: Answers, path: str) -> Json:
        return answers[path][1]

    def _info(self, answers: Answers) -> Json:
        return self._body(answers, f"/unistream/jobs/{self.job}")

    def path(self, page: str) -> str:
        if page in TABS:
            return f"/jobs/{self.job}" + ("" if page == "graph" else f"/{page}")
        return "/" if page == "overview" else f"/{page}"

    def answers(self, state: str) -> Answers:
        change: Mapping[str, Callable[[Answers], None]] = {
            "empty": self._empty,
            "huge": self._huge,
            "failed": self._failed,
        }
        answers = deepcopy(self.here)
        if state == "refused":
            words = "the metadata database does not answer: connection refused"
            return {path: [503, {"errors": [words]}] for path in answers}
        change.get(state, lambda _: None)(answers)
        return answers

    def _empty(self, answers: Answers) -> None:
        """A cluster that nobody uses yet, and a job that has just begun."""
        body = lambda path: self._body(answers, path)  # noqa: E731
        overview, info = body("/unistream/overview"), self._info(answers)
        overview.update(jobs=[], workers=0, slots=0, free_slots=0)
        info.update(checkpoints=[], exceptions=[], state="INITIALIZING", metrics={}, subtasks=[])
        body("/unistream/workers").update(workers=[])
        body("/unistream/history").update(jobs=[], next=None)
        body("/unistream/procedures").update(procedures=[])
        body("/unistream/tokens").update(tokens=[])
        body("/unistream/audit").update(entries=[])
        body("/unistream/certificates").update(
            authorities=[], rest=None, encrypts_workers=False, processes=[]
        )
        checkpoints = body(f"/unistream/jobs/{self.job}/checkpoints")
        checkpoints.update(latest=[], latest_completed=None, completed=0)
        timeline = body(f"/unistream/jobs/{self.job}/timeline")
        timeline.update(executions=[], checkpoints=[], commits=[], failures=[])
        body(f"/unistream/jobs/{self.job}/commits").update(sinks=[])

    def _failed(self, answers: Answers) -> None:
        """The job waits for its restart."""
        info = self._info(answers)
        info.update(state="RESTARTING", restarts=3, restarts_at_ms=self.now_ms + 22_000)
        info["exceptions"][0]["at_ms"] = self.now_ms - 2_000
        for checkpoint in info["checkpoints"]:
            checkpoint["triggered_ms"] -= 60_000
        for subtask in info["subtasks"]:
            subtask["state"] = "CANCELED"
        info["subtasks"][0]["state"] = "FAILED"
        self._body(answers, "/unistream/procedures")["procedures"][0]["report"].update(
            done=2, state="INTERRUPTED", text=MESSAGE, goes_on="unistream upgrade flights flights:second"
        )
        [line] = self._body(answers, "/unistream/overview")["jobs"]
        line["summary"].update(state="RESTARTING", restarts=3)
        line["figures"].update(failure=f"UserCodeError: {info['exceptions'][0]['message']}")

    def _huge(self, answers: Answers) -> None:
        """Many of everything, with names that nobody likes."""
        overview, info = self._body(answers, "/unistream/overview"), self._info(answers)
        [line] = overview["jobs"]
        overview["jobs"] = [self._odd(line, number) for number in range(60)]
        info["name"] = ODD[4]
        failure = info["exceptions"][0]
        info["exceptions"] = [
            {**failure, "message": ODD[number % 5] * 3, "at_ms": number} for number in range(20)
        ]
        info["exceptions"][0]["at_ms"] = self.now_ms - 2_000
        workers = self._body(answers, "/unistream/workers")["workers"]
        workers[:] = [
            {**one, "worker": {**one["worker"], "id": f"tm-{number}", "host": ODD[number % 5][:120]}}
            for number, one in enumerate(workers * 20)
        ]
        procedures = self._body(answers, "/unistream/procedures")["procedures"]
        procedures[:] = [self._odd_procedure(procedures[number % 2], number) for number in range(40)]
        tokens = self._body(answers, "/unistream/tokens")["tokens"]
        tokens[:] = [
            {**one, "id": f"{number:012x}", "name": f"{number} {ODD[number % 5]}"[:100]}
            for number, one in enumerate(tokens * 20)
        ]
        issued = self._body(answers, "/unistream/certificates")["processes"]
        issued[:] = [
            {**issued[number % 3], "name": f"{number} {ODD[number % 5]}"[:100]} for number in range(60)
        ]
        entries = self._body(answers, "/unistream/audit")["entries"]
        entries[:] = [
            {**entries[number % len(entries)], "name": f"{number} {ODD[number % 5]}"[:100]}
            for number in range(80)
        ]
        history = self._body(answers, "/unistream/history")
        history["jobs"] = [self._odd(line, number)["summary"] for number in range(60)]

    @staticmethod
    def _odd(line: Json, number: int) -> Json:
        odd = deepcopy(line)
        odd["summary"].update(
            job=f"{number:032x}",
            name=f"{number} {ODD[number % 5]}",
            state=STATES[number % 6],
            restarts=number**4,
        )
        if odd["summary"]["state"] in {"FAILED", "FINISHED", "CANCELED"}:
            odd["summary"].update(
                ended_ms=odd["summary"]["submitted_ms"] + 10**number % 10**9, failure=ODD[4] * 2
            )
            odd["figures"] = None
        else:
            odd["figures"].update(
                rows_read=10 ** (number % 15), behind=10 ** (number % 12), failure=ODD[4] * 3
            )
        return odd

    @staticmethod
    def _odd_procedure(procedure: Json, number: int) -> Json:
        odd = deepcopy(procedure)
        odd["report"].update(id=f"{number}", job_name=ODD[number % 5], text=ODD[4] * 3)
        return odd

    def cases(self) -> Iterator[Json]:
        """Every page as it is, wide and narrow; those that change much in their other states."""
        wanted = [(page, "here", look) for page in (*PAGES, *TABS) for look in (WIDE, NARROW)]
        wanted += [(page, "empty", WIDE) for page in CHANGING]
        wanted += [(page, "refused", DARK) for page in CHANGING]
        wanted += [(page, "huge", LIGHT_NARROW) for page in CHANGING]
        wanted += [(page, "huge", DARK) for page in ("overview", "history", "workers")]
        wanted += [(page, "loading", DARK) for page in ("overview", "graph")]
        wanted += [(page, "stale", NARROW) for page in ("overview", "graph")]
        wanted += [(page, "failed", look) for page in ("overview", "graph") for look in (DARK, LIGHT_NARROW)]
        for page, state, look in wanted:
            name = f"{page}-{state}-{look['colorScheme']}-{look['size']['width']}"
            given = {"name": name, "state": state, "path": self.path(page)}
            yield {**given, **look, "answers": self.answers(state)}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="unistream-drawn-") as work:
        os.environ[HOME_VARIABLE] = f"{work}/home"
        with running_well(Path(work)) as scene:
            make_tokens(scene.url)
            answers = record(scene.url, scene.job)
    text = json.dumps({"job": scene.job, "answers": answers}, separators=(",", ":"), ensure_ascii=False)
    RECORDED.write_text(text.replace(work, "/data").replace(str(HERE), "/srv/flights") + "\n")
    print(f"{RECORDED} {RECORDED.stat().st_size // 1_000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
