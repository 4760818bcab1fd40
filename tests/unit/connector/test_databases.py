"""What a database refuses, by the errors of its drivers."""

from __future__ import annotations

import sqlite3

import pytest

from unistream.base.errors import ConfigError
from unistream.connector.common import remedy
from unistream.connector.delta.access import refused_access
from unistream.connector.delta.table import _committing


class DriverError(Exception):
    """With the attributes of an error of psycopg (`sqlstate`) or psycopg2 (`pgcode`)."""

    def __init__(self, text: str = "", **codes: str) -> None:
        super().__init__(text)
        vars(self).update(codes)


class Wrapped(Exception):
    """As SQLAlchemy wraps it."""

    def __init__(self, orig: BaseException) -> None:
        super().__init__(f"(driver) {orig}\n[SQL: SELECT 1]")
        self.orig = orig


def caused_by(error: BaseException) -> BaseException:
    outer = RuntimeError("the catalogue failed")
    outer.__cause__ = error
    return outer


LOGIN, DATABASE, RIGHTS = "may log in", "create that database", "grant its role"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (DriverError(sqlstate="28P01"), LOGIN),
        (DriverError(pgcode="28000"), LOGIN),
        (DriverError(sqlstate="3D000"), DATABASE),
        (DriverError(sqlstate="42501"), RIGHTS),
        (Wrapped(DriverError(sqlstate="42501")), RIGHTS),
        (caused_by(Wrapped(DriverError(pgcode="42501"))), RIGHTS),
        (DriverError('FATAL:  no pg_hba.conf entry for host "10.0.0.7", user "lake", database "x"'), LOGIN),
        (DriverError('FATAL:  LDAP authentication failed for user "lake"'), LOGIN),
        (DriverError('FATAL:  permission denied for database "lake"\nDETAIL:  no CONNECT'), RIGHTS),
        (DriverError("FATAL:  the database system is starting up"), None),
        (DriverError('FATAL:  too many connections for role "lake"'), None),
        (DriverError("server closed the connection unexpectedly"), None),
        (DriverError('relation "role "x" does not exist"', sqlstate="42P01"), None),
        (DriverError(sqlstate="57P01"), None),
        (sqlite3.OperationalError("database is locked"), None),
    ],
)
def test_what_can_be_done_about_a_refusal(error: BaseException, says: str | None) -> None:
    found = remedy(error)
    assert (found is None) if says is None else (found is not None and says in found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "Kernel error -> The operation lacked the necessary privileges to complete for path t\n"
            " 403 Forbidden\n<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>",
            "its store refused access (403 AccessDenied Access Denied)",
        ),
        (
            "The operation lacked valid authentication credentials for path t: 401 Unauthorized",
            "its store refused access (401)",
        ),
        ("Generic S3 error: 503 SlowDown", None),
    ],
)
def test_access_to_a_table_that_its_store_refuses(text: str, says: str | None) -> None:
    found = refused_access("s3://lake/t", OSError(text))
    assert (found is None) if says is None else (says in str(found))


def test_a_commit_that_is_refused_access_is_not_tried_again() -> None:
    """Its outcome is known: a store that refuses writes nothing."""
    with (
        pytest.raises(ConfigError, match="table s3://lake/t: its store refused access"),
        _committing("s3://lake/t"),
    ):
        raise OSError("The operation lacked the necessary privileges to complete")
