"""Where an extra is missing, one sentence names it, at the place where the user first needs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import unistream as us
from unistream.base.extras import EXTRAS, RANGES, is_installed, require
from unistream.client.embedded.hosts import chosen_target

ROOT = Path(__file__).resolve().parents[2]

WITHOUT = """
import json, os, sys
# what is always there, and needs half a second for each statement: none of it loads a library of an extra
import fsspec, numpy, pyarrow.compute, pyarrow.dataset, pyarrow.flight, rich.console, sqlalchemy.orm, typer
import unistream.api.environment, unistream.cli.main, unistream.cli.options, unistream.connector.file
import unistream.client.embedded.leader_process, unistream.client.job.submission
from unistream.base.extras import EXTRAS
print(*(one for extra in EXTRAS.values() for one in extra.values() if one in sys.modules), flush=True)
def run(modules, statement):
    for module in modules:
        sys.modules[module] = None  # as where it is not installed: no import and no search finds it
    import logging
    logging.basicConfig(format="%(message)s")
    import unistream as us
    def main(words):
        from unistream.cli.main import main
        return main(words)
    def target(chosen):
        from unistream.client.embedded.hosts import chosen_target
        return chosen_target(chosen)
    def stars():
        exec("from unistream import *; from unistream.testing import *", {})
    def pipeline(**config):
        env = us.Environment(config, target=config.pop("target", None))
        source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=10)
        env.from_source(source, us.WatermarkStrategy.no_watermarks()).sink_to(us.BlackholeSink())
        return env
    try:
        code = eval(statement, {**globals(), **locals()})
    except us.ConfigError as error:
        print(error, file=sys.stderr)
        code = 2
    print("result", code)
for line in sys.stdin:
    modules, statement, folder = json.loads(line)
    if child := os.fork():
        os.waitpid(child, 0)
        print("ended", flush=True)
        continue
    os.chdir(folder)
    os.environ.update(HOME=folder, UNISTREAM_HOME=folder + "/home")
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdin = open(os.devnull)
    run(modules, statement)
    break
"""

KAFKA = "us.KafkaSource(bootstrap_servers='127.0.0.1:1', topic='t')"
AVRO = (
    "us.KafkaSource(bootstrap_servers='127.0.0.1:1', topic='t', format='avro-confluent', "
    "schema=__import__('pyarrow').schema([('a', 'int64')]), schema_registry='http://127.0.0.1:1')"
)
PROTOBUF = AVRO.replace("avro-confluent", "protobuf-confluent")
STREAM = "'execution.runtime-mode': 'STREAMING'"  # a BATCH job needs no state on disk
ROCKSDB = f"pipeline(target='local', **{{{STREAM}, 'state.backend.type': 'rocksdb'}}).execute()"
NEEDS = [
    pytest.param("protobuf", PROTOBUF, "needs protobuf, which is", id="Protobuf"),
    pytest.param("avro", AVRO, 'format="avro-confluent" needs fastavro, which is', id="Avro"),
    pytest.param("delta", "us.DeltaSink('table')", "DeltaSink needs deltalake, which is", id="a Delta sink"),
    pytest.param(
        "delta", "us.DeltaSource('table')", "DeltaSource needs deltalake, which", id="a Delta source"
    ),
    pytest.param(
        "iceberg", "us.IcebergSink('a.b')", "IcebergSink needs pyiceberg, which is", id="an Iceberg sink"
    ),
    pytest.param("kafka", KAFKA, "KafkaSource needs kafka-python, which is", id="a Kafka source"),
    pytest.param(
        "spark", "pipeline(target='spark').execute()", "target spark needs pyspark, which is", id="Spark"
    ),
    pytest.param(
        "spark",
        "main(['run', 'no_module:pipeline', '-t', 'spark'])",
        "target spark needs pyspark, which is",
        id="run -t spark",
    ),
    pytest.param(
        "spark",
        "main(['cluster', 'start', '-t', 'spark'])",
        "target spark needs pyspark, which is",
        id="cluster start -t spark",
    ),
    pytest.param(
        "spark", "us.Environment().from_dataframe(None)", "from_dataframe needs pyspark, which is", id="frame"
    ),
    pytest.param("spark", "main(['stack', 'up', 'zookeeper'])", "ZooKeeper", id="the local ZooKeeper"),
    pytest.param(
        "kafka",
        "main(['stack', 'up', 'kafka'])",
        "the local Kafka needs kafka-python, which is",
        id="the local Kafka",
    ),
    pytest.param(
        "server",
        "main(['cluster', 'start', '-t', 'local'])",
        "needs fastapi and uvicorn, which are",
        id="a session cluster",
    ),
    pytest.param(
        "server",
        "main(['run', 'no_module:pipeline', '-t', 'local', '--detached'])",
        "run --detached needs fastapi and uvicorn, which are",
        id="run --detached",
    ),
    pytest.param("rocksdb", ROCKSDB, "state.backend.type: rocksdb needs rocksdict, which is", id="RocksDB"),
    pytest.param(
        "savepoint",
        "main(['savepoint', 'query', 'savepoint', 'select 1'])",
        "a query of a savepoint needs duckdb, which is",
        id="savepoint query",
    ),
    pytest.param(
        "s3",
        "us.FileSink('s3://bucket/folder').check(None)",
        "a URL of an S3 store needs s3fs, which is",
        id="files on S3",
    ),
    pytest.param(
        "postgres",
        "main(['db', 'check', '--url', 'postgresql+psycopg://u:p@127.0.0.1:1/d'])",
        "metadata.url needs psycopg, which is",
        id="a PostgreSQL database",
    ),
    pytest.param(
        "dagster",
        "__import__('unistream.dagster')",
        "unistream.dagster needs dagster, which is",
        id="Dagster",
    ),
]


Without = Callable[[Iterable[str], str], tuple[str, str]]


@pytest.fixture(scope="module")
def interpreter() -> Iterator[subprocess.Popen[str]]:
    """A process that forks for each statement."""
    command = [sys.executable, "-c", WITHOUT]
    environment = {"PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def without(interpreter: subprocess.Popen[str], tmp_path: Path) -> Without:
    """Runs a statement where some modules are not installed: what it prints, and its errors."""

    def run(modules: Iterable[str], statement: str) -> tuple[str, str]:
        assert interpreter.stdin is not None
        assert interpreter.stdout is not None
        print(json.dumps([list(modules), statement, str(tmp_path)]), file=interpreter.stdin, flush=True)
        assert interpreter.stdout.readline() == "ended\n"
        return (tmp_path / "stdout").read_text("utf-8"), (tmp_path / "stderr").read_text("utf-8")

    return run


@pytest.mark.parametrize(("extra", "statement", "sentence"), NEEDS)
def test_one_sentence_names_the_extra_that_is_missing(
    extra: str, statement: str, sentence: str, without: Without, tmp_path: Path
) -> None:
    printed, errors = without(EXTRAS[extra].values(), statement)
    assert printed == "result 2\n", errors
    *_, said = errors.splitlines()
    assert sentence in said
    assert said.endswith(f'not installed here: pip install "unistream[{extra}]"')
    assert "Traceback" not in errors
    assert not list(tmp_path.glob("home/runs/*")), "nothing was started"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        pytest.param(["list"], "no job runs here\n", id="list"),
        pytest.param(["list", "--json"], '{"jobs":[],"unanswered":[]}\n', id="list --json"),
        pytest.param(["taskmanager", "list"], "no worker runs here\n", id="taskmanager list"),
    ],
)
def test_an_empty_list_says_why_jobs_of_this_installation_are_not_found(
    words: list[str], shown: str, without: Without
) -> None:
    printed, errors = without(EXTRAS["server"].values(), f"main({words})")
    assert printed == f"{shown}result 0\n"
    assert errors.endswith('by which other commands find them: pip install "unistream[server]"\n')
    assert without((), f"main({words})")[1] == ""


JOB_COMMANDS = ["info", "exceptions", "checkpoint", "checkpoints", "savepoint", "stop", "cancel", "rescale"]


@pytest.mark.parametrize("command", JOB_COMMANDS)
def test_a_command_about_a_job_names_the_extra_where_no_cluster_runs(command: str, without: Without) -> None:
    words = [command, "some-job", *(["a=2"] if command == "rescale" else [])]
    printed, errors = without(EXTRAS["server"].values(), f"main({words})")
    assert printed == "result 3\n"
    (said,) = errors.splitlines()
    assert said.startswith("error: no cluster runs here; ")
    assert said.endswith('pip install "unistream[server]"')


def test_every_name_can_be_imported_where_all_extras_are_missing(without: Without) -> None:
    everything = [module for libraries in EXTRAS.values() for module in libraries.values()]
    assert without(everything, "stars()") == ("result None\n", "")


def test_every_extra_is_tried() -> None:
    assert {row.values[0] for row in NEEDS} == set(EXTRAS)


def test_where_spark_is_missing_the_default_target_is_local_and_one_line_says_so(without: Without) -> None:
    printed, errors = without(["pyspark"], "target(None)")
    assert printed == "result local\n"
    (line,) = errors.splitlines()
    assert "target=local" in line
    assert 'pip install "unistream[spark]"' in line


def test_with_spark_connect_the_default_target_is_local_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from unistream.host.spark_master import refuse_connect

    assert chosen_target(None) == "spark"
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # as pyspark does when it connects
    assert chosen_target(None) == "local"
    (line,) = caplog.messages
    assert "target=local: this program uses Spark Connect, which cannot host workers" in line
    with pytest.raises(us.ConfigError, match=r'Spark Connect.*target="local"'):
        refuse_connect()


def test_a_target_that_was_chosen_is_not_commented_on(without: Without) -> None:
    assert without(["pyspark"], "target('local')") == ("result local\n", "")


def test_the_table_of_extras_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        extra: {re.split(r"[\[<>=]", requirement)[0] for requirement in requirements}
        for extra, requirements in project["optional-dependencies"].items()
    }
    (everything,) = project["optional-dependencies"]["all"]
    assert declared.pop("all") == {"unistream"}
    assert everything == f"unistream[{','.join(sorted(declared))}]"
    assert declared == {extra: set(libraries) for extra, libraries in EXTRAS.items()}


def test_what_is_installed_is_not_refused() -> None:
    assert is_installed("delta")
    require("delta", "DeltaSink")


def test_a_missing_extra_is_a_matter_of_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(us.ConfigError, match="DeltaSink needs deltalake"):
        us.DeltaSink("table")


@pytest.mark.parametrize(
    ("found", "works"),
    [("3.5.6", False), ("4.0.0", True), ("4.3.1", True), ("4.1.0.dev2", True), ("5.0.0", False)],
)
def test_a_library_of_another_version_is_refused(
    found: str, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _library: found)
    if works:
        require("spark", "the target spark")
        return
    with pytest.raises(
        us.ConfigError, match=f"needs pyspark 4.0 or later, below 5, and {found} is installed"
    ):
        require("spark", "the target spark")


def test_the_ranges_are_those_of_the_project() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {re.split(r"[<>=]", one)[0]: one for extra in EXTRAS for one in extras[extra]}
    for library, (least, beyond) in RANGES.items():
        low, high = (".".join(map(str, numbers)) for numbers in (least, beyond))
        assert asked[library] == f"{library}>={low},<{high}"
