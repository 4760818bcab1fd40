"""What is computed from columns of rows: their keys and key groups, event times, forms of values, names.

Decides which subtask has a key (`key_groups`), which time a row has (`event_time`) and the one form in which
a value of a type is kept (`state_values`, `column_forms`). Pure, a column at a time. May import: `base`, and
nothing else of `model`, whose messages and graphs are plain data. Start with `key_groups`. It has no face: an
import names the module, so that a command that only shows times does not load what hashes keys.
"""
