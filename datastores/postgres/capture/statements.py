"""The SQL of the objects that record changes. ``{s}`` is the quoted name of their schema.

A trigger writes each changed row into ``change``, with the text of both images. ``layout`` describes the columns of
these texts. `cut` gives each committed transaction its place in the log, a row of ``transaction``. `prune` removes the
beginning of the log. ``capture`` has one row: the log's identity and its two ends.

**Order.** `cut` numbers the transactions that its snapshot shows and the snapshot of the previous cut did not show. It
orders them by their highest change number. The sequence of change numbers has no cache, so a transaction that waited
for another one has a higher number. One transaction stores the numbers and the snapshot. So a crash repeats and loses
nothing, and every reader sees the same order.

**Order in a transaction.** A trigger of the application may change a row before the outer statement's change of the row
is recorded. The outer change is recorded later, when its row version already has an ``xmax``. It takes the ``place`` of
the record that it precedes. Likewise, a row with a key may exist again before the end of the former row with that key
is recorded. So if a trigger wrote rows of the table in this transaction, the statement's records are compared by key.
The end of a row is placed before the records of later versions.

**TRUNCATE.** The triggers of a partitioned table fire before those of its partitions. If only a partition is truncated,
deletes of its rows are recorded, because rows are delivered under the name of the partitioned table.

**Bound.** The gate is a sequence, because every transaction sees a sequence's value at once, regardless of its
snapshot. The value 2 stops the recording. A transaction that saw this value lacks changes. `resume` opens the gate in
four transactions. The last of them takes a snapshot, ``torn``, that lists every such transaction still open. This
requires a transaction that began after the gate was opened and has ended, because a snapshot does not list transactions
after the last one that ended. Until the listed ones have ended, each cut adds a gap before its transactions.
"""

from __future__ import annotations

from typing import Final

from datastores.postgres.decode.kinds import SESSION_SETTINGS
from datastores.postgres.server.key_indexes import KEY_INDEX
from datastores.postgres.sql_text import quote_identifier, quote_literal

__all__ = ["FORM", "OPENING", "TRIGGER", "TRUNCATES", "attach", "capture_row", "detach", "functions", "tables"]

FORM: Final = 1
"""The version of these objects, kept in ``capture``."""
TRIGGER: Final = "!wormhole_capture"
"""The trigger's name. It sorts before names of an application's triggers, so our record precedes theirs."""
TRUNCATES: Final = "!wormhole_truncate"

OPENING: Final = (
    "18446744073709551614:18446744073709551615:18446744073709551614",
    "18446744073709551613:18446744073709551615:18446744073709551613",
)
"""Values of ``torn`` while recording begins again. They list transactions that never end."""

_PATH: Final = "pg_catalog, pg_temp"
_FIXED: Final = "\n".join(
    f"SET {name} = {_PATH if name == 'search_path' else quote_literal(value)}"
    for name, value in SESSION_SETTINGS.items()
)
_SAFE: Final = f"SECURITY DEFINER SET search_path = {_PATH}"

_TABLES: Final = {
    "capture": """CREATE TABLE {s}.capture (
  form int NOT NULL, id text PRIMARY KEY, system text NOT NULL, most_bytes bigint NOT NULL,
  snapshot pg_snapshot NOT NULL, torn pg_snapshot,
  number bigint NOT NULL DEFAULT 0, place bigint NOT NULL DEFAULT 0, at timestamptz NOT NULL,
  floor_number bigint NOT NULL DEFAULT 0, floor_place bigint NOT NULL DEFAULT 0,
  floor_at timestamptz NOT NULL, floor_checksum bigint NOT NULL DEFAULT 0,
  free_bytes bigint NOT NULL DEFAULT 0);""",
    "layout": """CREATE TABLE {s}.layout (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, relation oid NOT NULL,
  tag text NOT NULL, described json NOT NULL);""",
    "change": """CREATE TABLE {s}.change (number bigint PRIMARY KEY, place bigint NOT NULL, xid xid8 NOT NULL,
  layout int NOT NULL, op "char" NOT NULL, was tid, made tid, old text, new text, at timestamptz NOT NULL)
  WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);""",
    "transaction": """CREATE TABLE {s}.transaction (number bigint PRIMARY KEY, place bigint NOT NULL UNIQUE,
  xid xid8 NOT NULL, changes bigint NOT NULL, bytes bigint NOT NULL, at timestamptz NOT NULL,
  checksum bigint NOT NULL, gap boolean NOT NULL DEFAULT false);""",
}
_INDEXES: Final = {
    "layout_of": "CREATE INDEX layout_of ON {s}.layout (relation, tag);",
    "change_of": "CREATE INDEX change_of ON {s}.change (xid, place);",
}
_SEQUENCES: Final = {
    "change_number": "CREATE SEQUENCE {s}.change_number CACHE 1;",
    "gate": "CREATE SEQUENCE {s}.gate MAXVALUE 2 CACHE 1;",
}

# Rows are delivered under the name of the partitioned table, as with publish_via_partition_root. Any statement that
# alters the table writes new versions of these catalogue rows.
_TAG: Final = """concat_ws(' ', coalesce(pg_partition_root(TG_RELID), TG_RELID)::regclass,
  (SELECT concat_ws('.', count(*), max(a.xmin::text::bigint), max(a.cmin::text::bigint)) FROM pg_attribute a
    WHERE a.attrelid = TG_RELID),
  (SELECT concat_ws('.', count(*), max(i.xmin::text::bigint)) FROM pg_index i WHERE i.indrelid = TG_RELID))"""

_BASE: Final = """(WITH RECURSIVE up AS (SELECT t.oid, t.typtype, t.typbasetype, t.typname, t.typnamespace
  FROM pg_type t WHERE t.oid = a.atttypid UNION ALL SELECT t.oid, t.typtype, t.typbasetype, t.typname, t.typnamespace
  FROM up JOIN pg_type t ON t.oid = up.typbasetype WHERE up.typtype = 'd')
  SELECT json_build_array(CASE n.nspname WHEN 'pg_catalog' THEN '' ELSE n.nspname END, up.typname)
  FROM up JOIN pg_namespace n ON n.oid = up.typnamespace WHERE up.typtype <> 'd')"""
_IN_KEY: Final = f"""EXISTS (SELECT FROM pg_index i
  CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, at)
  WHERE i.indrelid = c.oid AND k.at <= i.indnkeyatts AND k.number = a.attnum AND {KEY_INDEX})"""
_DESCRIBED: Final = f"""SELECT json_build_object('schema', n.nspname, 'table', r.relname, 'columns', coalesce((
  SELECT json_agg(json_build_array(a.attname, a.atttypid::bigint, CASE WHEN a.atttypid >= 10000 THEN {_BASE} END,
    {_IN_KEY}, a.attgenerated <> '') ORDER BY a.attnum)
  FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '[]'))
  FROM pg_class c JOIN pg_class r ON r.oid = coalesce(pg_partition_root(c.oid), c.oid)
  JOIN pg_namespace n ON n.oid = r.relnamespace
  WHERE c.oid = TG_RELID"""  # noqa: S608

_FUNCTIONS: Final = {
    "record": """CREATE OR REPLACE FUNCTION {s}.record() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
{fixed} AS $record$
DECLARE
  mine bigint := nextval('{s}.change_number');
  here bigint := mine;
  known int;
  same text;
BEGIN
  IF mine % 512 = 0 THEN PERFORM {s}.bound(); END IF;
  IF NEW.xmax <> 0 THEN
    SELECT coalesce(min(c.place), mine) INTO here FROM {s}.change c JOIN {s}.layout l ON l.id = c.layout
    WHERE c.xid = pg_current_xact_id() AND c.was = NEW.ctid AND l.relation = TG_RELID;
  END IF;
  IF TG_OP <> 'DELETE' AND pg_trigger_depth() > 1 THEN
    PERFORM set_config('wormhole_capture.r' || TG_RELID, pg_current_xact_id()::text, true);
  ELSIF TG_OP <> 'INSERT' AND current_setting('wormhole_capture.r' || TG_RELID, true) = pg_current_xact_id()::text THEN
    SELECT l.id, string_agg(format('((c.new::%s).%I)::text = (($1).%I)::text', TG_RELID::regclass, e->>0, e->>0),
      ' AND ') INTO known, same FROM {s}.layout l, json_array_elements(l.described->'columns') e
      WHERE l.relation = TG_RELID AND l.tag = {tag} AND (e->>3)::boolean GROUP BY l.id ORDER BY l.id LIMIT 1;
    IF same IS NOT NULL THEN
      EXECUTE format($q$SELECT least($2, min(c.place)) FROM {s}.change c WHERE c.xid = pg_current_xact_id()
        AND c.layout = $3 AND c.at >= statement_timestamp() AND c.number > (SELECT coalesce(max(m.number), 0)
          FROM {s}.change m WHERE m.xid = c.xid AND m.layout = $3 AND m.made = $4) AND %s$q$, same)
        INTO here USING OLD, here, known, OLD.ctid;
    END IF;
  END IF;
  INSERT INTO {s}.change SELECT mine, here, pg_current_xact_id(), l.id, left(TG_OP, 1)::"char", OLD.ctid, NEW.ctid,
    OLD::text, NEW::text, clock_timestamp() FROM {s}.layout l, {s}.gate g
    WHERE g.last_value = 1 AND l.relation = TG_RELID AND l.tag = {tag} LIMIT 1;
  IF NOT FOUND AND (SELECT g.last_value FROM {s}.gate g) = 1 THEN
    INSERT INTO {s}.layout (relation, tag, described) SELECT TG_RELID, {tag}, ({described})
      RETURNING id INTO known;
    INSERT INTO {s}.change SELECT mine, here, pg_current_xact_id(), known, left(TG_OP, 1)::"char", OLD.ctid,
      NEW.ctid, OLD::text, NEW::text, clock_timestamp();
  END IF;
  RETURN NULL;
END $record$;""",
    "truncated": """CREATE OR REPLACE FUNCTION {s}.truncated() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
{fixed} AS $truncated$
DECLARE
  known int;
  whole regclass := coalesce(pg_partition_root(TG_RELID), TG_RELID);
  here text := concat_ws(' ', pg_current_xact_id(), statement_timestamp());
BEGIN
  IF (SELECT g.last_value FROM {s}.gate g) = 2 THEN
    RETURN NULL;
  END IF;
  INSERT INTO {s}.layout (relation, tag, described) SELECT TG_RELID, {tag}, ({described}) RETURNING id INTO known;
  IF whole = TG_RELID THEN
    PERFORM set_config('wormhole_capture.t' || TG_RELID, here, true);
    INSERT INTO {s}.change SELECT n, n, pg_current_xact_id(), known, 'T', NULL, NULL, NULL, NULL, clock_timestamp()
      FROM nextval('{s}.change_number') n;
  ELSIF current_setting('wormhole_capture.t' || whole::oid, true) IS DISTINCT FROM here THEN
    EXECUTE format($q$INSERT INTO {s}.change SELECT o.n, o.n, pg_current_xact_id(), $1, 'D', o.ctid, NULL, o.old, NULL,
      clock_timestamp() FROM (SELECT nextval('{s}.change_number') AS n, r.ctid, r::text AS old FROM ONLY %s r OFFSET 0)
      o$q$, TG_RELID::regclass) USING known;
  END IF;
  RETURN NULL;
END $truncated$;""",
    "bound": """CREATE OR REPLACE FUNCTION {s}.bound() RETURNS void LANGUAGE sql {safe} AS $bound$
  SELECT setval('{s}.gate', 2) FROM {s}.capture c, {s}.gate g
  WHERE g.last_value = 1 AND pg_total_relation_size('{s}.change') - c.free_bytes > c.most_bytes;
$bound$;""",
    "cut": """CREATE OR REPLACE FUNCTION {s}.cut() RETURNS void LANGUAGE plpgsql {safe} AS $cut$
DECLARE
  last {s}.capture;
  lossy boolean;
  over boolean := false;
BEGIN
  -- The lock comes before the snapshot of the next statement, so that the snapshots of the cuts only grow.
  SELECT * INTO last FROM {s}.capture FOR UPDATE;
  IF last.torn IS NOT NULL THEN
    over := NOT EXISTS (SELECT FROM pg_snapshot_xip(last.torn) x WHERE NOT pg_visible_in_snapshot(x,
      pg_current_snapshot()));
  END IF;
  lossy := last.torn IS NOT NULL OR (SELECT g.last_value FROM {s}.gate g) = 2;
  WITH fresh AS (
    SELECT c.xid, max(c.number) AS highest, count(*) AS changes, max(c.at) AS at,
      sum(160 + coalesce(octet_length(c.old), 0) + coalesce(octet_length(c.new), 0)) AS bytes
    FROM {s}.change c WHERE c.xid >= pg_snapshot_xmax(last.snapshot)
      OR c.xid IN (SELECT pg_snapshot_xip(last.snapshot)) GROUP BY c.xid
  ), listed AS (
    SELECT f.xid, f.highest, f.changes, f.at, f.bytes, false AS gap FROM fresh f UNION ALL
    SELECT pg_current_xact_id(), 0, 0, last.at, 0, true WHERE lossy AND (over OR EXISTS (SELECT FROM fresh))
  ), placed AS (
    SELECT last.number + row_number() OVER w AS number, last.place + sum(64 + l.bytes) OVER w AS place, l.xid,
      l.changes, l.bytes, greatest(last.at, max(l.at) OVER w) AS at,
      ('x' || left(md5(concat_ws(' ', l.xid, l.highest, l.changes, l.bytes, extract(epoch FROM l.at))), 8))::bit(32)
        ::bigint AS checksum, l.gap
    FROM listed l WINDOW w AS (ORDER BY l.highest)
  ), added AS (
    INSERT INTO {s}.transaction SELECT * FROM placed RETURNING number, place, at
  )
  UPDATE {s}.capture c SET snapshot = pg_current_snapshot(), torn = CASE WHEN over THEN NULL ELSE c.torn END,
    number = coalesce(a.number, c.number), place = coalesce(a.place, c.place), at = coalesce(a.at, c.at)
    FROM (SELECT max(number) AS number, max(place) AS place, max(at) AS at FROM added) a;
END $cut$;""",
    "resume": """CREATE OR REPLACE FUNCTION {s}.resume() RETURNS boolean LANGUAGE plpgsql {safe} AS $resume$
DECLARE
  at pg_snapshot;
BEGIN
  SELECT c.torn INTO at FROM {s}.capture c FOR UPDATE;
  IF at::text IS DISTINCT FROM {opening} AND at::text IS DISTINCT FROM {opened} THEN
    UPDATE {s}.capture SET torn = {opening};
  ELSIF (SELECT g.last_value FROM {s}.gate g) = 2 THEN
    PERFORM setval('{s}.gate', 1);
  ELSIF at::text = {opening} THEN
    UPDATE {s}.capture SET torn = {opened};
  ELSE
    UPDATE {s}.capture SET torn = pg_current_snapshot();
    RETURN false;
  END IF;
  RETURN true;
END $resume$;""",
    "prune": """CREATE OR REPLACE FUNCTION {s}.prune(until bigint, most int) RETURNS bigint LANGUAGE plpgsql {safe}
AS $prune$
DECLARE
  removed bigint;
BEGIN
  PERFORM FROM {s}.capture FOR UPDATE;
  WITH gone AS (
    DELETE FROM {s}.transaction WHERE number IN (SELECT t.number FROM {s}.transaction t WHERE t.place <= until
      ORDER BY t.number LIMIT most) RETURNING number, place, xid, at, checksum
  ), changed AS (
    DELETE FROM {s}.change c USING gone g WHERE c.xid = g.xid
  ), newest AS (
    SELECT * FROM gone ORDER BY number DESC LIMIT 1
  )
  UPDATE {s}.capture c SET floor_number = n.number, floor_place = n.place, floor_at = n.at,
    floor_checksum = n.checksum, free_bytes = greatest(0, pg_total_relation_size('{s}.change') - c.place + n.place)
    FROM newest n;
  GET DIAGNOSTICS removed = ROW_COUNT;
  RETURN removed;
END $prune$;""",
}


def tables(schema: str) -> dict[str, str]:
    """The statements that create sequences, tables and indexes, by name, in order."""
    s = quote_identifier(schema)
    return {name: text.format(s=s) for name, text in {**_SEQUENCES, **_TABLES, **_INDEXES}.items()}


def functions(schema: str) -> dict[str, str]:
    """The statements that create or replace the functions, by name, in order. Other accounts may not call them."""
    s = quote_identifier(schema)
    parts = {"s": s, "fixed": _FIXED, "safe": _SAFE, "tag": _TAG, "described": _DESCRIBED}
    parts |= {"opening": quote_literal(OPENING[0]), "opened": quote_literal(OPENING[1])}
    return {name: text.format(**parts) for name, text in _FUNCTIONS.items()}


def capture_row(schema: str, identity: str, most_bytes: int) -> str:
    """The statement that begins a log with ``identity``."""
    return (
        f"INSERT INTO {quote_identifier(schema)}.capture (form, id, system, most_bytes, snapshot, at, floor_at) "  # noqa: S608
        f"SELECT {FORM}, {quote_literal(identity)}, (SELECT system_identifier FROM pg_control_system()) || ':' || "
        f"(SELECT oid FROM pg_database WHERE datname = current_database()), {most_bytes}, pg_current_snapshot(), "
        "now(), now();"
    )


def attach(schema: str, table: str, *, rows: bool, truncates: bool) -> list[str]:
    """The statements that record the changes of ``table``, an SQL name. ``rows``, ``truncates``: which triggers to
    create."""
    s = quote_identifier(schema)
    row, whole = quote_identifier(TRIGGER), quote_identifier(TRUNCATES)
    when = [("AFTER INSERT OR UPDATE OR DELETE", "FOR EACH ROW", row, "record")] if rows else []
    when += [("BEFORE TRUNCATE", "FOR EACH STATEMENT", whole, "truncated")] if truncates else []
    made: list[str] = []
    for event, each, name, function in when:
        made.append(f"CREATE OR REPLACE TRIGGER {name} {event} ON {table} {each} EXECUTE FUNCTION {s}.{function}();")
        made.append(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name};")
    return made


def detach(schema: str) -> str:
    """The statement that removes all objects, with the triggers, which depend on the schema's functions."""
    return f"DROP SCHEMA {quote_identifier(schema)} CASCADE;"
