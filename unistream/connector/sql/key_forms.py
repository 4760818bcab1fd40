"""How a table compares its key: by the types and collations of the index by which `ON CONFLICT` finds rows.

Staged rows have the types of the pipeline, and compare text byte by byte. Where the table takes two of their
keys for one, as "a" and "A" under a collation without case, or 1.001 and 1.002 in a `numeric(10, 2)`, the
last of both has to replace the row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, literal_column, text

from unistream.connector.sql.statements import SqlTableName

_POSTGRESQL: Final = text("""
SELECT i.indexrelid::bigint, a.attname::text, t.typname::text, format_type(a.atttypid, a.atttypmod),
    CASE WHEN NOT c.collisdeterministic THEN quote_ident(n.nspname) || '.' || quote_ident(c.collname) END
FROM pg_index i
CROSS JOIN unnest(i.indkey::int[], i.indcollation::oid[]) WITH ORDINALITY AS k(number, compares, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_collation c ON c.oid = k.compares LEFT JOIN pg_namespace n ON n.oid = c.collnamespace
WHERE i.indrelid = to_regclass(:target) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
    AND k.place <= i.indnkeyatts
ORDER BY 1
""")
_SQLITE: Final = text("""
SELECT l.seq, x.name, '', '', CASE WHEN x.coll <> 'BINARY' THEN '"' || replace(x.coll, '"', '""') || '"' END
FROM pragma_index_list(:name, :schema) l, pragma_index_xinfo(l.name, :schema) x
WHERE l."unique" AND NOT l.partial AND x.key ORDER BY 1
""")
_AS_STAGED: Final = frozenset({"text", "varchar", "bool", "uuid", "bytea", "date", "int8"})
"""Types that take no two staged values for one."""
_WITHOUT_LENGTH: Final = {"bpchar": "bpchar", "bit": "varbit", "varbit": "varbit"}
"""A cast to one with a length would cut longer values off, which the table refuses."""


class KeyForm(NamedTuple):
    """How a table compares a column of its key; "": as it is staged. Both as they stand in a statement."""

    type: str = ""
    collation: str = ""

    def of(self, column: Any) -> Any:
        """The staged column, as the table compares it."""
        found = column.op("::", precedence=15)(literal_column(self.type)) if self.type else column
        return found.op("COLLATE", precedence=14)(literal_column(self.collation)) if self.collation else found


def key_forms(
    connection: Connection, target: tuple[SqlTableName, str], key: Sequence[str]
) -> Mapping[str, KeyForm]:
    """Column of the key -> how the table compares it; without those that are compared as they are staged.

    `target`: the table, and its quoted name as a value.
    """
    if not key:
        return {}
    if connection.dialect.name == "sqlite":
        names = {"name": target[0].name, "schema": target[0].schema or "main"}
        rows = connection.execute(_SQLITE, names).all()
    else:
        rows = connection.execute(_POSTGRESQL, {"target": target[1]}).all()
    indexes: dict[int, dict[str, KeyForm]] = defaultdict(dict)
    for index, name, kind, whole, collation in rows:
        kept = "" if kind in ("", *_AS_STAGED) else _WITHOUT_LENGTH.get(kind, whole)
        indexes[index][name] = KeyForm(kept, collation or "")
    indexed = [forms for forms in indexes.values() if set(forms) == set(key)]
    alike = max(indexed, key=lambda forms: sum(bool(one.collation) for one in forms.values()), default={})
    return {name: form for name, form in alike.items() if form != KeyForm()}
