"""What the compiled JSON loops and the code around them agree on."""

from __future__ import annotations

from typing import Final

# verdicts on one row; those from TWICE on blame a column
(
    GOOD,
    NOT_AN_OBJECT,
    TRAILING,
    CONTROL_CHARACTER,
    BAD_ESCAPE,
    HALF_A_PAIR,
    SYNTAX,
    TWICE,
    OTHER_TYPE,
    MISFIT,
    NOT_UTF8,
    MISSING,
    BY_PARSER,
) = range(13)

# kinds of columns; ANY: arrow's parser reads it
INTEGER, FLOAT, BOOLEAN, TEXT, TIME, DATE, ANY = range(7)

# states of a value; ASCII, WIDE, ESCAPED: text, by its place (ASCII that is not needed is SET, and has none);
# UNDECIDED: left to arrow's parser, by its place
ABSENT, NULL, SET, ASCII, WIDE, ESCAPED, UNDECIDED = range(7)

# what is known of a column: the UTF-8 of its name is names[START:START + SIZE]; MOST: the largest value, of
# FLOAT the largest mantissa that is exact; LEAST: the amount of the smallest value; DIGITS: of TIME those
# behind the seconds, of FLOAT the largest exact power of ten; USED: whether its values are needed, else only
# checked
START, SIZE, KIND, MOST, LEAST, DIGITS, USED = range(7)
TRAITS: Final = 7

# what is known of a row: the verdict, the column to blame, the bytes to blame
VERDICT, COLUMN, PLACE, BYTES = range(4)
NOTES: Final = 4

FIELDS_REMEMBERED: Final = 64
"""Fields of a row, counted from its beginning, that are expected where they were in the row before."""
PARTS_REMEMBERED: Final = 3
"""What is remembered of each: the column; where its name was the last time; its size."""

MAP_NAMES_MAX: Final = 64
"""Names of a map, each of which is compared with those before it."""
MAP_GROWTH: Final = 6
"""How many times as long a map becomes as a list: an entry of six bytes, such as ``"":1,``, has 24."""
