"""What a file and variables of the environment say of the configuration: texts become options with places.

    bytes of a config.yaml -> `read_yaml`      ┐
    variables              -> `read_variables` ├-> `checked`: known keys, references resolved, values that fit
    -D, Environment(…)     -> `written`        ┘      each with its `ValuePlace`, all faults at once

Pure: what a reference names is looked up by a function that the caller gives. Which file is read, and when,
is the matter of `unistream.client.machine.surroundings`.
"""

from unistream.base.config_file.check import check_given, checked, first_fault, is_read_late, written
from unistream.base.config_file.layered import LayeredConfig, is_of_jobs, is_of_one_cluster
from unistream.base.config_file.places import ConfigFault, OptionValue, PlaceKind, ValuePlace
from unistream.base.config_file.shown import Levels, PlacedOption, placed_option, placed_options
from unistream.base.config_file.variables import CONF_DIR_VARIABLE, read_variables, variable_of
from unistream.base.config_file.yaml_text import FILE_BYTES_MAX, read_yaml

__all__ = [
    "CONF_DIR_VARIABLE",
    "FILE_BYTES_MAX",
    "ConfigFault",
    "LayeredConfig",
    "Levels",
    "OptionValue",
    "PlaceKind",
    "PlacedOption",
    "ValuePlace",
    "check_given",
    "checked",
    "first_fault",
    "is_of_jobs",
    "is_of_one_cluster",
    "is_read_late",
    "placed_option",
    "placed_options",
    "read_variables",
    "read_yaml",
    "variable_of",
    "written",
]
