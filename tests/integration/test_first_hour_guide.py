"""The first hour: README and the beginning of the tour, typed as they stand; and a pipeline that goes on."""

from __future__ import annotations

import importlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from deltalake import DeltaTable
from kafka import KafkaProducer

from tests.eventually import WAIT_S, eventually
from tests.guide_page import GUIDE, ROOT, Reader, reader, steps_of

pytestmark = [pytest.mark.kafka]

RUN = re.compile(r"^unistream run sales:sales .*$", re.MULTILINE)


@pytest.mark.own_network
def test_readme_and_tour_until_the_first_test(tmp_path: Path) -> None:
    with reader(tmp_path) as typist:
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        typist.assert_as_said(steps_of(readme))
        assert_definitions_are_loaded(typist.folder)
        [run] = RUN.findall(readme)
        assert_each_sale_counts_once(typist, f"{run} -t local -p 2")
        tour = (GUIDE / "tour.md").read_text(encoding="utf-8")
        typist.assert_as_said(steps_of(tour.partition("\n## 5. ")[0]))


def assert_definitions_are_loaded(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        for name in ("sales", "definitions"):
            patch.delitem(sys.modules, name, raising=False)
        found: dg.Definitions = importlib.import_module("definitions").defs
        dg.Definitions.validate_loadable(found)
        keys = {key.to_user_string() for key in found.resolve_asset_graph().materializable_asset_keys}
        for name in ("sales", "definitions"):
            del sys.modules[name]
    assert keys == {"lake/sales_per_minute"}


def assert_each_sale_counts_once(typist: Reader, run: str) -> None:
    """`run` is stopped by Ctrl-C, and typed again."""
    lake = typist.folder / "lake" / "sales_per_minute"
    for minutes in (10, 20):
        send_sales(range(60 * (minutes - 10), 60 * minutes))
        least = 60 * (minutes - 2)  # one is open, and one may be behind the watermark
        job = subprocess.Popen(
            run.split(),
            cwd=typist.folder,
            env=typist.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            eventually(lambda least=least: sales_in(lake) >= least, "minutes are in the table", WAIT_S, 0.3)
        finally:
            job.send_signal(signal.SIGINT)
            printed, _ = job.communicate(timeout=WAIT_S)
        assert job.returncode == 130, printed
        assert "no uid" not in printed
    table = DeltaTable(str(lake)).to_pyarrow_table()
    assert set(table.column("sales").to_pylist()) == {20}
    assert set(table.column("volume").to_pylist()) == {30.0}


def send_sales(seconds: range) -> None:
    """A row each second, of three shops."""
    producer = KafkaProducer(bootstrap_servers="127.0.0.1:9092")
    for number in seconds:
        row = {"shop": f"shop {number % 3}", "amount": 1.5, "sold_at": 1_767_600_000_000 + number * 1_000}
        producer.send("sales", json.dumps(row).encode(), partition=number % 2)
    producer.flush()
    producer.close()


def sales_in(lake: Path) -> int:
    if not DeltaTable.is_deltatable(str(lake)):
        return 0
    return sum(DeltaTable(str(lake)).to_pyarrow_table().column("sales").to_pylist())
