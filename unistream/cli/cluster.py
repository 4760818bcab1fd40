"""`unistream cluster start`: a session cluster in the foreground. `cluster stop` ends one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unistream.base.config import Configuration
from unistream.base.open_files import allow_many_files
from unistream.cli.cluster_stop import stop
from unistream.cli.cluster_token import token
from unistream.cli.ending import StopSignals
from unistream.cli.errors import log_to_stderr, report
from unistream.cli.options import AsJson, Defines, Verbose, layered_options
from unistream.cli.output import console, print_json
from unistream.client.embedded.hosts import chosen_target
from unistream.client.job.sessions import in_session_folder, other_sessions
from unistream.client.remote.address import elected_name

if TYPE_CHECKING:
    from unistream.client.embedded.embedded_cluster import EmbeddedCluster

app: Final = typer.Typer(add_completion=False, no_args_is_help=True, help="Session clusters.")


@app.callback()
def _group() -> None:
    """Session clusters: one master that accepts jobs until it is shut down."""


app.command("stop")(stop)
app.command("token")(token)


@app.command()
def start(
    target: Annotated[
        str | None,
        typer.Option("-t", "--target", help="spark (the default if installed), local or standalone."),
    ] = None,
    workdir: Annotated[
        str | None,
        typer.Option(
            help="Folder for jobs, logs, checkpoints, savepoints and metadata; without it "
            "$UNISTREAM_HOME/sessions/NAME, where NAME is high-availability.cluster-id."
        ),
    ] = None,
    defines: Defines = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Start a cluster, print its REST address, run until SIGINT, SIGTERM, `cluster stop` or DELETE /cluster.

    It goes on with the jobs that an earlier cluster on its folder has left. Jobs that run when it ends are
    suspended: their checkpoints stay, and the next cluster on its folder goes on with them. A second signal
    ends it at once, with exit code 130 (SIGINT) or 143 (SIGTERM); nothing is lost by that either.
    """
    config = layered_options(defines).whole()
    log_to_stderr(verbose)
    allow_many_files()
    with StopSignals() as ending:
        with _started(chosen_target(target), config, workdir, ending, as_json=as_json) as cluster:
            ending.claim()  # Spark may have replaced the handlers
            ending.abandon = cluster.abandon
            if cluster.is_elected:
                _print_contender(cluster, elected_name(config), as_json=as_json)
            else:
                _print_leader(cluster, as_json=as_json)
            ending.requested.wait()
            if cluster.failure is not None:
                raise cluster.failure
            if not as_json:
                console().print(
                    "shutting down: running jobs are suspended and keep their checkpoints; a second "
                    "Ctrl-C does not wait for their tasks"
                )
        if ending.exit_code:
            raise typer.Exit(ending.exit_code)


def _started(
    target: str, config: Configuration, workdir: str | None, ending: StopSignals, *, as_json: bool
) -> EmbeddedCluster:
    from unistream.client.embedded.embedded_cluster import ClusterListener, EmbeddedCluster

    def start(folder: str | Path) -> EmbeddedCluster:
        return EmbeddedCluster(
            target,
            config,
            workdir=folder,
            listener=ClusterListener(
                on_shutdown_request=ending.requested.set,
                on_leading=lambda cluster: _print_leader(cluster, as_json=as_json),
            ),
        )

    return in_session_folder(config, start) if workdir is None else start(workdir)


def _print_leader(cluster: EmbeddedCluster, *, as_json: bool) -> None:
    """Prints where the cluster is; with several masters each time that this one begins to lead."""
    jobs_found = cluster.dispatcher.jobs_found
    for note in cluster.dispatcher.notes():
        report(note)
    if as_json:
        facts = {
            "cluster": cluster.dispatcher.cluster,
            "url": cluster.rest_url,
            "workdir": str(cluster.workdir),
        }
        print_json({**facts, "jobmanager": cluster.jobmanager, "jobs_found": jobs_found})
        return
    out = console()
    out.print(f"cluster {cluster.dispatcher.cluster} ({cluster.target}) listens on {cluster.rest_url}")
    jobs = (
        "no job was left there"
        if not jobs_found
        else f"it goes on with {jobs_found} job(s) that it found there"
    )
    if cluster.is_elected:
        out.print(f"it leads now; {jobs}")
        return
    if cluster.jobmanager is not None:
        out.print(f"it has no workers yet; start each with: {_worker_command(cluster)}", markup=False)
    out.print(f"its folder is {cluster.workdir}; {jobs}", markup=False)
    out.print("stop it with Ctrl-C, or 'unistream cluster stop'")
    if others := other_sessions(cluster.rest_url):
        report(f"another session cluster runs here, at {others[0]}: to start a job, name one by -m HOST:PORT")


def _worker_command(cluster: EmbeddedCluster) -> str:
    if cluster.is_encrypted:
        place = f"unistream taskmanager start -m {cluster.rest_url} --join TOKEN"
        return f"{place}, where 'unistream cluster token' prints TOKEN"
    return f"unistream taskmanager start --jobmanager {cluster.jobmanager}"


def _print_contender(cluster: EmbeddedCluster, where: str, *, as_json: bool) -> None:
    if as_json:
        facts = {"cluster": cluster.id, "contends": where, "workdir": str(cluster.workdir)}
        print_json({**facts, "serves_at": cluster.serves_at})
        return
    out = console()
    out.print(f"master {cluster.id} ({cluster.target}) is a standby until it is elected at {where}")
    out.print(f"it answers for the leader at {cluster.serves_at}")
    out.print(f"its folder is {cluster.workdir}; stop it with Ctrl-C", markup=False)
