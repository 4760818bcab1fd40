"""The OpenAPI document: what each path takes and answers, from the types that it is made of.

FastAPI knows the paths and the parameters that its handlers name; bodies and answers are structs and typed
dicts of ours, whose schemas msgspec makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from unistream.master.shown import ClusterInfo, JobsPage, JobTimeline, WorkerLog, WorkersInfo
from unistream.model import access
from unistream.model.access import Scope
from unistream.model.certificates import CertificatesShown
from unistream.model.checkpoint_figures import CheckpointsInfo
from unistream.model.job_info import DrainStatus, JobInfo
from unistream.model.job_log_line import JobLogLine
from unistream.model.letter_pages import LettersPage
from unistream.model.procedures import ProcedureReport
from unistream.port.metadata import OutboxRecord
from unistream.port.run_links import RunLink
from unistream.rest import (
    audit,
    checkpoint_shapes,
    event_log,
    figures,
    job_commits,
    letter_replays,
    plans,
    savepoints,
    shapes,
    vertices,
)
from unistream.rest.explain import JobExplained
from unistream.rest.kept_jobs import ChangesBody, KeepBody, StartBody
from unistream.rest.refusal import RefusalBody
from unistream.rest.requests import CheckpointBody, SavepointBody, StopBody
from unistream.rest.run_links import AttachBody, TakeOverBody, WatchBody
from unistream.rest.scaling import Requirements, RescaleBody
from unistream.rest.workers import DrainBody

Json: TypeAlias = dict[str, Any]

REFERENCE: Final = "#/components/schemas/{name}"
MSGPACK: Final = "application/msgpack"
PEM: Final = "application/x-pem-file"
BYTES: Final = {"type": "string", "format": "binary"}
SUBMISSION: Final = object()
"""A body of bytes: msgpack of `SubmitRequest`, which only a client of the same version makes."""


class Operation(NamedTuple):
    """What a path takes and answers with one method.

    Attributes:
        answer: The type of what it answers if all is well, with `status`.
        body: The type of what it takes; None: nothing.
        query: Parameters that its handler reads by itself, and their JSON type.
        media: The type of the answer: of a stream, `answer` is the data of each event.
        needs: The scope of a token that may ask; None: nobody has to say who asks.
        quiet: It says again and again what is so, and does not stand in the audit log.
    """

    answer: Any
    body: Any = None
    status: int = 200
    query: tuple[tuple[str, str], ...] = ()
    media: str = "application/json"
    needs: Scope | None = Scope.READ
    quiet: bool = False

    @property
    def changes(self) -> bool:
        """Who has done it is noted."""
        return self.needs not in (None, Scope.READ) and not self.quiet


PAGE: Final = (("after", "integer"), ("limit", "integer"))
SEARCH: Final = (
    *(("name", "string"), ("table", "string"), ("state", "string")),
    *(("since", "integer"), ("until", "integer"), ("cursor", "string"), ("limit", "integer")),
)

OPERATIONS: Final[dict[str, Operation]] = {
    "GET /overview": Operation(shapes.ClusterOverview),
    "GET /config": Operation(shapes.DashboardConfig),
    "GET /taskmanagers": Operation(shapes.TaskManagersShown),
    "GET /taskmanagers/{id_}": Operation(shapes.TaskManagerShown),
    "DELETE /cluster": Operation(shapes.Nothing, status=202, needs=Scope.ADMIN),
    "GET /jobs": Operation(shapes.JobIds),
    "GET /jobs/overview": Operation(shapes.JobsOverview),
    "GET /jobs/{id_}": Operation(shapes.JobDetails),
    "PATCH /jobs/{id_}": Operation(shapes.Nothing, status=202, needs=Scope.OPERATE),
    "GET /jobs/{id_}/status": Operation(shapes.JobStatusInfo),
    "GET /jobs/{id_}/exceptions": Operation(shapes.JobExceptions),
    "GET /jobs/{id_}/plan": Operation(shapes.JobPlan),
    "GET /jobs/{id_}/vertices/{vertex}/backpressure": Operation(shapes.BackPressure),
    "GET /jobs/{id_}/vertices/{vertex}/metrics": Operation(list[shapes.Counter]),
    "GET /jobs/{id_}/vertices/{vertex}/subtasks/metrics": Operation(list[shapes.Counter]),
    "POST /jobs/{id_}/savepoints": Operation(shapes.Started, SavepointBody, 202, needs=Scope.OPERATE),
    "GET /jobs/{id_}/savepoints/{trigger}": Operation(shapes.SavepointOperation),
    "POST /jobs/{id_}/stop": Operation(shapes.Started, StopBody, 202, needs=Scope.OPERATE),
    "GET /jobs/{id_}/resource-requirements": Operation(dict[str, Requirements]),
    "PUT /jobs/{id_}/resource-requirements": Operation(
        shapes.Nothing, dict[str, Requirements], needs=Scope.OPERATE
    ),
    "GET /jobs/{id_}/checkpoints": Operation(checkpoint_shapes.Checkpoints),
    "POST /jobs/{id_}/checkpoints": Operation(shapes.Started, CheckpointBody, 202, needs=Scope.OPERATE),
    "GET /jobs/{id_}/checkpoints/config": Operation(checkpoint_shapes.CheckpointConfig),
    "GET /jobs/{id_}/checkpoints/{trigger}": Operation(shapes.CheckpointOperation),
    "GET /jobs/{id_}/checkpoints/details/{checkpoint}": Operation(checkpoint_shapes.CheckpointShown),
    "GET /jobs/{id_}/checkpoints/details/{checkpoint}/subtasks/{vertex}": Operation(
        checkpoint_shapes.VertexDetails
    ),
    "GET /unistream/overview": Operation(figures.Overview),
    "GET /unistream/jobs/{id_}/vertices": Operation(vertices.Vertices),
    "GET /unistream/events": Operation(event_log.Event, media=event_log.EVENT_STREAM),
    "GET /unistream/jobs": Operation(shapes.OwnJobs),
    "POST /unistream/jobs": Operation(shapes.Submitted, SUBMISSION, 202, needs=Scope.SUBMIT),
    "GET /unistream/jobs/{id_}": Operation(JobInfo),
    "GET /unistream/jobs/{id_}/checkpoints": Operation(CheckpointsInfo),
    "GET /unistream/jobs/{id_}/checkpoints/{trigger}": Operation(shapes.PlaceOperation),
    "POST /unistream/jobs/{id_}/rescale": Operation(shapes.Started, RescaleBody, 202, needs=Scope.OPERATE),
    "GET /unistream/jobs/{id_}/rescale/{trigger}": Operation(shapes.RescaleOperation),
    "GET /unistream/jobs/{job}/log": Operation(list[JobLogLine], query=PAGE),
    "GET /unistream/jobs/{id_}/commits": Operation(job_commits.JobCommits, query=(("limit", "integer"),)),
    "GET /unistream/jobs/{id_}/state": Operation(
        savepoints.SnapshotContents, query=(("checkpoint", "integer"),)
    ),
    "GET /unistream/jobs/{id_}/dead-letters": Operation(
        LettersPage, query=(("table", "string"), ("operator", "string"), ("error", "string"))
    ),
    "POST /unistream/jobs/{id_}/dead-letters/replays": Operation(
        shapes.Started, letter_replays.ReplayBody, 202, needs=Scope.OPERATE
    ),
    "GET /unistream/jobs/{id_}/dead-letters/replays/{trigger}": Operation(letter_replays.ReplayOperation),
    "POST /unistream/savepoints/query": Operation(savepoints.QueryAnswer, savepoints.QueryBody),
    "GET /unistream/health": Operation(shapes.Health),
    "GET /unistream/taskmanagers": Operation(shapes.OwnTaskManagers),
    "GET /unistream/jobs/{id_}/explain": Operation(JobExplained),
    "GET /unistream/jobs/{id_}/timeline": Operation(JobTimeline),
    "GET /unistream/history": Operation(JobsPage, query=SEARCH),
    "GET /unistream/cluster": Operation(ClusterInfo),
    "GET /unistream/workers": Operation(WorkersInfo),
    "GET /unistream/workers/{id_}/log": Operation(WorkerLog),
    "POST /unistream/workers/{id_}/drain": Operation(DrainStatus, DrainBody, 202, needs=Scope.OPERATE),
    "GET /unistream/workers/{id_}/drain": Operation(DrainStatus),
    "GET /unistream/commits": Operation(list[OutboxRecord], query=PAGE),
    "GET /unistream/plans": Operation(plans.PlanningShown),
    "POST /unistream/plans": Operation(plans.PlanShown, plans.PlanBody, 201, needs=Scope.SUBMIT),
    "POST /unistream/plans/{id_}/start": Operation(shapes.Submitted, status=202, needs=Scope.SUBMIT),
    "PUT /unistream/cluster/refusal": Operation(shapes.RefusalState, RefusalBody, needs=Scope.OPERATE),
    "GET /unistream/kept-jobs": Operation(shapes.AllKept),
    "PUT /unistream/kept-jobs/{name}": Operation(shapes.KeptShown, KeepBody, needs=Scope.OPERATE),
    "GET /unistream/kept-jobs/{name}": Operation(shapes.KeptShown),
    "DELETE /unistream/kept-jobs/{name}": Operation(shapes.Nothing, needs=Scope.OPERATE),
    "POST /unistream/kept-jobs/{name}/check": Operation(
        shapes.Nothing, ChangesBody, needs=Scope.OPERATE, quiet=True
    ),
    "POST /unistream/kept-jobs/{name}/start": Operation(shapes.Submitted, StartBody, needs=Scope.OPERATE),
    "PUT /unistream/procedures": Operation(shapes.Nothing, ProcedureReport, needs=Scope.OPERATE, quiet=True),
    "GET /unistream/procedures": Operation(shapes.ProceduresNow, query=(("job", "string"),)),
    "GET /unistream/run-links": Operation(shapes.Found, query=(("key", "string"), ("job", "string"))),
    "POST /unistream/run-links/attach": Operation(RunLink, AttachBody, needs=Scope.OPERATE),
    "POST /unistream/run-links/heartbeat": Operation(shapes.Own, WatchBody, needs=Scope.OPERATE, quiet=True),
    "POST /unistream/run-links/release": Operation(shapes.Own, WatchBody, needs=Scope.OPERATE),
    "GET /unistream/tokens": Operation(access.TokensShown, needs=Scope.ADMIN, quiet=True),
    "POST /unistream/tokens": Operation(access.NewToken, access.TokenBody, 201, needs=Scope.ADMIN),
    "DELETE /unistream/tokens/{id_}": Operation(access.TokenShown, needs=Scope.ADMIN),
    "GET /unistream/certificates": Operation(CertificatesShown),
    "GET /unistream/certificates/authorities": Operation(str, media=PEM, needs=None),
    "POST /unistream/certificates/rotation": Operation(
        access.RotationAnswer, access.RotationBody, needs=Scope.ADMIN
    ),
    "POST /unistream/workers": Operation(access.JoinAnswer, access.JoinBody, 201, needs=Scope.JOIN),
    "GET /unistream/audit": Operation(
        audit.AuditPage, query=(("limit", "integer"),), needs=Scope.ADMIN, quiet=True
    ),
    "GET /unistream/identity": Operation(access.IdentityShown),
    "DELETE /unistream/identity": Operation(access.TokenShown),
    "POST /unistream/login-codes": Operation(access.NewCode, access.CodeBody),
    "POST /unistream/login": Operation(access.NewToken, access.LoginBody, 201, needs=None),
    "POST /unistream/run-links/take-over": Operation(shapes.LinkNow, TakeOverBody, needs=Scope.OPERATE),
}
"""The operation of each path and method. A test compares it with the paths that are served."""


class Schemas(NamedTuple):
    """The schemas of bodies and answers by method and path, of errors, and what they refer to."""

    bodies: dict[str, Json]
    answers: dict[str, Json]
    errors: Json
    components: Json


def document(app: FastAPI) -> Json:
    """The document of `app`, whose paths all stand in `OPERATIONS`."""
    about = "The REST API of a cluster: Flink's paths, and our own below /unistream."
    whole: Json = get_openapi(title=app.title, version=app.version, routes=app.routes, description=about)
    schemas = _schemas()
    for path, methods in whole["paths"].items():
        for method, described in methods.items():
            _describe(described, f"{method.upper()} {path}", schemas)
    whole["components"] = {"schemas": schemas.components}
    return whole


def _describe(described: Json, key: str, schemas: Schemas) -> None:
    """Completes what FastAPI knows of one operation."""
    operation = OPERATIONS[key]
    described["responses"] = {
        str(operation.status): _content("It is as asked.", schemas.answers[key], operation.media),
        "default": _content("It is not: why.", schemas.errors),
    }
    if operation.body is SUBMISSION:
        described["requestBody"] = {"required": True, "content": {MSGPACK: {"schema": BYTES}}}
    elif operation.body is not None:
        described["requestBody"] = {"required": False, **_json(schemas.bodies[key])}
    described.setdefault("parameters", []).extend(
        {"name": name, "in": "query", "required": False, "schema": {"type": kind}}
        for name, kind in operation.query
    )


def _content(description: str, schema: Json, media: str = "application/json") -> Json:
    return {"description": description, **_json(schema, media)}


def _json(schema: Json, media: str = "application/json") -> Json:
    return {"content": {media: {"schema": schema}}}


def _schemas() -> Schemas:
    """A field of a body may be left out if it has a default; an answer has all fields of its structs."""
    bodies = {key: o.body for key, o in OPERATIONS.items() if o.body not in (None, SUBMISSION)}
    answers = {key: o.answer for key, o in OPERATIONS.items()}
    of_bodies, taken = msgspec.json.schema_components(bodies.values(), ref_template=REFERENCE)
    (errors, *of_answers), shown = msgspec.json.schema_components(
        [shapes.Errors, *answers.values()], ref_template=REFERENCE
    )
    for struct in _structs(answers.values()):
        schema = shown[struct.cls.__name__]
        schema["required"] = list(schema.get("properties", {}))
    return Schemas(
        bodies=dict(zip(bodies, of_bodies, strict=True)),
        answers=dict(zip(answers, of_answers, strict=True)),
        errors=errors,
        components={**taken, **shown},
    )


def _structs(types: Iterable[Any]) -> Iterator[msgspec.inspect.StructType]:
    """All structs that are in `types`, however deep."""
    seen: set[int] = set()
    waiting: list[Any] = list(msgspec.inspect.multi_type_info(types))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (list, tuple)):
            waiting += node
        elif isinstance(node, (msgspec.inspect.Type, msgspec.inspect.Field)) and id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, msgspec.inspect.StructType):
                yield node
            waiting += [getattr(node, name) for name in node.__struct_fields__]
