"""What is wrong in the settings of a code location is found when it is loaded: without I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import dagster as dg

from unistream.base.config import REST_ADDRESS
from unistream.base.config_file import check_given
from unistream.base.errors import ConfigError
from unistream.base.targets import known_target
from unistream.client.remote.address import options_of

_TEMPLATE: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_ENVIRONMENT: Final = re.compile(r"\benv\b")
_VARIABLE: Final = re.compile(r"\benv\.(\w+)")


def check_resource(settings: Mapping[str, Any]) -> None:
    """Settings of a `UnistreamResource`, as far as they are known before a run (`dg.EnvVar` is not).

    Raises:
        ConfigError: a key or a value of `config` is none, the target is none, or `jobmanager` is no address
            or needs another target, or `token` and `ca_file` do not go with it.
    """
    given = settings.get("config")
    config = given if isinstance(given, Mapping) else {}
    check_given({key: value for key, value in config.items() if not isinstance(value, dg.EnvVar)})
    target, jobmanager = _plain(settings.get("target")), _plain(settings.get("jobmanager"))
    if target:
        known_target(target)
    if jobmanager:
        if target not in ("", "remote"):
            raise ConfigError(
                f"jobmanager {jobmanager!r} names a running cluster, and target {target!r} starts one for "
                "each run: let the target be remote, or leave jobmanager out"
            )
        options_of(jobmanager)
    _check_access(settings, jobmanager)


def _check_access(settings: Mapping[str, Any], jobmanager: str) -> None:
    """Raises ConfigError: `token` or `ca_file` is for no cluster, or for several masters, or is none."""
    named = [name for name in ("token", "ca_file") if settings.get(name)]
    if named and not settings.get("jobmanager"):
        raise ConfigError(
            f"{named[0]} is for the cluster at jobmanager: name that, such as https://host:8081"
        )
    if named and REST_ADDRESS.key not in options_of(jobmanager or "localhost:1"):
        raise ConfigError(
            f"{named[0]} is for one address, and jobmanager {jobmanager!r} is looked up in ZooKeeper: name "
            "one of the masters, such as https://host:8081, which asks the others; or set UNISTREAM_TOKEN "
            "and UNISTREAM_CA_FILE for the process"
        )
    token = _plain(settings.get("token"))
    if token and (not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError("token is no token: give the text that 'unistream token create' has printed")


def _plain(value: object) -> str:
    """Empty: it is not given, or known at the run alone."""
    return value if isinstance(value, str) and not isinstance(value, dg.EnvVar) else ""


def check_templates(attributes: object, resolve: Callable[[str], object]) -> None:
    """The attributes of a `defs.yaml` before their templates are resolved: Dagster takes a variable that is
    not set for nothing, and `{{ env.LAKE }}/orders` for ``None/orders``.

    Args:
        attributes: As they are in the file.
        resolve: The value of one template.

    Raises:
        ConfigError: one with ``env`` has no value.

    >>> check_templates({"lake": "{{ env.LAKE }}/a"}, lambda template: None)
    Traceback (most recent call last):
    unistream.base.errors.ConfigError: lake: '{{ env.LAKE }}/a' has no value, since LAKE is not set: set it, \
or give a default: {{ env('LAKE', '…') }}
    """
    for place, text in _texts(attributes, ""):
        for expression in _TEMPLATE.findall(text):
            if _ENVIRONMENT.search(expression) and resolve(f"{{{{{expression}}}}}") is None:
                named = _VARIABLE.search(expression)
                why = f", since {named[1]} is not set: set it" if named else ": set the variable"
                default = f"{{{{ env('{named[1] if named else 'NAME'}', '…') }}}}"
                raise ConfigError(f"{place}: {text!r} has no value{why}, or give a default: {default}")


def _texts(value: object, place: str) -> Iterator[tuple[str, str]]:
    """The texts in a value, each with its place."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _texts(one, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _texts(one, f"{place}[{number}]")
