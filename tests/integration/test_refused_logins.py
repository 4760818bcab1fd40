"""A login, a database or a right that is refused ends a job with one sentence: no restart can help. What is
only away is asked again."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import unistream as us
from tests.contract.sinks.case import batch, context, permit, request
from tests.eventually import eventually
from tests.integration.crash_runs import WAIT_S, submit
from tests.integration.test_sql_sink import ids, query, tables
from tests.postgres import PostgresServer
from unistream.base.config import Configuration
from unistream.base.errors import ConfigError
from unistream.base.ids import CheckpointId
from unistream.base.object_stores import delta_options
from unistream.client.embedded.embedded_cluster import EmbeddedCluster

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
OFTEN = {
    "execution.checkpointing.interval": "300 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


def role_of(url: str) -> str:
    return url.partition("//")[2].partition(":")[0]


def with_wrong_password(_: PostgresServer, url: str) -> str:
    return url.replace("-hunter2@", "-hunter3@")


def without_password(_: PostgresServer, url: str) -> str:
    name, _, rest = url.partition("//")[2].partition(":")
    return f"postgresql+psycopg://{name}@{rest.partition('@')[2]}"


def of_a_role_that_is_not_there(_: PostgresServer, url: str) -> str:
    return url.replace(role_of(url), "nobody")


def of_a_role_that_may_not_log_in(server: PostgresServer, url: str) -> str:
    server.execute(f"ALTER ROLE {role_of(url)} NOLOGIN")
    return url


def of_a_database_that_is_not_there(_: PostgresServer, url: str) -> str:
    return url + "_nowhere"


def of_a_database_that_it_may_not_enter(server: PostgresServer, url: str) -> str:
    server.execute(f"REVOKE CONNECT ON DATABASE {url.rpartition('/')[2]} FROM public")
    return url


LOGIN = "a role that may log in"
REFUSALS: list[tuple[Callable[[PostgresServer, str], str], str, str]] = [
    (with_wrong_password, "password authentication failed for user", LOGIN),
    (without_password, "no password supplied", LOGIN),
    (of_a_role_that_is_not_there, 'role "nobody" does not exist', LOGIN),
    (of_a_role_that_may_not_log_in, "is not permitted to log in", LOGIN),
    (of_a_database_that_is_not_there, '_nowhere" does not exist', "create that database"),
    (of_a_database_that_it_may_not_enter, "permission denied for database", "grant its role"),
]


@pytest.fixture(params=REFUSALS, ids=lambda one: one[0].__name__)
def refused_url(request: pytest.FixtureRequest, postgres: PostgresServer) -> tuple[str, str, str]:
    spoil, says, remedy = request.param
    return spoil(postgres, postgres.new_role(postgres.new_database())), says, remedy


def check_sentence(error: ConfigError, *, says: str, remedy: str) -> None:
    text = str(error)
    assert says in text
    assert remedy in text
    assert "\n" not in text
    assert "hunter" not in text, "it has no password"


def test_a_login_that_postgresql_refuses(refused_url: tuple[str, str, str]) -> None:
    url, says, remedy = refused_url
    with pytest.raises(ConfigError, match="refused looking at table rows: ") as refused:
        us.SqlSink(url, "rows").check(SCHEMA)
    check_sentence(refused.value, says=says, remedy=remedy)
    with pytest.raises(ConfigError, match="refused") as refused:
        us.SqlSink(url, "rows").create_committer().open(context())  # type: ignore[union-attr]
    check_sentence(refused.value, says=says, remedy=remedy)


def test_a_login_that_a_catalogue_in_postgresql_refuses(
    refused_url: tuple[str, str, str], tmp_path: Path
) -> None:
    url, says, remedy = refused_url
    properties = {"type": "sql", "uri": url, "warehouse": str(tmp_path)}
    with pytest.raises(ConfigError, match="Iceberg, catalog 'default': opening it was refused: ") as refused:
        us.IcebergSink("lake.rows", catalog_properties=properties).check(SCHEMA)
    check_sentence(refused.value, says=says, remedy=remedy)


def test_a_role_without_rights(postgres: PostgresServer, tmp_path: Path) -> None:
    """It may log in, and make no tables."""
    url = postgres.new_role(postgres.new_database())
    committer = us.SqlSink(url, "rows").create_committer()
    assert committer is not None
    with pytest.raises(ConfigError, match="refused creating table 'unistream_sink_commits'") as refused:
        committer.open(context())
    committer.close()
    check_sentence(refused.value, says="permission denied for schema public", remedy="grant its role")
    properties = {"type": "sql", "uri": url, "warehouse": str(tmp_path)}
    with pytest.raises(ConfigError, match="Iceberg, catalog 'default': opening it was refused: ") as refused:
        us.IcebergSink("lake.rows", catalog_properties=properties).check(SCHEMA)
    check_sentence(refused.value, says="permission denied for schema public", remedy="grant its role")
    gc.collect()  # a connection that is left would be reported


@pytest.mark.parametrize(
    ("file", "says", "remedy"),
    [
        ("nowhere/rows.db", "unable to open database file", "the folder has to exist"),
        ("text.db", "file is not a database", "name a file of SQLite"),
    ],
)
def test_a_file_that_sqlite_refuses(tmp_path: Path, file: str, says: str, remedy: str) -> None:
    (tmp_path / "text.db").write_text("no database\n" * 200)
    url = f"sqlite:///{tmp_path / file}"
    with pytest.raises(ConfigError, match="refused looking at table rows: ") as refused:
        us.SqlSink(url, "rows").check(SCHEMA)
    check_sentence(refused.value, says=says, remedy=remedy)
    properties = {"type": "sql", "uri": url, "warehouse": str(tmp_path / "lake")}
    with pytest.raises(ConfigError, match="Iceberg, catalog 'default': opening it was refused: ") as refused:
        us.IcebergSink("lake.rows", catalog_properties=properties).check(SCHEMA)
    check_sentence(refused.value, says=says, remedy=remedy)


def test_a_file_that_sqlite_may_only_read(tmp_path: Path) -> None:
    query(f"sqlite:///{tmp_path / 'rows.db'}", "CREATE TABLE rows (id BIGINT, name TEXT)")
    url = f"sqlite:///file:{tmp_path / 'rows.db'}?mode=ro&uri=true"
    us.SqlSink(url, "rows").check(SCHEMA)
    committer = us.SqlSink(url, "rows").create_committer()
    assert committer is not None
    with pytest.raises(ConfigError, match="refused creating table") as refused:
        committer.open(context())
    committer.close()
    check_sentence(refused.value, says="attempt to write a readonly database", remedy="to write the file")


def revoke_writing(server: PostgresServer, role: str, url: str) -> None:
    query(url, f"ALTER TABLE rows OWNER TO {server.url('').partition('//')[2].partition('@')[0]}")


def change_the_password(server: PostgresServer, role: str, url: str) -> None:
    server.execute(f"ALTER ROLE {role} PASSWORD 'another'")
    server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")


@pytest.mark.parametrize(
    ("withdraw", "says"),
    [
        (revoke_writing, "permission denied for table rows.*grant its role"),
        (change_the_password, "password authentication failed.*a role that may log in"),
    ],
)
def test_a_right_that_is_withdrawn_while_the_job_runs(
    postgres: PostgresServer,
    tmp_path: Path,
    withdraw: Callable[[PostgresServer, str, str], None],
    says: str,
) -> None:
    """The job fails with the sentence, though its restarts have no end."""
    admin = postgres.new_database()
    url = postgres.new_role(admin)
    query(admin, f"GRANT CREATE ON SCHEMA public TO {role_of(url)}")
    with EmbeddedCluster("local", Configuration(), workdir=tmp_path / "cluster", rest=False) as cluster:
        env = us.Environment({"parallelism.default": "1"})
        source = us.DatagenSource(
            {"id": us.datagen.Sequential()}, rows=None, bounded=False, rows_per_second=1_000
        )
        rows = env.from_source(source, us.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        rows.sink_to(us.SqlSink(url, "rows")).uid("table")
        job = submit(cluster, env, OFTEN, None)
        eventually(lambda: "rows" in tables(admin), "the first commit", WAIT_S, 0.2)
        withdraw(postgres, role_of(url), admin)
        with pytest.raises(ConfigError, match=says):
            job.result(WAIT_S)
    found = ids(admin)
    assert found == list(range(len(found))), "whole checkpoints, once"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "InvalidAccessKeyId"),
    ],
)
def test_access_that_s3_refuses(s3: str, options: dict[str, str], says: str) -> None:
    url = "s3://unistream/refused/table"
    wrong = us.DeltaSink(url, storage_options={**delta_options(url, {}), **options})
    with pytest.raises(ConfigError, match=f"table {url}: its store refused access.*{says}") as refused:
        wrong.check(SCHEMA)
    check_sentence(refused.value, says="(403 ", remedy="storage_options")


def test_access_that_s3_refuses_to_a_committer(s3: str) -> None:
    url = "s3://unistream/refused/commits"
    sink = us.DeltaSink(url)
    writer = sink.create_writer()
    writer.open(context(), [])
    writer.write(batch(1))
    writer.flush(end_of_input=False)
    prepared = writer.prepare_commit(CheckpointId(1))
    wrong = us.DeltaSink(
        url, storage_options={**delta_options(url, {}), "AWS_SECRET_ACCESS_KEY": "wrong"}
    ).create_committer()
    assert wrong is not None
    with pytest.raises(ConfigError, match=f"table {url}: its store refused access"):
        wrong.open(context())
    wrong.close()
    committer = sink.create_committer()
    assert committer is not None
    committer.open(context())
    assert committer.commit(permit(1), request(1, *prepared)).rows == 1
    committer.close()
    writer.close()
