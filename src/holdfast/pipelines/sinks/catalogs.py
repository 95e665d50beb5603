"""What a database's catalog says of a table beside its columns' types: what a commit stands on.

Owns two questions. Whether rows stay there, once each, as they are sent: which values the table
takes for one key, whether its unique index can be asked for a conflict, what it makes of columns by
itself. And what somebody has altered since: it is asked in each commit, behind a lock, so that
nothing changes between the look and the rows. It must never change anything, nor wait for anybody
but in `lock`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from holdfast.pipelines.sinks.target import Mode, Target, TargetError

Parts = Mapping[str, str]
"""What a table consists of, by what people call it, and how it is told."""

TABLE: Final = "the table"
_KINDS: Final = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_ALIKE: Final = ("A", "a", "a ")  # what SQLite's collations take for one text, or not
_DEFERRABLE: Final = "is deferrable"
_FOR_KEYS: Final = (
    "the table takes values for one key that are several to the query, so rows of different keys "
    "would replace each other"
)


@dataclass(frozen=True, slots=True)
class Unique:
    """A unique index. `why_not`: why no conflict can be asked of it, if that is so."""

    name: str
    columns: tuple[str, ...]
    told: str
    why_not: str | None = None
    collations: tuple[str, ...] = ()
    """Those that take different texts for one."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """One table, as it is when it is asked; as it stays, in a transaction that has locked it."""

    identity: int  # 0: the database has no numbers of tables
    odd: str | None  # what it is, if rows don't stay in it
    hides: tuple[str, ...] = ()  # the commands that policies may hide rows from
    no_upsert: tuple[str, ...] = ()  # rules beside which the database knows no upsert
    leaves_out: bool = False  # a trigger or a rule may leave rows out, and say nothing
    columns: Mapping[str, str] = field(default_factory=dict)
    filled: Mapping[str, str] = field(default_factory=dict)  # columns that take no value, and why
    folding: Mapping[str, str] = field(default_factory=dict)  # why one text is as another there
    uniques: tuple[Unique, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)

    def parts(self) -> Parts:
        return {
            TABLE: self.odd or "an ordinary one",
            **{f"column {name!r}": told for name, told in self.columns.items()},
            **{f"unique index {each.name!r}": each.told for each in self.uniques},
            **self.others,
            **{f"policies on {command}": "hide rows" for command in self.hides},
            **({"what may leave rows out": "a trigger or a rule"} if self.leaves_out else {}),
        }


def lock(connection: Connection, table: sql.Table) -> None:
    """Keep others from altering a table, if it is there, until this transaction ends.

    It is locked as an INSERT locks it: who alters it waits, or is waited for. TargetError: this
    role may not insert there.
    """
    if connection.dialect.name == "sqlite":
        return  # its transactions have the only lock
    kind = connection.scalar(_KIND, {"name": _exact(table)})
    if kind is None or kind in _KINDS:
        return
    name = connection.dialect.identifier_preparer.format_table(table)
    try:
        with connection.begin_nested():
            # LOCK TABLE wants a right on the whole table; this one what the rows need, and no more.
            connection.exec_driver_sql(f"EXPLAIN INSERT INTO {name} DEFAULT VALUES")
    except sql.exc.ProgrammingError as error:
        state = getattr(error.orig, "sqlstate", None)
        if state == _NOT_THERE:
            return  # it was dropped while this waited
        if state != _NO_RIGHT:
            raise
        raise TargetError(
            f"table {table.fullname}: this role may not write to it ({error.orig}). Give it the "
            f"right (GRANT INSERT ON {name}; for an upsert SELECT and UPDATE, too, and DELETE "
            "where rows are deleted)"
        ) from error


def read(connection: Connection, table: sql.Table, keys: Collection[str] = ()) -> Catalog | None:
    """Return what a table is. None: it is not there. `keys`: those of an upsert."""
    if connection.dialect.name == "sqlite":
        return _read_sqlite(connection, table, keys)
    return _read_postgresql(connection, table)


def stamp(connection: Connection, table: sql.Table) -> str | None:
    """Return what is the same as long as nobody has altered a table.

    It costs a fraction of what `read` does. None: it is not there, or no table.
    """
    if connection.dialect.name == "sqlite":
        return str(connection.exec_driver_sql("PRAGMA schema_version").scalar())
    found: str | None = connection.scalar(_STAMP, {"name": _exact(table)})
    return found


def changes(before: Parts, now: Parts) -> str:
    """Return what of a table is another, as a text: what is new, is gone, and was altered."""
    told = [
        f"{part} is new: {now[part]}" if part not in before
        else f"{part} is gone" if part not in now
        else f"{part} was {before[part]} and is {now[part]}"
        for part in {**before, **now} if before.get(part) != now.get(part)
    ]  # fmt: skip
    return "; ".join(told)


def refuse_odd(catalog: Catalog, target: Target, table: sql.Table) -> None:
    """TargetError: rows would not stay in the table, or not as they are, or not once a key."""
    if catalog.odd is not None:
        raise TargetError(f"table {target.table} {catalog.odd}")
    for column in table.columns:
        if column.name in catalog.filled:
            raise TargetError(
                f"table {target.table}: its column {column.name!r} is "
                f"{catalog.filled[column.name]}, so the database takes no value for it from a "
                "query. Leave it out of the query; or make it an ordinary column (ALTER TABLE)"
            )
    if target.mode is not Mode.UPSERT:
        return
    hidden = set(catalog.hides) - ({"DELETE"} if target.deleted is None else set())
    if hidden:
        raise TargetError(
            f"table {target.table}: its row level security hides rows from this role, or may "
            f"({', '.join(sorted(hidden))}), and an upsert neither finds those nor deletes them. "
            "Use the table's owner, or a role with BYPASSRLS, or give the role policies that hide "
            "none: CREATE POLICY ... USING (true)"
        )
    if catalog.no_upsert:
        raise TargetError(
            f"table {target.table}: it has rules for INSERT or UPDATE "
            f"({', '.join(catalog.no_upsert)}), and PostgreSQL knows no upsert into such a table. "
            "Make triggers of them"
        )
    _refuse_keys(catalog, target)


def _refuse_keys(catalog: Catalog, target: Target) -> None:
    for name in target.keys:
        if name in catalog.folding:
            raise TargetError(
                f"table {target.table}: its key {name!r} is {catalog.folding[name]}: {_FOR_KEYS}. "
                "Give the column a type and a collation that tell all texts apart (ALTER TABLE); "
                "or make the query's values one (lower, rtrim) in another column, and that the key"
            )
    ours = [each for each in catalog.uniques if set(each.columns) == set(target.keys)]
    for each in ours:
        if each.collations and each.why_not is None:
            raise TargetError(
                f"table {target.table}: its unique index {each.name} has the collation "
                f"{', '.join(each.collations)}: {_FOR_KEYS}. Make the index anew with a collation "
                "that tells all texts apart"
            )
        if each.why_not == _DEFERRABLE:
            raise TargetError(
                f"table {target.table}: its unique index {each.name} {_DEFERRABLE}, and PostgreSQL "
                "takes that for an upsert's, whatever others there are. Make the constraint anew, "
                "NOT DEFERRABLE"
            )
    if not any(each.why_not is None for each in ours):
        why = "; ".join(f"its unique index {each.name} {each.why_not}" for each in ours)
        raise TargetError(
            f"table {target.table} has no primary key or unique constraint of exactly "
            f"({', '.join(target.keys)}) that an upsert can use{': ' * bool(why)}{why}"
        )


# -- PostgreSQL ----------------------------------------------------------------------------------

_NOT_THERE: Final = "42P01"
_NO_RIGHT: Final = "42501"
_KIND: Final = sql.text("SELECT relkind FROM pg_class WHERE oid = to_regclass(:name)")
# A table and its partitions. PostgreSQL's own function, pg_partition_tree, would lock all of them.
_TREE: Final = """
    WITH RECURSIVE tree (oid) AS (
        SELECT oid FROM pg_class WHERE oid = to_regclass(:name)
        UNION ALL
        SELECT i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid
        JOIN pg_class p ON p.oid = i.inhrelid WHERE p.relispartition)
"""
# What a policy may hide from a command: all rows that no policy of this role lets through.
_HIDES: Final = """
    CASE WHEN row_security_active(c.oid) THEN ARRAY(
        SELECT w.name FROM (VALUES ('r', 'SELECT'), ('w', 'UPDATE'), ('d', 'DELETE')) w (cmd, name)
        WHERE NOT coalesce((
            SELECT bool_or(p.polpermissive AND q.told = 'true')
                AND bool_and(p.polpermissive OR coalesce(q.told, 'true') = 'true')
            FROM pg_policy p, pg_get_expr(p.polqual, p.polrelid) q (told)
            WHERE p.polrelid = c.oid AND p.polcmd::text IN ('*', w.cmd)
            AND EXISTS (SELECT FROM unnest(p.polroles) r (oid)
                WHERE CASE r.oid WHEN 0 THEN true ELSE pg_has_role(r.oid, 'USAGE') END)
        ), false) ORDER BY 1) ELSE '{}' END
"""
# Rows of the catalog are never changed, but written anew, by a transaction with another number.
_STAMP: Final = sql.text(f"""
    SELECT concat_ws(' ', c.oid, c.xmin, {_HIDES},
        (SELECT string_agg(concat(attnum, '.', xmin), ' ' ORDER BY attnum)
            FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0),
        (SELECT string_agg(concat(indexrelid, '.', xmin), ' ' ORDER BY indexrelid)
            FROM pg_index WHERE indrelid = c.oid),
        (SELECT string_agg(concat(oid, '.', xmin), ' ' ORDER BY oid)
            FROM pg_trigger WHERE tgrelid = c.oid),
        CASE WHEN c.relhasrules THEN (SELECT string_agg(concat(oid, '.', xmin), ' ' ORDER BY oid)
            FROM pg_rewrite WHERE ev_class = c.oid) END,
        CASE c.relkind WHEN 'p' THEN ({_TREE}
            SELECT md5(string_agg(concat(p.oid, '.', p.xmin, (
                SELECT string_agg(concat(':', g.oid, '.', g.xmin), '' ORDER BY g.oid)
                FROM pg_trigger g WHERE p.relhastriggers AND g.tgrelid = p.oid
            )), ' ' ORDER BY p.oid)) FROM tree t JOIN pg_class p ON p.oid = t.oid) END)
    FROM pg_class c WHERE c.oid = to_regclass(:name) AND c.relkind IN ('r', 'p')
""")  # noqa: S608 - texts of ours
_RELATION: Final = sql.text(f"""{_TREE}
    SELECT c.oid, c.relkind, c.relpersistence, {_HIDES} AS hides,
        (SELECT min(CAST(p.oid AS regclass)::text) FROM tree t JOIN pg_class p ON p.oid = t.oid
            WHERE p.oid <> c.oid AND (p.relkind = 'f' OR p.relpersistence <> 'p')) AS odd_partition,
        c.relhasrules OR EXISTS (SELECT FROM tree t JOIN pg_trigger ON tgrelid = t.oid
            WHERE NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 3 = 3  -- BEFORE, FOR EACH ROW
        ) AS leaves_out,
        ARRAY(SELECT rulename::text FROM pg_rewrite WHERE ev_class = c.oid AND
            (ev_type = '2' OR ev_type = '3' AND ev_enabled IN ('O', 'A')) ORDER BY 1) AS no_upsert
    FROM pg_class c WHERE c.oid = to_regclass(:name)
""")  # noqa: S608 - as above
_COLUMNS: Final = sql.text("""
    SELECT a.attname AS name, a.attnum AS number, format_type(a.atttypid, a.atttypmod) AS type,
        a.attnotnull AS filled, a.attgenerated AS generated, a.attidentity AS identity,
        pg_get_expr(d.adbin, d.adrelid) AS made, l.collisdeterministic AS exact,
        l.collname AS collation, quote_ident(n.nspname) || '.' || quote_ident(l.collname) AS quoted,
        t.typname = 'citext' AS folds
    FROM pg_attribute a
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_collation l ON l.oid = a.attcollation AND l.collname <> 'default'
    LEFT JOIN pg_namespace n ON n.oid = l.collnamespace
    WHERE a.attrelid = :oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
""")
_UNIQUES: Final = sql.text("""
    SELECT c.relname AS name, pg_get_indexdef(i.indexrelid) AS told, i.indisvalid AS valid,
        i.indimmediate AS immediate, i.indpred IS NOT NULL AS partial,
        ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k (number, place)
            JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
            WHERE k.place <= i.indnkeyatts ORDER BY k.place) AS columns,
        ARRAY(SELECT l.collname::text FROM unnest(i.indcollation) k (oid)
            JOIN pg_collation l ON l.oid = k.oid WHERE NOT l.collisdeterministic) AS collations,
        i.indexprs IS NOT NULL AS computed
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = :oid AND i.indisunique ORDER BY c.relname
""")
# Foreign keys are triggers, too, which are internal.
_OTHERS: Final = sql.text("""
    SELECT 'trigger ' || tgname AS part,
        pg_get_triggerdef(oid) || CASE tgenabled WHEN 'D' THEN ', disabled' ELSE '' END AS told
    FROM pg_trigger WHERE tgrelid = :oid AND NOT tgisinternal
    UNION ALL
    SELECT 'constraint ' || conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE conrelid = :oid AND contype IN ('c', 'f', 'x')
    UNION ALL
    SELECT 'rule ' || rulename, pg_get_ruledef(oid) FROM pg_rewrite WHERE ev_class = :oid
    ORDER BY 1
""")


def _read_postgresql(connection: Connection, table: sql.Table) -> Catalog | None:
    relation = connection.execute(_RELATION, {"name": _exact(table)}).first()
    if relation is None:
        return None
    odd = _odd(relation)
    asked = {"oid": relation.oid}
    columns = connection.execute(_COLUMNS, asked).all()
    others = connection.execute(_OTHERS, asked)
    return Catalog(
        identity=relation.oid,
        odd=odd,
        hides=tuple(relation.hides),
        no_upsert=tuple(relation.no_upsert),
        leaves_out=relation.leaves_out,
        columns={each.name: _told(each) for each in columns},
        filled=dict(_filled(columns)),
        folding=dict(_folding(columns)),
        uniques=tuple(map(_unique, connection.execute(_UNIQUES, asked))),
        others={each.part: each.told for each in others},
    )


def _exact(table: sql.Table) -> str:
    """Return a table's name as PostgreSQL's own functions take it."""
    names = filter(None, (table.schema, table.name))
    return ".".join('"{}"'.format(name.replace('"', '""')) for name in names)


def _odd(relation: Any) -> str | None:
    if relation.relkind in _KINDS:
        return (
            f"is {_KINDS[relation.relkind]}: nobody can tell what becomes of rows there. Name the "
            "table that has them"
        )
    if relation.relpersistence != "p" or relation.odd_partition is not None:
        part = f" in its partition {relation.odd_partition}" * (relation.odd_partition is not None)
        return (
            f"keeps no rows for good{part}: an unlogged table is emptied when its server crashes, "
            "and a foreign one commits by itself. Use an ordinary one (ALTER TABLE ... SET LOGGED)"
        )
    return None


def _told(column: Any) -> str:
    words = [
        f"{column.type} at place {column.number}",
        column.quoted and f"COLLATE {column.quoted}",
        column.filled and "NOT NULL",
        column.identity and "an identity",
        column.made and f"{'GENERATED AS' if column.generated else 'DEFAULT'} {column.made}",
    ]
    return " ".join(filter(None, words))


def _filled(columns: Any) -> Iterator[tuple[str, str]]:
    for each in columns:
        if each.generated:
            yield each.name, f"generated ({each.made})"
        elif each.identity == "a":
            yield each.name, "an identity that is GENERATED ALWAYS"


def _folding(columns: Any) -> Iterator[tuple[str, str]]:
    for each in columns:
        if each.folds:
            yield each.name, "CITEXT"
        elif each.exact is False:
            yield each.name, f"of the collation {each.collation}, which is not deterministic"


def _unique(row: Any) -> Unique:
    why_not = (
        "is partial" if row.partial
        else "is of expressions" if row.computed
        else _DEFERRABLE if not row.immediate
        else "is not valid (REINDEX)" if not row.valid
        else None
    )  # fmt: skip
    told = f"{row.told}{', ' * bool(why_not)}{why_not or ''}"
    return Unique(row.name, tuple(row.columns), told, why_not, tuple(row.collations))


# -- SQLite --------------------------------------------------------------------------------------


def _read_sqlite(connection: Connection, table: sql.Table, keys: Collection[str]) -> Catalog | None:
    quote = connection.dialect.identifier_preparer.quote
    place = quote(table.schema or "main")
    # SQLite's names are one in any case.
    found = connection.exec_driver_sql(
        f"SELECT type, name, coalesce(sql, 'automatic') AS told FROM {place}.sqlite_master "  # noqa: S608
        "WHERE lower(tbl_name) = lower(?) ORDER BY type = 'table' DESC, name",
        (table.name,),
    ).all()
    if not found or found[0].type not in {"table", "view"}:
        return None
    name = quote(table.name)
    columns = connection.exec_driver_sql(f"PRAGMA {place}.table_xinfo({name})").all()
    is_view = found[0].type == "view"
    odd = "is a view, which takes no rows. Name the table that has them" if is_view else None
    return Catalog(
        identity=0,
        odd=odd,
        # A constraint may say that what breaks it is to be ignored.
        leaves_out=any(
            each.type == "trigger" or "ON CONFLICT" in each.told.upper() for each in found
        ),
        columns={each.name: f"{each.type} at place {each.cid + 1}" for each in columns},
        filled={each.name: "generated" for each in columns if each.hidden in {2, 3}},
        folding={} if is_view else dict(_folding_in_sqlite(connection, f"{place}.{name}", keys)),
        uniques=tuple(_uniques_in_sqlite(connection, place, name, columns)),
        others={f"{each.type} {each.name!r}": each.told for each in found},
    )


def _folding_in_sqlite(
    connection: Connection, table: str, names: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Have SQLite compare some texts as a column does: no pragma tells its collation."""
    quote = connection.dialect.identifier_preparer.quote
    for name in names:
        asked = " ".join(f"UNION SELECT '{text}'" for text in _ALIKE)
        told = f"SELECT {quote(name)} FROM {table} WHERE 0 {asked}"  # noqa: S608
        try:
            found = connection.exec_driver_sql(told).all()
        except sql.exc.OperationalError as error:
            if "no such collation sequence" not in str(error.orig):
                raise
            yield name, f"of a collation that an application has, and nobody else ({error.orig})"
            continue
        if len(found) < len(_ALIKE):
            yield name, "of a collation (NOCASE, RTRIM) that takes different texts for one"


def _uniques_in_sqlite(
    connection: Connection, place: str, table: str, columns: Any
) -> Iterator[Unique]:
    quote = connection.dialect.identifier_preparer.quote
    for index in connection.exec_driver_sql(f"PRAGMA {place}.index_list({table})").all():
        if not index.unique:
            continue
        asked = f"PRAGMA {place}.index_xinfo({quote(index.name)})"
        keys = [each for each in connection.exec_driver_sql(asked) if each.key]
        why_not = (
            "is partial" if index.partial
            else "is of expressions" if any(each.name is None for each in keys)
            else None
        )  # fmt: skip
        names = tuple(each.name for each in keys if each.name is not None)
        others = {each.coll for each in keys} - {"BINARY"}
        told = f"of {', '.join(names)}"
        yield Unique(index.name, names, told, why_not, tuple(sorted(others)))
    key = [each.name for each in columns if each.pk]
    if len(key) == 1:  # perhaps the rows' own number, which has no index
        yield Unique("of its primary key", tuple(key), "PRIMARY KEY")
