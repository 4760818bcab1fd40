"""What do two hosts and TLS cost? Hosts are network namespaces of this machine (Linux, as root).

    python -m benchmarks.hosts                     all parts
    python -m benchmarks.hosts exchange --gb 2     rows from one host to another: plain, and by TLS
    python -m benchmarks.hosts windows             a windowed count, its workers on one host and on two
    python -m benchmarks.hosts start               seconds until a cluster is there: on loopback, and beyond

One JSON line for each case. The cases of a part take turns, and the best run of each counts: whatever else
the machine does can only add to it. REST by TLS: `python -m benchmarks.service overview --tls`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.windowed_count import data_file
from tests.integration.on_hosts import OPEN, HostedCluster, cluster_on
from tests.support.servers.hosts import Host, Hosts

REPOSITORY: Final = Path(__file__).parents[1]
KEYS: Final = 10_000
ENDS_S: Final = 60.0
ON_LOOPBACK: Final = {"rest.port": "0", "jobmanager.rpc.port": "0"}
WINDOWS: Final = {"one host": ("b", "b"), "two hosts": ("b", "c")}


def exchange(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Rows from a process on one host to a process on another, with credits."""
    with Hosts(folder / "hosts", "b", "c") as hosts:
        runs: dict[str, list[dict[str, Any]]] = {"tcp": [], "tls": []}
        for _ in range(options.runs):
            for transport, found in runs.items():
                found.append(_exchanged(hosts, transport, options))
    for transport, found in runs.items():
        yield {"transport": transport, **max(found, key=lambda run: run["gb_per_s"])}


def _exchanged(hosts: Hosts, transport: str, options: argparse.Namespace) -> dict[str, Any]:
    producer, consumer = hosts["b"], hosts["c"]
    module = (sys.executable, "-m", "benchmarks.exchange", "--rows", str(options.rows))
    serve = [*producer.wrapper, *module, "--serve", transport, "--host", producer.address]
    with subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        found: dict[str, Any] = json.loads(consumer.run(*module, "--connect", line, "--gb", str(options.gb)))
    return found


def windows(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Rows/s by the difference of two sizes, so that what is paid once does not count."""
    sizes = (options.events, 4 * options.events)
    for rows in sizes:
        data_file("parquet", KEYS, rows)
    seconds: dict[str, list[dict[int, float]]] = {name: [] for name in WINDOWS}
    for number in range(options.runs):
        for name, places in WINDOWS.items():
            at = folder / f"{number}-{'-'.join(places)}"
            at.mkdir()
            seconds[name].append(_windowed(at, places, sizes))
    for name, runs in seconds.items():
        small, large = (min(run[rows] for run in runs) for rows in sizes)
        rate = round((sizes[1] - sizes[0]) / (large - small)) if large > small else None
        yield {"workers": name, "rows_per_s": rate, "small_s": round(small, 2), "large_s": round(large, 2)}


def _windowed(folder: Path, places: Sequence[str], sizes: Sequence[int]) -> dict[int, float]:
    """Seconds of each size, on workers with one slot each at `places`."""
    with Hosts(folder / "hosts", "a", "b", "c") as hosts, cluster_on(folder, hosts) as cluster:
        url = cluster.master("a").urls[-1]
        token = cluster.says("a", "cluster", "token", "--uses", str(len(places)))
        for place in places:
            cluster.worker(place, url, token)
        return {rows: _ran_s(cluster, rows) for rows in sizes}


def _ran_s(cluster: HostedCluster, rows: int) -> float:
    path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    values = {"parallelism.default": "2", "execution.runtime-mode": "STREAMING"}
    defined = [word for key, value in values.items() for word in ("-D", f"{key}={value}")]
    env = {"PYTHONPATH": path, "BENCHMARK_ROWS": str(rows)}
    said = cluster.says("a", "run", "benchmarks.hosts:build", "-t", "remote", "--json", *defined, env=env)
    result = json.loads(said)
    if result["state"] != "FINISHED":
        raise SystemExit(f"the job ended {result['state']}: {said}")
    listed = json.loads(cluster.says("a", "info", result["job"], "--json"))
    return float(listed["duration_ms"]) / 1000


def build(env: Any) -> None:
    """The pipeline of `windows`, of `BENCHMARK_ROWS` rows."""
    import unistream as us
    from benchmarks.windowed_count import SCHEMA

    path = data_file("parquet", KEYS, int(os.environ["BENCHMARK_ROWS"]))
    source = us.FileSource(str(path), format="parquet", schema=SCHEMA)
    watermarks = us.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("ts")
    bids = env.from_source(source, watermarks, name="bids").uid("bids")
    windowed = bids.key_by("auction").window(us.TumblingEventTimeWindows.of("10 s"))
    windowed.aggregate(us.count(), us.sum("price")).uid("windows").sink_to(us.BlackholeSink()).uid("sink")


def start(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """A cluster of a new home each time; beyond loopback it makes an authority and certificates first."""
    cases = {"loopback": ON_LOOPBACK, "all addresses": {**ON_LOOPBACK, **OPEN, "rest.address": "host-a"}}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    with Hosts(folder / "hosts", "a") as hosts:
        for number in range(2 * options.runs + 1):
            for name, config in cases.items():
                took_s = _started_s(hosts["a"], folder / f"{number}-{len(config)}", config)
                if number:  # the first warms the disk's cache
                    seconds[name].append(took_s)
    for name, found in seconds.items():
        yield {"listens": name, "started_s": round(median(found), 2), "best_s": round(min(found), 2)}


def _started_s(host: Host, home: Path, config: dict[str, str]) -> float:
    defined = [word for key, value in config.items() for word in ("-D", f"{key}={value}")]
    command = ["-m", "unistream.cli.main", "cluster", "start", "-t", "standalone", "--json", *defined]
    words = [*host.wrapper, sys.executable, *command, "--workdir", str(home / "work")]
    env = {**os.environ, "UNISTREAM_HOME": str(home)}
    began = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=env, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took_s = time.perf_counter() - began
        process.terminate()
        process.wait(ENDS_S)
    if not line:
        raise SystemExit("the cluster did not start")
    return took_s


PARTS: Final = {"exchange": exchange, "windows": windows, "start": start}


def main() -> None:
    """Prints the lines of each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--runs", type=int, default=3, help="of each case")
    parser.add_argument("--gb", type=float, default=2.0, help="of exchange")
    parser.add_argument("--rows", type=int, default=65_536, help="of a batch of exchange")
    parser.add_argument("--events", type=int, default=10_000_000, help="of the smaller job of windows")
    options = parser.parse_args()
    for name in options.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="unistream-hosts-") as folder:
            for line in PARTS[name](options, Path(folder)):
                load = round(os.getloadavg()[0], 1)
                print(
                    json.dumps({"benchmark": "hosts", "part": name, **line, "load_average": load}), flush=True
                )


if __name__ == "__main__":
    main()
