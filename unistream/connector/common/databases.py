"""What a database refuses, whatever library reports it: by SQLSTATE (PostgreSQL), by SQLite's codes, and by
text where PostgreSQL's client has no code: of a login that was refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_LOGIN: Final = "give the URL the name and the password of a role that may log in there"
_DATABASE: Final = "create that database, or correct its name in the URL"
_RIGHTS: Final = "grant its role what the job needs there (docs/guide/sql.md lists it)"
_CLASSES: Final = (("28", _LOGIN), ("3D000", _DATABASE), ("42501", _RIGHTS))
"""Beginnings of SQLSTATE: invalid authorization; no such database; insufficient privilege."""
_LOGIN_TEXTS: Final = re.compile(
    r"authentication failed|no password supplied|role \"[^\"]*\" does not exist|is not permitted to log in"
    r"|no pg_hba\.conf entry|pg_hba\.conf rejects|requires a valid client certificate"
)
_DATABASE_TEXTS: Final = re.compile(r"database \"[^\"]*\" does not exist")
_RIGHTS_TEXTS: Final = re.compile(r"permission denied for database")
_TEXTS: Final = ((_LOGIN_TEXTS, _LOGIN), (_DATABASE_TEXTS, _DATABASE), (_RIGHTS_TEXTS, _RIGHTS))
_SQLITE: Final[Mapping[int, str]] = {
    3: "the user of the process has to be able to read and write the file",  # SQLITE_PERM
    8: "the user of the process has to be able to write the file and its folder, and nobody may move it "
    "meanwhile",  # SQLITE_READONLY
    11: "bring back a backup of the file",  # SQLITE_CORRUPT
    14: "the folder has to exist, and the user of the process has to be able to write to it",  # _CANTOPEN
    23: "the user of the process has to be able to read and write the file",  # SQLITE_AUTH
    26: "name a file of SQLite, or one that is not there yet",  # SQLITE_NOTADB
}
_CHAIN_MAX: Final = 5  # causes that are looked at


def remedy(error: BaseException) -> str | None:
    """What to do about a login, a database or a right that was refused; None: `error` is something else.

    `error`: of a driver (psycopg, psycopg2, sqlite3), or one that has such a one in `orig`, as those of
    SQLAlchemy, or as its cause.

    >>> remedy(OSError('connection failed: FATAL:  database "lake" does not exist'))
    'create that database, or correct its name in the URL'
    >>> remedy(OSError("connection failed: FATAL:  the database system is starting up"))
    """
    one: BaseException | None = error
    for _ in range(_CHAIN_MAX):
        if one is None:
            break
        found = _of_driver(getattr(one, "orig", None) or one)
        if found is not None:
            return found
        one = one.__cause__
    return None


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of an error of PostgreSQL's drivers; "": it has none.

    >>> sqlstate(OSError())
    ''
    """
    return str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")


def sqlite_code(error: BaseException) -> int:
    """The primary code of an error of SQLite, whose upper bits say more; 0: it is none of SQLite."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _of_driver(error: BaseException) -> str | None:
    if code := sqlite_code(error):
        return _SQLITE.get(code)
    if state := sqlstate(error):
        return next((what for begin, what in _CLASSES if state.startswith(begin)), None)
    text = str(error)
    return next((what for texts, what in _TEXTS if texts.search(text)), None)
