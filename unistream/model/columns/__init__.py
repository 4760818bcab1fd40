"""What is computed from columns of rows: their keys, event times, forms of values, names.

Decides which key a row has (`key_codes`), which time (`event_time`), and the one form in which a value of a
type is kept (`state_values`, `column_forms`). Pure, a column at a time. May import: `base` and
`model.key_groups`, and nothing else of `model`, whose messages and graphs are plain data. Start with
`event_time`. It has no face: an import names the module, so that a command that only shows times does not
load what codes keys.
"""
