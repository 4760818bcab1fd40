"""What the user has set for Spark, in whichever place, is not replaced by a default of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from unistream.host.spark_settings import set_elsewhere, spark_settings

UI = "spark.ui.enabled"
FILE = """\
# spark.app.name mine
! spark.driver.host    other
  spark.ui.enabled    true
spark.driver.memory=4g
spark.eventLog.dir: hdfs://logs

not-a-setting
"""


@pytest.mark.parametrize(
    ("arguments", "file", "keys"),
    [
        ("", "", set()),
        ("", FILE, {UI, "spark.driver.memory", "spark.eventLog.dir"}),
        ("--conf spark.ui.enabled=true -c 'spark.app.name=a b' pyspark-shell", "", {UI, "spark.app.name"}),
        ("--conf=spark.ui.enabled=true --master local[2] pyspark-shell", "", {UI}),
        ("--conf", "", set()),
    ],
)
@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_where_users_set_options_of_every_spark(
    arguments: str, file: str, keys: set[str], variable: str, tmp_path: Path
) -> None:
    folder = tmp_path if variable == "SPARK_CONF_DIR" else tmp_path / "conf"
    folder.mkdir(exist_ok=True)
    if file:
        (folder / "spark-defaults.conf").write_text(file, encoding="utf-8")
    assert set_elsewhere({"PYSPARK_SUBMIT_ARGS": arguments, variable: str(tmp_path)}) == keys


@pytest.mark.parametrize(
    ("config", "elsewhere", "enabled"),
    [({}, (), "false"), ({UI: "true"}, (), "true"), ({}, (UI,), None), ({UI: "false"}, (UI,), "false")],
)
def test_the_nearest_setting_wins(
    config: dict[str, str], elsewhere: tuple[str, ...], enabled: str | None
) -> None:
    made = spark_settings(config, local=True, own_daemon=True, elsewhere=frozenset(elsewhere))
    assert made.get(UI) == enabled


def test_what_workers_need_is_not_left_to_a_file_for_every_spark() -> None:
    made = spark_settings(
        {}, local=False, own_daemon=False, elsewhere=frozenset({"spark.python.worker.reuse"})
    )
    assert made["spark.python.worker.reuse"] == "false"
    assert "spark.python.daemon.module" not in made
    assert "spark.driver.memory" not in made, "of a cluster it is the user's"


@pytest.mark.parametrize(
    ("config", "elsewhere", "driver"),
    [
        pytest.param({}, (), (None, None), id="all is on one host"),
        pytest.param({"jobmanager.rpc.address": "d"}, (), (None, None), id="the JobManager is on loopback"),
        pytest.param(
            {"jobmanager.rpc.address": "d", "jobmanager.bind-host": "0.0.0.0"},
            (),
            ("d", "0.0.0.0"),
            id="where workers reach the JobManager",
        ),
        pytest.param(
            {"jobmanager.rpc.address": "d", "jobmanager.bind-host": "0.0.0.0", "spark.driver.host": "e"},
            (),
            ("e", "0.0.0.0"),
            id="as the user says",
        ),
        pytest.param(
            {"jobmanager.rpc.address": "d", "jobmanager.bind-host": "0.0.0.0"},
            ("spark.driver.host", "spark.driver.bindAddress"),
            (None, None),
            id="as a file for every Spark says",
        ),
    ],
)
def test_executors_reach_the_driver_where_workers_reach_the_job_manager(
    config: dict[str, str], elsewhere: tuple[str, ...], driver: tuple[str | None, str | None]
) -> None:
    made = spark_settings(config, local=False, own_daemon=True, elsewhere=frozenset(elsewhere))
    assert (made.get("spark.driver.host"), made.get("spark.driver.bindAddress")) == driver
