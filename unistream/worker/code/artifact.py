"""Packs the user's code and opens it in a worker.

An artifact is the cloudpickle of a `JobCode`, named by its SHA-256. The client packs it, the master stores
and forwards bytes, and only a worker process of that job opens it, after the content has been compared with
the name in the deployment.

Modules of the user's project precede the pickle, as sources (`user_modules`, `shipped_modules`):

    b"unistream-modules" · length, 8 bytes, big endian · `ModuleSource`s as MessagePack · pickle
"""

from __future__ import annotations

import hashlib
import io
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import msgspec

from unistream.base.code_pickle import CodePickler, dumps, loads, taken_whole
from unistream.base.errors import ConfigError, MissingCode, ProtocolError, UserCodeError
from unistream.base.ids import JobId
from unistream.base.limits import ARTIFACT_BYTES_MAX
from unistream.model.chain import JobCode
from unistream.model.messages import Answer, Artifact, FetchArtifact, Refused
from unistream.worker.code.shipped_modules import shipped
from unistream.worker.code.unsendable import what_is_unsendable
from unistream.worker.code.user_modules import ModuleSource, own_modules

ARTIFACTS_KEPT: Final = 2  # a process serves one job, and perhaps the next one
_MODULES: Final = b"unistream-modules"  # no pickle begins like this
_LENGTH_BYTES: Final = 8
_MAIN: Final = "__main__"


def pack(code: JobCode, *, by_value: Iterable[ModuleType] = (), with_modules: bool = False) -> bytes:
    """The bytes of an artifact.

    Args:
        code: The chains of the job; not yet set up.
        by_value: Modules whose functions and classes travel inside the pickle. What is defined in
            ``__main__`` always does.
        with_modules: The sources of the user's own modules travel, too: for workers in other processes.

    Raises:
        ConfigError: something in a pipeline cannot be sent (an open file, a lock, a client …), or the
            artifact is too large.
    """
    content = _packed(code, by_value=by_value, with_modules=with_modules)
    if len(content) > ARTIFACT_BYTES_MAX:
        raise ConfigError(f"the pipeline's code has {len(content)} B, limit {ARTIFACT_BYTES_MAX} B")
    return content


def pack_pipeline(pipeline: object) -> bytes:
    """What a job was made of, with the user's own modules: as its artifact, for `open_pipeline` alone.

    Raises:
        ConfigError: something in it cannot be sent.
    """
    return _packed(pipeline, by_value=(), with_modules=True)


def _packed(code: object, *, by_value: Iterable[ModuleType], with_modules: bool) -> bytes:
    inside = {_MAIN}
    target = io.BytesIO()
    pickler = _RecordingPickler(target)
    with ExitStack() as registered:
        for module in by_value:
            if module.__name__ != _MAIN:
                inside.add(module.__name__)
                registered.enter_context(taken_whole(module))
        try:
            pickler.dump(code)
        except Exception as error:
            what = what_is_unsendable(code, dumps) if isinstance(code, JobCode) else ""
            reasons = [what] * bool(what) + [type(error).__name__, str(error)]
            raise ConfigError(
                f"the pipeline cannot be sent to workers: {': '.join(reasons)}; "
                "create such objects inside the function, or in open()"
            ) from error
    modules = own_modules(pickler.referred, by_value=inside) if with_modules else ()
    return _joined(msgspec.msgpack.encode(modules) if modules else b"", target.getvalue())


def sha256(content: bytes) -> str:
    """The name of an artifact, in hex."""
    return hashlib.sha256(content).hexdigest()


def load(content: bytes, expected_sha256: str) -> JobCode:
    """New, unshared objects of every operator of the job.

    Raises:
        ProtocolError: the content is not the artifact that the deployment names; it was not opened.
        MissingCode: it needs a module, or a name in one, that this worker does not have.
        UserCodeError: it cannot be opened here for another reason.
    """
    if len(content) > ARTIFACT_BYTES_MAX or sha256(content) != expected_sha256:
        raise ProtocolError(f"the artifact is not {expected_sha256}; it was not opened")
    code, _ = _opened(content)
    if not isinstance(code, JobCode):
        raise ProtocolError(f"the artifact {expected_sha256} holds no job")
    return code


def open_pipeline(content: bytes) -> tuple[object, bytes]:
    """What `pack_pipeline` was given, and the modules that came with it, for `pack_with`. Runs the user's
    code: in a process of its own. Raises MissingCode, UserCodeError: as `load`."""
    return _opened(content)


def pack_with(code: JobCode, modules: bytes) -> bytes:
    """The bytes of an artifact whose modules came with a pipeline. Raises ConfigError: as `pack`."""
    content = _joined(modules, _packed(code, by_value=(), with_modules=False))
    if len(content) > ARTIFACT_BYTES_MAX:
        raise ConfigError(f"the pipeline's code has {len(content)} B, limit {ARTIFACT_BYTES_MAX} B")
    return content


def _opened(content: bytes) -> tuple[object, bytes]:
    modules, pickled = _parted(content)
    try:
        with shipped.lock:
            shipped.activate(sha256(modules) if modules else "", _decoded(modules))
            return loads(pickled), modules
    except (ImportError, AttributeError) as error:
        raise MissingCode(_what_is_missing(error)) from error
    except (Exception, SystemExit) as error:  # a module may call sys.exit() where it is imported
        raise UserCodeError(
            f"the pipeline's code cannot be opened on Python {sys.version.split()[0]}: "
            f"{type(error).__name__}: {error}; is everything that it imports installed on the workers?"
        ) from error


class ArtifactCache:
    """The user's code of the jobs of this process, fetched once. Each `open` returns new objects."""

    def __init__(self, fetch: Callable[[FetchArtifact], Answer]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._content: OrderedDict[str, bytes] = OrderedDict()

    def open(self, job: JobId, sha256: str) -> JobCode:
        """See `worker.process.ports.CodeStore`."""
        with self._lock:  # the tasks of a job start together: one fetches, the others wait for it
            content = self._content.get(sha256)
            if content is None:
                content = self._download(job, sha256)
            code = load(content, sha256)
            self._content[sha256] = content
            self._content.move_to_end(sha256)
            while len(self._content) > ARTIFACTS_KEPT:
                self._content.popitem(last=False)
        return code

    def _download(self, job: JobId, sha256: str) -> bytes:
        answer = self._fetch(FetchArtifact(job=job, sha256=sha256))
        if isinstance(answer, Artifact):
            return answer.content
        reason = answer.reason if isinstance(answer, Refused) else "no artifact in the answer"
        raise ProtocolError(f"the master did not send artifact {sha256}: {reason}")


class _RecordingPickler(CodePickler):
    """Collects in `referred` the names of the modules of all functions and classes that it pickles."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.referred: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType):
            self.referred.add(obj.__name__)
        elif isinstance(obj, type | FunctionType | BuiltinFunctionType):
            module = getattr(obj, "__module__", None)
            if isinstance(module, str):
                self.referred.add(module)
        return super().reducer_override(obj)


def _joined(modules: bytes, pickled: bytes) -> bytes:
    """`modules`: as MessagePack, or nothing."""
    if not modules:
        return pickled
    return b"".join((_MODULES, len(modules).to_bytes(_LENGTH_BYTES), modules, pickled))


def _parted(content: bytes) -> tuple[bytes, bytes]:
    """(modules as MessagePack, or nothing; pickle)."""
    if not content.startswith(_MODULES):
        return b"", content
    begin = len(_MODULES) + _LENGTH_BYTES
    end = begin + int.from_bytes(content[len(_MODULES) : begin])
    return content[begin:end], content[end:]


def _decoded(modules: bytes) -> tuple[ModuleSource, ...]:
    return msgspec.msgpack.decode(modules, type=tuple[ModuleSource, ...]) if modules else ()


def _what_is_missing(error: ImportError | AttributeError) -> str:
    if isinstance(error, ModuleNotFoundError):
        return (
            f"the pipeline's code needs module {error.name!r}, which this worker does not have; install it "
            "on the workers, or put it in the folder where the pipeline is submitted: modules there that it "
            "imports are sent with the pipeline"
        )
    return (
        f"the pipeline's code cannot be opened: {type(error).__name__}: {error}; install the same version of "
        "it on the workers as where the pipeline is submitted"
    )
