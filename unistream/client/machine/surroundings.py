"""The configuration that surrounds a program: a file and variables of the environment.

    unistream --config PATH …                 the file of one command
    $UNISTREAM_CONF_DIR/config.yaml           else that; a folder that is named has to have one
    $UNISTREAM_HOME/config.yaml               else that, if it is there
    UNISTREAM_CONF_…                          each variable is one option, and counts before the file

They are read where a program begins: by commands, an `Environment`, Dagster's resource. From there on the
configuration is an argument, so that what a job was started with does not change.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from unistream.base.config import Configuration, ConfigValue
from unistream.base.config_file import (
    CONF_DIR_VARIABLE,
    FILE_BYTES_MAX,
    ConfigFault,
    LayeredConfig,
    OptionValue,
    PlaceKind,
    checked,
    first_fault,
    read_variables,
    read_yaml,
    written,
)
from unistream.base.errors import ConfigError
from unistream.base.secrets import looked_up
from unistream.client.machine import home

FILE_NAME: Final = "config.yaml"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that was read. `path`: as users name it."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSurroundings:
    """What was found. `of_file`, `of_variables`: by key, without what is faulty."""

    path: str | None
    of_file: Mapping[str, OptionValue] = field(default_factory=dict)
    of_variables: Mapping[str, OptionValue] = field(default_factory=dict)
    faults: tuple[ConfigFault, ...] = ()

    def options(self) -> dict[str, OptionValue]:
        """The options that count."""
        return {**self.of_file, **self.of_variables}


class _ChosenFile:
    """The file that the command line names; read once, since it may be a pipe."""

    file: ConfigFile | None = None


def choose_file(path: str | None) -> None:
    """Makes `path` the file of this process; None: that which is found. Raises ConfigError: it cannot be
    read."""
    _ChosenFile.file = None if path is None else read_file(path, "--config names")


def read_file(path: str, named_by: str) -> ConfigFile:
    """Raises ConfigError: it cannot be read."""
    try:
        with open(path, "rb") as file:
            return ConfigFile(path, file.read(FILE_BYTES_MAX + 1))
    except OSError as error:
        raise ConfigError(f"{named_by} {path}, which cannot be read: {error.strerror}") from error
    except ValueError as error:  # the path has a NUL
        raise ConfigError(f"{named_by} {path!r}, which is no path") from error


def found_file() -> ConfigFile | None:
    """The file of this process; None: it has none. Raises ConfigError: it cannot be read."""
    if _ChosenFile.file is not None:
        return _ChosenFile.file
    folder = os.environ.get(CONF_DIR_VARIABLE)
    if folder:
        return read_file(
            os.path.join(folder, FILE_NAME), f"{CONF_DIR_VARIABLE} says that the configuration is"
        )
    path = home.place() / FILE_NAME
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        pass  # what is wrong is said by reading it
    return read_file(str(path), "the configuration is")


def read_surroundings() -> ConfigSurroundings:
    """What surrounds this process, with all faults. Raises ConfigError: the file cannot be read."""
    file = found_file()
    of_file, faults = ({}, []) if file is None else options_in(file)
    variables, unknown = read_variables(os.environ)
    of_variables, wrong = checked(variables, looked_up)
    return ConfigSurroundings(
        path=None if file is None else file.path,
        of_file=of_file,
        of_variables=of_variables,
        faults=(*faults, *unknown, *wrong),
    )


def options_in(file: ConfigFile) -> tuple[dict[str, OptionValue], list[ConfigFault]]:
    """The options of a file, and its faults in the order of its lines."""
    found, broken = read_yaml(file.content, file.path)
    options, faults = checked(found, looked_up)
    return options, sorted([*broken, *faults], key=lambda fault: fault.place.line)


def surrounding_config() -> Configuration:
    """The configuration that surrounds this process. Raises ConfigError: it has faults."""
    found = read_surroundings()
    if found.faults:
        raise first_fault(found.faults)
    return configuration_of(found.options())


def given_config(
    values: Configuration | Mapping[str, ConfigValue] | None, kind: PlaceKind = PlaceKind.PROGRAM
) -> Configuration:
    """The options that a program was given, with what their references name. A `Configuration` has been read
    already, and stays. Raises ConfigError: an unknown key, a value that does not fit, or nothing is where a
    reference points."""
    if isinstance(values, Configuration):
        return values
    options, faults = checked(written({} if values is None else values, kind), looked_up)
    if faults:
        raise ConfigError(str(faults[0]))
    return configuration_of(options)


def layered(
    config: LayeredConfig | Configuration | Mapping[str, ConfigValue] | None,
) -> LayeredConfig:
    """The options that a program was given, above what surrounds it. Raises ConfigError as both."""
    if isinstance(config, LayeredConfig):
        return config
    return LayeredConfig(given_config(config), surrounding_config())


def configuration_of(options: Mapping[str, OptionValue]) -> Configuration:
    """The configuration of options that were checked."""
    return Configuration({key: option.text for key, option in options.items()})
