"""Odd names, for every place that takes a name from a user.

A place takes such a name and gives it back, to a reader that is not ours, or refuses it when the pipeline is
put together, with a sentence that has the name in it. It loses nothing in silence, leaves no folder, and
never takes two names for one.
"""

from __future__ import annotations

from typing import Final

ODD: Final = {
    "a percent sign": "50%",
    "a format": "%(a)s",
    "encoded": "a%2Fb",
    "quotes": "a'b\"c`d",
    "a dot": "a.b",
    "a dot first": ".a",
    "two dots": "..",
    "an alias of a statement": "t.id",
    "a slash": "a/b",
    "the folder above": "../a",
    "an absolute path": "/tmp/a",
    "a backslash": "a\\b",
    "blanks": " a b ",
    "braces": "{a}",
    "brackets": "a[0]",
    "a dollar sign": "${a}",
    "an equals sign": "a=b",
    "an end of a statement": "a;b,c--",
    "a part of a URL": "a#b?c=d&e:f@g+h",
    "a pattern": "*",
    "markup": "<b>",
    "letters of others": "größe",
    "no letter": "😀",
    "a line break": "a\nb",
    "a tab": "a\tb",
    "NUL": "a\0b",
    "nothing": "",
    "a blank": " ",
    "300 characters": "n" * 300,
    "a dash first": "-a",
    "a digit first": "1a",
    "a word of SQL": "select",
    "a word of Python": "class",
    "None": "None",
    "an underscore first": "_a",
}
"""Names of users that something on the way may take for something else."""

OURS: Final = (
    *(
        "__key_group",
        "__expires_at",
        "__timestamp",
        "__pane",
        "__run",
        "__time",
        "__other",
        "__row",
        "__label",
    ),
    *("__deleted", "__subtask", "__attempt", "_unistream_deleted", "_unistream_place", "__unistream_place"),
    *("window_start", "window_end", "__event_timers", "__HIVE_DEFAULT_PARTITION__"),
)
"""Names that stand for something of ours."""

BY_CASE: Final = ("Name", "name")
"""Two that are one, where case does not count."""

ALL: Final = (*ODD.values(), *OURS)
