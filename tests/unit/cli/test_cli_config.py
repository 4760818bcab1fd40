"""`unistream config`, and the file and variables behind every command."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unistream as us
from tests.unit.cli.shell import Shell
from unistream.base.config import OPTIONS, Configuration, is_secret
from unistream.base.config_file import variable_of
from unistream.cli.commands import COMMANDS
from unistream.client.embedded.embedded_cluster import EmbeddedCluster
from unistream.client.machine.surroundings import surrounding_config
from unistream.testing import MiniCluster

CANARY = "hunter2-canary"
TEXT = """\
execution:
  checkpointing:
    interval: 10 s
rest.port: 8081
s3:
  access-key: me
  secret-key: hunter2-canary
"""
Write = Callable[..., Path]


@pytest.fixture
def write(own_home: Path) -> Write:
    """Writes a config.yaml, by default where it is found."""

    def write(text: str | bytes = TEXT, folder: Path | None = None, mode: int = 0o600) -> Path:
        folder = folder or own_home
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "config.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return path

    return write


def values(shell: Shell, *words: str) -> dict[str, Any]:
    assert shell("config", "show", "--json", *words) == 0, shell.err
    return {one["key"]: one["value"] for one in shell.json()["options"]}


# --- which file -----------------------------------------------------------------------------------


def test_without_a_file_there_are_defaults(shell: Shell) -> None:
    assert shell("config", "show") == 0
    assert shell.out == "there is no file\nevery option has its default; --all shows them\n"
    assert shell("config", "show", "--all") == 0
    assert len(shell.out.splitlines()) == len(OPTIONS) + 2


def test_the_file_that_is_found(
    shell: Shell, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("rest.port: 1")
    assert values(shell) == {"rest.port": "1"}
    write("rest.port: 2", tmp_path / "conf")
    monkeypatch.setenv("UNISTREAM_CONF_DIR", str(tmp_path / "conf"))
    assert values(shell) == {"rest.port": "2"}
    named = write("rest.port: 3", tmp_path / "named")
    assert shell("--config", str(named), "config", "show") == 0
    assert f"file: {named}\n" in shell.out
    assert f"rest.port  3      {named} line 1" in shell.out
    assert values(shell) == {"rest.port": "2"}, "the file of one command is not that of the next"


@pytest.mark.parametrize(
    ("prepare", "then"),
    [
        pytest.param(lambda _: None, "which cannot be read: No such file or directory", id="none"),
        pytest.param(lambda path: path.mkdir(), "which cannot be read: Is a directory", id="a folder"),
        pytest.param(lambda path: path.write_text("- a"), "line 1: a configuration has lines", id="a list"),
        pytest.param(
            lambda path: path.write_bytes(b"\xff\xfe"), "line 1: the file is not UTF-8", id="UTF-16"
        ),
        pytest.param(
            lambda path: path.write_bytes(b"# \n" * (10 << 20)), "the file has more than 256 KiB", id="30 MB"
        ),
        pytest.param(lambda path: path.symlink_to(path), "Too many levels of symbolic links", id="a loop"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(
    shell: Shell, tmp_path: Path, prepare: Callable[[Path], object], then: str
) -> None:
    path = tmp_path / "a.yaml"
    prepare(path)
    for words in (["list"], ["config", "show"], ["cluster", "stop"]):
        assert shell("--config", str(path), *words) == 2
        assert shell.err.count("\n") == 1
        assert str(path) in shell.err
        assert then in shell.err


def test_a_folder_that_is_named_has_a_file(
    shell: Shell, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    monkeypatch.setenv("UNISTREAM_CONF_DIR", str(tmp_path))
    assert shell("list") == 2
    assert shell.err == (
        f"error: UNISTREAM_CONF_DIR says that the configuration is {tmp_path}/config.yaml, which cannot be "
        "read: No such file or directory\n"
    )


def test_the_option_stands_before_the_command(shell: Shell, write: Write) -> None:
    path = write()
    assert shell("list", "--config", str(path)) == 2
    assert shell.err.endswith("\n--config stands before the command: unistream --config PATH list …\n")


def test_a_pipe_is_read_once(shell: Shell) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"rest.port: 7")
    os.close(writer)
    assert shell("--config", f"/dev/fd/{reader}", "config", "show", "--json") == 0
    assert shell.json()["options"][0]["value"] == "7"
    os.close(reader)


# --- which value ----------------------------------------------------------------------------------


def test_file_then_variable_then_command_line(
    shell: Shell, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("rest.port: 1\nsink.committer.retries: 1\nclient.timeout: 1 s")
    monkeypatch.setenv("UNISTREAM_CONF_SINK__COMMITTER__RETRIES", "2")
    monkeypatch.setenv("UNISTREAM_CONF_CLIENT__TIMEOUT", "2 s")
    assert values(shell, "-D", "client.timeout=3 s") == {
        "rest.port": "1",
        "sink.committer.retries": "2",
        "client.timeout": "3 s",
    }
    assert shell("config", "explain", "UNISTREAM_CONF_CLIENT__TIMEOUT", "-D", "client.timeout=3 s") == 0
    lines = [line.split(maxsplit=1) for line in shell.out.splitlines()]
    assert ["value", "3 s"] in lines
    assert ["from", "-D"] in lines
    shown = [line for line in shell.out.splitlines() if line.startswith("does not count")]
    assert [line.removeprefix("does not count").strip() for line in shown] == [
        "UNISTREAM_CONF_CLIENT__TIMEOUT",
        f"{path} line 3",
    ]


def test_a_variable_is_wrong(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNISTREAM_CONF_REST_PORT", "1")
    assert shell("list") == 2
    assert "did you mean UNISTREAM_CONF_REST__PORT, which sets rest.port?" in shell.err


@pytest.mark.parametrize("given", ["-D", "program"])
def test_what_is_given_may_have_references_too_and_they_are_looked_up_once(
    given: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKET", "${env:HOME}")
    value, key = "s3://${env:BUCKET}/$${env:BUCKET}", "execution.checkpointing.dir"
    then = "s3://${env:HOME}/${env:BUCKET}"
    if given == "program":
        assert us.Environment({key: value}).config.to_dict()[key] == then
    else:
        assert values(shell, "-D", f"{key}={value}") == {key: then}


def test_a_program_has_the_file_below_its_own_options(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("parallelism.default: 3\nexecution.checkpointing.interval: 1 s\nrest.port: 8081")
    monkeypatch.setenv("UNISTREAM_CONF_PARALLELISM__DEFAULT", "4")
    env = us.Environment({"execution.checkpointing.interval": "2 s"})
    assert env.config.to_dict() == {"parallelism.default": "4", "execution.checkpointing.interval": "2 s"}
    assert env.parallelism == 4
    assert env.set_parallelism(2).parallelism == 2
    assert us.Environment(target="remote").config.to_dict()["rest.port"] == "8081"
    assert us.Environment(Configuration({"parallelism.default": 5})).parallelism == 5


def test_a_program_that_the_file_does_not_fit_is_refused(write: Write) -> None:
    write("parallelism.default: 200")
    with pytest.raises(us.ConfigError, match="200"):
        us.Environment({"pipeline.max-parallelism": 100})


def test_a_mini_cluster_has_no_configuration_of_its_user(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("parallelism.default: 4\nexecution.runtime-mode: STREAMING\ntaskmanager.numberOfTaskSlots: 7")
    monkeypatch.setenv("UNISTREAM_CONF_EXECUTION__CHECKPOINTING__INTERVAL", "100 ms")
    env = us.Environment()
    source = us.DatagenSource({"n": us.datagen.Sequential()}, rows=10)
    env.from_source(source, us.WatermarkStrategy.no_watermarks(), "n").uid("n").sink_to(us.BlackholeSink())
    with MiniCluster(task_managers=1, slots=1) as cluster:
        job = cluster.execute_async(env, "n")
        assert job.wait(60).state == "FINISHED"
        assert {one.slots for one in cluster.task_managers()} <= {1}
        graph = cluster.dispatcher.graph(job.job_id)
        assert [vertex.parallelism for vertex in graph.vertices] == [1]
        assert graph.job_type.value == "BATCH"
    assert env.parallelism == 4, "the environment itself is as it was"


def test_commands_talk_to_the_cluster_of_the_file(
    shell: Shell, write: Write, start_cluster: Callable[..., EmbeddedCluster]
) -> None:
    meant, other = start_cluster(), start_cluster()
    port = (meant.rest_url or "").rpartition(":")[2]
    path = write(f"rest.port: {port}")
    assert shell("token", "list", "--json") == 0
    path.unlink()
    assert shell("token", "list") == 2
    assert "several clusters run here" in shell.err
    write("high-availability.type: zookeeper\nhigh-availability.zookeeper.quorum: 127.0.0.1:1")
    address = (other.rest_url or "").removeprefix("http://")
    assert shell("token", "list", "-m", address, "--json") == 0, (
        "-m counts before a cluster of several masters"
    )


def test_no_command_needs_a_right_file_to_show_its_help(shell: Shell, write: Write) -> None:
    write("a: b: c")
    for name in COMMANDS:
        assert shell(name, "--help") == 0
    assert shell("--version") == 0
    assert shell("list") == 2


# --- what is wrong --------------------------------------------------------------------------------


def test_check_shows_all_faults(shell: Shell, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("rest.prot: 1\nclient.timeout: soon\ns3:\n  secret-key: ${env:NO_SUCH}\n")
    monkeypatch.setenv("UNISTREAM_CONF_REST__PORT", "x")
    assert shell("config", "check") == 1
    assert shell.out.splitlines() == [
        f"{path} line 1: unknown configuration key 'rest.prot'; did you mean 'rest.port'?",
        f"{path} line 2: client.timeout: 'soon' is not a duration such as '2 s' or '500 ms'",
        "UNISTREAM_CONF_REST__PORT: rest.port: 'x' is not a whole number",
        f"{path} line 4: s3.secret-key refers to environment variable 'NO_SUCH', which is not set",
        f"{path}: 1 option, 4 faults",
    ]
    assert shell("config", "check", "--json") == 1
    assert [one["line"] for one in shell.json()["faults"]] == [1, 2, None, 4]
    assert shell("list") == 2
    assert shell.err.endswith("; 2 more: 'unistream config check' lists all\n")


def test_check_of_a_right_file(shell: Shell, write: Write, tmp_path: Path) -> None:
    path = write(folder=tmp_path / "other")
    assert shell("config", "check", str(path)) == 0
    assert (shell.out, shell.err) == (f"{path}: 4 options, no fault\n", "")
    path.chmod(0o644)
    assert shell("config", "check", str(path)) == 0
    assert shell.err == (
        f"warning: {path} has secrets in it, and other users can read it: chmod 600 {path}\n"
    )


def test_check_of_options_that_contradict_each_other(shell: Shell, write: Write) -> None:
    path = write("s3.access-key: a")
    assert shell("config", "check") == 1
    assert shell.out.splitlines()[0] == f"{path}: set both s3.access-key and s3.secret-key, or neither"


def test_explain_of_no_option(shell: Shell) -> None:
    assert shell("config", "explain", "rest.prot") == 2
    assert shell.err == "error: unknown configuration key 'rest.prot'; did you mean 'rest.port'?\n"


def test_explain_goes_on_with_a_file_that_is_wrong(shell: Shell, write: Write) -> None:
    write("rest.prot: 1")
    assert shell("config", "explain", "high-availability") == 0
    assert "unknown configuration key 'rest.prot'" in shell.err
    assert "other name  high-availability" in shell.out


# --- secrets --------------------------------------------------------------------------------------

SECRETS = [*(key for key in OPTIONS if is_secret(key)), "spark.ssl.keyPassword"]
LOOKS = (
    ["config", "show"],
    ["config", "show", "--json"],
    ["config", "show", "--all"],
    ["config", "check"],
    ["config", "check", "--json"],
)


def secret(key: str) -> str:
    return f"postgresql+psycopg://u:{CANARY}@127.0.0.1:1/d" if key == "metadata.url" else CANARY


@pytest.mark.parametrize("source", ["file", "variable", "-D", "file behind a reference", "wrong place"])
@pytest.mark.parametrize("key", SECRETS)
def test_no_secret_is_shown(  # noqa: PLR0917
    key: str,
    source: str,
    shell: Shell,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    value, defines = secret(key), []
    match source:
        case "file":
            write(f"{key}: {value}")
        case "variable":
            monkeypatch.setenv(variable_of(key), value)
        case "-D":
            defines = ["-D", f"{key}={value}"]
        case "file behind a reference":
            (tmp_path / "it").write_text(f"{value}\n")
            write(f"{key}: ${{file:{tmp_path}/it}}")
        case "wrong place":
            write(f"{key}s: {value}\n{key}: {value} ${{\n{key}.x: '{value}\n")
    shown = ""
    for words in (*LOOKS, ["config", "explain", key], ["list"], ["taskmanager", "memory"]):
        takes = defines if words[:2] != ["config", "check"] else []
        shell(*words, *takes)
        shown += shell.out + shell.err
    assert key in shown
    assert CANARY not in shown + caplog.text
    assert ("shows a secret to all who can list the processes" in shown) is (source == "-D")


@pytest.mark.parametrize("value", ["${file:/run/secrets/s3}", "${env:A}"])
def test_a_reference_on_the_command_line_is_no_secret(shell: Shell, value: str) -> None:
    assert values(shell, "-D", f"s3.secret-key={value}") == {"s3.secret-key": value}
    assert shell.err == ""


def test_a_program_does_not_show_the_secrets_that_surround_it(write: Write) -> None:
    write()
    env = us.Environment()
    assert env.config.to_dict()["s3.secret-key"] == CANARY
    assert CANARY not in repr(env.options) + repr(env.config) + repr(surrounding_config())
    assert CANARY not in str(env.travelling()), "and a job takes none of them to its cluster"
