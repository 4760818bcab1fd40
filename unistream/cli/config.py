"""`unistream config`: what the configuration is here, where each value is from, and what is wrong in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from unistream.base.config import OPTIONS, OTHER_KEYS, kind_of, parse_assignments, unknown_key
from unistream.base.config.configuration import FOREIGN
from unistream.base.config_file import (
    ConfigFault,
    OptionValue,
    PlacedOption,
    PlaceKind,
    ValuePlace,
    checked,
    first_fault,
    is_of_jobs,
    is_read_late,
    placed_option,
    placed_options,
    variable_of,
    written,
)
from unistream.base.errors import ConfigError
from unistream.base.object_stores import S3Settings
from unistream.base.references import has_reference
from unistream.base.secrets import looked_up, redacted, resolved
from unistream.cli.errors import JOB_FAILED, report
from unistream.cli.formats import several
from unistream.cli.options import AsJson, Defines, warn_of_secrets
from unistream.cli.output import console, facts_grid, print_json
from unistream.cli.tables import Cell, Fit, Grid, PrintedColumn
from unistream.client.machine.surroundings import (
    ConfigSurroundings,
    configuration_of,
    options_in,
    read_file,
    read_surroundings,
)

app: Final = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="The configuration: what counts, where it is from, and what is wrong in it.",
)

UNSET: Final = "unset"

Every = Annotated[bool, typer.Option("--all", help="Also the options that have their default.")]


@app.command()
def show(defines: Defines = None, every: Every = False, as_json: AsJson = False) -> None:
    """Show the options that are set, each with its value and where that is from; secrets are hidden."""
    found, given = _found(defines)
    if found.faults:
        raise first_fault(found.faults)
    options = placed_options((found.of_file, found.of_variables, given), every=every)
    if as_json:
        print_json({"file": found.path, "options": [_facts(one) for one in options]})
        return
    out = console()
    for part in shown(found.path, options):
        out.print(part, markup=False)


@app.command()
def explain(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Of the option; its variable will do, too.")],
    defines: Defines = None,
    as_json: AsJson = False,
) -> None:
    """Show one option: its meaning, its kind, its default, its value here and where that is from."""
    name = known_key(key)
    found, given = _found(defines)
    if found.faults:  # of other options, perhaps: this one can be explained
        report(f"warning: {first_fault(found.faults)}")
    levels = (found.of_file, found.of_variables, given)
    option, where = OPTIONS.get(name), placed_option(name, levels)
    if as_json:
        about = {} if option is None else {"meaning": option.doc, "kind": kind_of(option)}
        names = [] if option is None else list(option.other_keys)
        more = {"variable": variable_of(name), "other_names": names, "of_jobs": is_of_jobs(name)}
        print_json({**_facts(where), **about, **more})
        return
    console().print(facts_grid(explained(where)))


@app.command()
def check(
    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", help="A file; without it: all that counts here, also variables."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is wrong in a configuration. Exit code 1: something is."""
    if path is not None:
        file, faults = path, []
        options, wrong = options_in(read_file(path, "the configuration is"))
        faults += wrong
    else:
        found = read_surroundings()
        file, options, faults = found.path or "", found.options(), list(found.faults)
    faults += _faults_together(options, file) if not faults else ()
    faults += _lost_secrets(options)
    if as_json:
        print_json({"file": file or None, "options": len(options), "faults": [_fault(one) for one in faults]})
    else:
        out = console()
        for line in (*map(str, faults), verdict(file, len(options), len(faults))):
            out.print(line, markup=False)
    if file and _shows_secrets(file, options):
        report(f"warning: {file} has secrets in it, and other users can read it: chmod 600 {file}")
    if faults:
        raise typer.Exit(JOB_FAILED)


# --- what is shown --------------------------------------------------------------------------------


def shown(path: str | None, options: list[PlacedOption]) -> Iterator[Grid | Cell]:
    """The file, and a line for each option."""
    yield f"file: {path}" if path else "there is no file"
    if not options:
        yield "every option has its default; --all shows them"
        return
    grid = Grid(PrintedColumn("OPTION"), PrintedColumn("VALUE", fit=Fit.WORDS), PrintedColumn("FROM"))
    for one in options:
        grid.add(one.key, UNSET if one.value is None else one.value, _source(one.place))
    yield grid


def explained(one: PlacedOption) -> Iterator[tuple[str, Cell]]:
    """All that is known of an option."""
    option = OPTIONS.get(one.key)
    yield "option", one.key
    if option is not None:
        yield "meaning", option.doc
        yield "kind", kind_of(option)
        yield "default", UNSET if option.default is None else option.default
    else:
        yield "meaning", "Passed on to Spark unchanged."
    yield "value", UNSET if one.value is None else one.value
    yield "from", str(one.place)
    if has_reference(one.raw) and one.raw != one.value:
        yield "written as", one.raw
    for place in one.hidden:
        yield "does not count", str(place)
    yield "variable", variable_of(one.key)
    for other in () if option is None else option.other_keys:
        yield "other name", other
    who = "the client that submits a job" if is_of_jobs(one.key) else "the process that it configures"
    yield "decided by", who


def verdict(file: str, options: int, faults: int) -> str:
    """The last line of a check."""
    what = file or "the environment"
    return f"{what}: {several(options, 'option')}, {several(faults, 'fault') if faults else 'no fault'}"


def known_key(text: str) -> str:
    """The key of an option, of which a key, another name of it, or its variable was given. Raises
    ConfigError: there is none."""
    by_variable = {variable_of(key): key for key in OPTIONS}
    key = by_variable.get(text, OTHER_KEYS.get(text, text))
    if key not in OPTIONS and not key.startswith(FOREIGN):
        raise ConfigError(unknown_key(text))
    return key


def _source(place: ValuePlace) -> str | tuple[str, str]:
    if place.kind is not PlaceKind.FILE:
        return str(place)
    return str(place), f"line {place.line}"


def _facts(one: PlacedOption) -> dict[str, Any]:
    option, place = OPTIONS.get(one.key), one.place
    return {
        "key": one.key,
        "value": one.value,
        "written": one.raw or None,
        "default": None if option is None else option.default,
        "source": place.kind.value,
        "place": place.name or None,
        "line": place.line or None,
    }


def _fault(one: ConfigFault) -> dict[str, Any]:
    place = one.place
    return {
        "source": place.kind.value,
        "place": place.name,
        "line": place.line or None,
        "key": one.key or None,
        "fault": one.sentence,
    }


# --- what is there --------------------------------------------------------------------------------


def _found(defines: list[str] | None) -> tuple[ConfigSurroundings, Mapping[str, OptionValue]]:
    """What surrounds this command, and what `-D` says. Raises ConfigError: a `-D` is wrong."""
    assigned = parse_assignments(defines or ())
    warn_of_secrets(assigned)
    given, wrong = checked(written(assigned, PlaceKind.COMMAND_LINE), looked_up)
    if wrong:
        raise first_fault(wrong)
    return read_surroundings(), given


def _faults_together(options: Mapping[str, OptionValue], file: str) -> list[ConfigFault]:
    """Options that contradict each other."""
    try:
        S3Settings.of(configuration_of(options))
    except ConfigError as error:
        return [ConfigFault(place=ValuePlace(kind=PlaceKind.FILE, name=file), sentence=str(error))]
    return []


def _lost_secrets(options: Mapping[str, OptionValue]) -> list[ConfigFault]:
    """References that are looked up where a secret is used, and lead nowhere here."""
    faults = []
    for one in options.values():
        try:
            if is_read_late(one.key):
                resolved(one.key, one.raw)
        except ConfigError as error:
            faults.append(ConfigFault(place=one.place, sentence=str(error), key=one.key))
    return faults


def _shows_secrets(file: str, options: Mapping[str, OptionValue]) -> bool:
    """Other users can read what is secret in it."""
    own = [one for one in options.values() if one.place.name == file]
    plain = any(redacted(one.raw, one.key) != one.raw for one in own)
    try:
        return plain and os.stat(file).st_mode & 0o044 != 0
    except OSError:  # a pipe that is gone
        return False
