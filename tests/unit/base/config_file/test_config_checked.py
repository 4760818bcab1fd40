"""Variables, references and levels: which value counts, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from unistream.base.config import OPTIONS, OTHER_KEYS, Configuration, is_secret
from unistream.base.config_file import (
    CONF_DIR_VARIABLE,
    LayeredConfig,
    OptionValue,
    PlaceKind,
    check_given,
    checked,
    first_fault,
    placed_option,
    placed_options,
    read_variables,
    read_yaml,
    variable_of,
    written,
)
from unistream.base.errors import ConfigError
from unistream.base.secrets import is_secret_name

CANARY = "hunter2"
THERE = {
    ("env", "BUCKET"): "lake",
    ("env", "TWICE"): "${env:BUCKET}",
    ("file", "/run/n"): "3",
    ("env", "PW"): CANARY,
}


def look_up(what: str, kind: str, where: str) -> str:
    if (kind, where) not in THERE:
        raise ConfigError(f"{what} refers to {kind} {where!r}, which is not there")
    return THERE[kind, where]


def of_file(text: str) -> tuple[dict[str, str], list[str]]:
    found, broken = read_yaml(text.encode(), "config.yaml")
    options, faults = checked(found, look_up)
    return {key: one.text for key, one in options.items()}, [str(one) for one in (*broken, *faults)]


# --- variables ------------------------------------------------------------------------------------


def test_every_option_has_a_variable_of_its_own_that_a_shell_takes() -> None:
    names = {key: variable_of(key) for key in (*OPTIONS, *OTHER_KEYS)}
    assert len(set(names.values())) == len(names)
    assert CONF_DIR_VARIABLE not in names.values()
    for key, name in names.items():
        assert name.replace("_", "").isalnum()
        assert name.isupper(), name
        back = name.removeprefix("UNISTREAM_CONF_").replace("__", ".").replace("_", "-")
        assert back == key.upper(), "it can be read back, up to capitals"


@pytest.mark.parametrize(
    ("variables", "then"),
    [
        pytest.param({"UNISTREAM_CONF_REST__PORT": "1"}, {"rest.port": "1"}, id="a dot is two lines"),
        pytest.param(
            {"UNISTREAM_CONF_HIGH_AVAILABILITY__CLUSTER_ID": "a"},
            {"high-availability.cluster-id": "a"},
            id="a dash is one",
        ),
        pytest.param(
            {"UNISTREAM_CONF_TASKMANAGER__NUMBEROFTASKSLOTS": "2"},
            {"taskmanager.numberOfTaskSlots": "2"},
            id="capitals of a key are found again",
        ),
        pytest.param(
            {"UNISTREAM_CONF_HIGH_AVAILABILITY": "single"}, {"high-availability": "single"}, id="another name"
        ),
        pytest.param(
            {"UNISTREAM_CONF_spark__executor__memoryOverhead": "1g"},
            {"spark.executor.memoryOverhead": "1g"},
            id="Spark's keys keep their letters",
        ),
        pytest.param({"UNISTREAM_CONF_SPARK__MASTER": "a"}, {"spark.master": "a"}, id="but for ours"),
        pytest.param({"UNISTREAM_CONF_DIR": "/etc"}, {}, id="the folder is no option"),
        pytest.param({"UNISTREAM_CONF_REST__PORT": ""}, {}, id="an empty one sets nothing"),
        pytest.param({"UNISTREAM_HOME": "/a", "REST__PORT": "1"}, {}, id="others are not ours"),
    ],
)
def test_variables(variables: dict[str, str], then: dict[str, str]) -> None:
    found, faults = read_variables(variables)
    assert ({one.key: one.text for one in found}, faults) == (then, [])


@pytest.mark.parametrize(
    ("name", "then"),
    [
        ("UNISTREAM_CONF_REST_PORT", "; did you mean UNISTREAM_CONF_REST__PORT, which sets rest.port?"),
        ("UNISTREAM_CONF_rest__port", "; did you mean UNISTREAM_CONF_REST__PORT, which sets rest.port?"),
        ("UNISTREAM_CONF_NOTHING_OF_OURS_AT_ALL", ""),
        ("UNISTREAM_CONF_REST__PROT", "; did you mean UNISTREAM_CONF_REST__PORT, which sets rest.port?"),
    ],
)
def test_a_variable_of_no_option_is_named_with_the_nearest_one(name: str, then: str) -> None:
    _, [fault] = read_variables({name: CANARY})
    assert str(fault) == f"{name}: no option has this variable{then}"


def test_a_key_of_spark_in_capitals_cannot_be_guessed() -> None:
    _, [fault] = read_variables({"UNISTREAM_CONF_SPARK__EXECUTOR__CORES": "2"})
    assert "UNISTREAM_CONF_spark__executor__memoryOverhead" in fault.sentence


# --- references -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "then"),
    [
        pytest.param("s3://${env:BUCKET}/a", "s3://lake/a", id="in a text"),
        pytest.param("${env:BUCKET}${file:/run/n}", "lake3", id="several"),
        pytest.param("$${env:BUCKET}", "${env:BUCKET}", id="an escaped one"),
        pytest.param("${env:TWICE}", "${env:BUCKET}", id="what is found is not looked at again"),
        pytest.param("a$b", "a$b", id="a lone dollar"),
    ],
)
def test_references(value: str, then: str) -> None:
    assert of_file(f"execution.checkpointing.dir: '{value}'") == ({"execution.checkpointing.dir": then}, [])


def test_a_reference_may_be_a_number() -> None:
    assert of_file("parallelism.default: ${file:/run/n}") == ({"parallelism.default": "3"}, [])


@pytest.mark.parametrize("key", [key for key in OPTIONS if is_secret(key)] + ["spark.ssl.keyPassword"])
def test_references_in_secrets_travel_as_they_are(key: str) -> None:
    value = "${env:NOWHERE}"
    assert of_file(f"{key}: {value}") == ({key: value}, [])


@pytest.mark.parametrize(
    ("line", "then"),
    [
        pytest.param(
            "execution.checkpointing.dir: ${env:NO}",
            "execution.checkpointing.dir refers to env 'NO', which is not there",
            id="nothing is there",
        ),
        pytest.param(
            "execution.checkpointing.dir: ${HOME}/a",
            "execution.checkpointing.dir: ${HOME} is no reference, such as ${env:NAME} or ${file:PATH}; "
            "write $${ for the text itself",
            id="no kind",
        ),
        pytest.param(
            f"s3.secret-key: ${{{CANARY}",
            "s3.secret-key: a '${' in it is no reference, such as ${env:NAME} or ${file:PATH}; write $${ for "
            "the text itself",
            id="a secret is not shown",
        ),
        pytest.param(
            "parallelism.default: ${env:PW}",
            "parallelism.default: what ${env:PW} stands for does not fit: integer, 1 to 4096",
            id="nor a secret in a wrong place",
        ),
    ],
)
def test_wrong_references(line: str, then: str) -> None:
    assert of_file(line) == ({}, [f"config.yaml line 1: {then}"])


def test_spark_has_references_of_its_own() -> None:
    assert of_file("spark.a: ${spark.b}") == ({"spark.a": "${spark.b}"}, [])


# --- levels ---------------------------------------------------------------------------------------


def test_one_option_by_two_names() -> None:
    both = "high-availability: zookeeper\nhigh-availability.type: single"
    assert of_file(both)[1] == [
        "config.yaml line 2: high-availability.type is set here and in config.yaml line 1, which is one "
        "option: set only one"
    ]
    assert of_file(both.replace("single", "zookeeper")) == ({"high-availability.type": "zookeeper"}, [])


def test_an_unknown_key_has_the_nearest_one_and_its_line() -> None:
    assert of_file("\nrest.prot: 1")[1] == [
        "config.yaml line 2: unknown configuration key 'rest.prot'; did you mean 'rest.port'?"
    ]


def test_the_first_fault_says_how_many_there_are() -> None:
    _, faults = checked(written({"a": 1, "b": 2, "rest.port": "x"}, PlaceKind.PROGRAM), look_up)
    assert (
        str(first_fault(faults))
        == "unknown configuration key 'a'; 2 more: 'unistream config check' lists all"
    )


def level(kind: PlaceKind, values: Mapping[str, str]) -> dict[str, OptionValue]:
    return checked(written(values, kind), look_up)[0]


LEVELS = (
    level(
        PlaceKind.FILE, {"rest.port": "1", "sink.committer.retries": "2", "high-availability": "zookeeper"}
    ),
    level(PlaceKind.VARIABLE, {"rest.port": "3", "spark.a": "b"}),
    level(PlaceKind.COMMAND_LINE, {"rest.port": "4", "high-availability.type": "single"}),
)


@pytest.mark.parametrize(
    ("levels", "then"),
    [
        pytest.param(0, ("0", []), id="the default"),
        pytest.param(1, ("1", []), id="the file"),
        pytest.param(2, ("3", ["file"]), id="then variables"),
        pytest.param(3, ("4", ["variable", "file"]), id="then -D"),
    ],
)
def test_which_value_counts(levels: int, then: tuple[str, list[str]]) -> None:
    found = placed_option("rest.port", LEVELS[:levels])
    assert (found.value, [place.kind.value for place in found.hidden]) == then


def test_options_that_are_set_come_in_the_order_of_the_reference() -> None:
    keys = [one.key for one in placed_options(LEVELS)]
    assert keys == ["sink.committer.retries", "rest.port", "high-availability.type", "spark.a"]
    assert [one.key for one in placed_options(LEVELS, every=True)] == [*OPTIONS, "spark.a"]


AROUND = Configuration(
    {
        "parallelism.default": 2,
        "execution.checkpointing.interval": "1 s",
        "rest.port": 8081,
        "jobmanager.rpc.port": 6123,
        "high-availability.type": "zookeeper",
        "metadata.url": f"postgresql://u:{CANARY}@h/d",
        "security.ssl.rest.enabled": True,
        "taskmanager.cpu.cores": 2,
    }
)
OF_CLUSTER = {"metadata.url": f"postgresql://u:{CANARY}@h/d", "taskmanager.cpu.cores": "2"}
OF_JOB = {"parallelism.default": "2", "execution.checkpointing.interval": "1 s"}
TLS = {"security.ssl.rest.enabled": "true"}
NAMES = {"rest.port": "8081", "high-availability.type": "zookeeper"} | TLS
PORT = {"jobmanager.rpc.port": "6123"}


@pytest.mark.parametrize(
    ("given", "method", "then"),
    [
        pytest.param({}, "whole", OF_JOB | OF_CLUSTER | NAMES | PORT, id="a session cluster has all of it"),
        pytest.param(
            {}, "own_cluster", OF_JOB | OF_CLUSTER, id="a cluster for one job takes no address of it"
        ),
        pytest.param(
            {"rest.port": "9"},
            "own_cluster",
            OF_JOB | OF_CLUSTER | {"rest.port": "9"},
            id="but one it is given",
        ),
        pytest.param({}, "travelling", OF_JOB, id="with a job goes how it runs"),
        pytest.param(
            {"taskmanager.cpu.cores": "3"},
            "travelling",
            OF_JOB | {"taskmanager.cpu.cores": "3"},
            id="and all that it was given",
        ),
        pytest.param({}, "as_client", OF_JOB | OF_CLUSTER | NAMES | PORT, id="a client finds the leader"),
        pytest.param(
            {"rest.port": "9"},
            "as_client",
            OF_JOB | OF_CLUSTER | PORT | TLS | {"rest.port": "9"},
            id="or the cluster whose port it is given",
        ),
        pytest.param(
            {"rest.port": "9", "rest.address": "a"},
            "as_client",
            OF_JOB | OF_CLUSTER | PORT | {"rest.port": "9", "rest.address": "a"},
            id="and whether that speaks TLS is not said by the file",
        ),
    ],
)
def test_what_goes_where(given: dict[str, str], method: str, then: dict[str, str]) -> None:
    found = getattr(LayeredConfig(Configuration(given), AROUND), method)()
    assert found.to_dict() == then


def test_options_are_checked_without_a_look_at_what_they_refer_to() -> None:
    check_given({"parallelism.default": "${env:P}", "rest.port": "1"})


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"rest.prot": "${env:P}"}, "unknown configuration key 'rest.prot'; did you mean 'rest.port'?"),
        ({"rest.port": "x"}, "rest.port: 'x' is not a whole number"),
    ],
)
def test_what_is_wrong_in_them_is_found(values: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_given(values)
    assert str(raised.value) == fault


FILES = frozenset(("high-availability.zookeeper.client.ssl.key", "security.secret-file"))
"""The path of a file is no secret."""


def test_every_option_that_sounds_like_a_secret_is_one() -> None:
    """It is hidden by its name everywhere; and is looked up where it is used, so that it travels as a
    reference. An option whose value is the place of a secret belongs to FILES."""
    ours = {key for key in OPTIONS if is_secret_name(key)} - FILES
    assert {key for key in ours if not is_secret(key)} == set()
