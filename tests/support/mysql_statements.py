"""Statements with names of every kind, executed on a real server, and what they really did to the rows of its tables.

The server itself is the oracle: before and after each statement the rows of every table are read. A table that lost
rows has to get a barrier, and one that kept all of its rows must not get one. What a server refuses changes nothing and
so is no special case.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pymysql
from pymysql.connections import Connection

from tests.support.databases import DatabaseServer

Table = tuple[str, str]
Place = tuple[int, int]

_NAMES: Final = (
    *(
        "t",
        "T",
        "prix",
        "prix€",
        "prixa",
        "e\u0301t",
        "a b",
        "x`y",
        'q"z',
        "back\\",
        "select",
        "import",
        "1a",
        "0xAg",
        "$d",
        "_u",
    ),
    *(
        "größe",
        "ÀÉ",
        "日本",
        "表",
        "ж",
        "a.b",
        "t;",
        "-- x",
        "*c*",
        "\u00a0nb",
        "n\u00a0b",
        "w\u3000w",
        "\u2028",
        "q😀",
        "İx",
        "ȻA",
        "🙂",
    ),
)
_CHARSETS: Final = {
    "utf8mb4": "utf-8", "utf8mb3": "utf-8", "latin1": "cp1252", "gbk": "gbk", "sjis": "shift_jis", "cp1251": "cp1251", "big5": "big5",  # noqa: E501
    "cp852": "cp852",
}  # fmt: skip
_SPACES: Final = (
    " ",
    " ",
    " ",
    "\t",
    "\n",
    "/**/",
    " /* ` ' \" */ ",
    " -- x'\n",
    "#`\n",
    "\r\n\x0b\x0c",
    "\u00a0",
    " /*! */ ",
    "--\x01\n",
)
_MODES: Final = ("", "", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "ANSI")
_COMMENTS: Final = (
    "it''s",
    "c:\\\\",
    "c:\\",
    "\\', DROP PARTITION p0 -- ",
    "x, TRUNCATE PARTITION ALL",
    "\\\\', ENGINE=BLACKHOLE -- ",
    '"',
    "`",
)
_PLAIN: Final = re.compile("[0-9A-Za-z_$\x80-\uffff]+")
_PARTITIONS: Final = (
    "PARTITION BY RANGE (k) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20), PARTITION p2 "
    "VALUES LESS THAN (30))"
)


@dataclass
class Done:
    """A statement that was executed. ``lost``: tables that lost rows; ``kept``: tables that had rows and have them
    all; ``end``: of the log afterwards. ``error``: what the server refused it with."""

    sql: str
    session: str
    error: str
    lost: set[Table]
    kept: set[Table]
    end: Place


@dataclass
class Script:
    """Executes ``seed``'s statements. Its databases begin with ``prefix``, and are dropped with :meth:`close`."""

    server: DatabaseServer
    seed: int
    prefix: str
    done: list[Done] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._mariadb = self.server.flavour == "mariadb"
        self._ids = itertools.count(1)
        self._oracle = self.server.connect(autocommit=True)
        self._folds = self._asked("SELECT @@lower_case_table_names")[0][0] != 0
        self._databases = [self.prefix + name for name in ("a", "B€", "d.b")]
        self._session: Connection[Any] | None = None
        self._replaced: set[Table] = set()
        self._touched: list[Table] = []
        self._look()

    def close(self) -> None:
        """Drop everything."""
        self._leave()
        for (name,) in self._asked("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA"):
            if name.lower().startswith(self.prefix.lower()):
                self._asked(f"DROP DATABASE {_quoted(name)}")
        self._oracle.close()

    def go(self, statements: int) -> None:
        """Execute so many."""
        for _ in range(statements):
            if self._session is None or self._random.random() < 0.15:
                self._enter()
            while len(self._rows) < 8 or len(self._partitioned) < 3:
                self._fill()
                self._look()
            self._one()
            if self._over:
                self._leave()
        self._leave()

    # --- sessions ------------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        self._leave()
        rng = self._random
        self._charset = rng.choice(list(_CHARSETS))
        self._mode = rng.choice(_MODES)
        self._session = self.server.connect(autocommit=True)
        self._default = ""
        if rng.random() < 0.8:
            self._default = rng.choice(self._databases)
            self._asked(f"CREATE DATABASE IF NOT EXISTS {_quoted(self._default)}")
            self._session.select_db(self._default)  # before the character set, which says how that name is read
        self._put(f"SET NAMES {self._charset}")
        self._put(f"SET SESSION sql_mode = '{self._mode}'")

    def _leave(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _put(self, sql: str) -> str:
        """Execute; what it was refused with."""
        session: Any = self._session
        try:
            text = sql.encode(_CHARSETS[self._charset])
        except UnicodeEncodeError:
            return "not in the session's character set"
        try:
            session._execute_command(3, text)
            session._affected_rows = session._read_query_result()
        except pymysql.MySQLError as error:
            return str(error)
        return ""

    # --- what is there -------------------------------------------------------------------------------------------

    def _asked(self, sql: str) -> tuple[tuple[Any, ...], ...]:
        with self._oracle.cursor() as cursor:
            cursor.execute(sql)
            return tuple(cursor.fetchall())

    def _look(self) -> None:
        """See which tables there are, and their rows."""
        self._tables: list[Table] = []
        self._partitioned: list[Table] = []
        self._sequences: list[Table] = []
        counted: list[str] = []
        for database, table, kind, options in self._asked(
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, CREATE_OPTIONS FROM information_schema.TABLES WHERE "
            "TABLE_TYPE IN "
            f"('BASE TABLE', 'SEQUENCE') AND LEFT(TABLE_SCHEMA, {len(self.prefix)}) = '{self.prefix}'"
        ):
            if kind == "SEQUENCE":
                self._sequences.append((database, table))
                continue
            self._tables.append((database, table))
            if "partitioned" in str(options):
                self._partitioned.append((database, table))
            counted.append(f"SELECT {len(counted)}, GROUP_CONCAT(id) FROM {_quoted(database)}.{_quoted(table)}")
        # A sequence's row changes, so only its existence is compared.
        self._rows: dict[Table, set[str]] = {table: {"sequence"} for table in self._sequences}
        if counted:
            for number, ids in self._asked(" UNION ALL ".join(counted)):
                if ids is not None:
                    self._rows[self._tables[number]] = set(str(ids).split(","))

    def _end(self) -> Place:
        new = not self._mariadb
        (row,) = self._asked("SHOW BINARY LOG STATUS" if new else "SHOW MASTER STATUS")
        return int(row[0].rpartition(".")[2]), int(row[1])

    def _fill(self) -> None:
        """Another table with rows, or rows for one that is there; made by name as it is, without regard to what was
        generated."""
        rng = self._random
        database, name = rng.choice(self._databases), rng.choice(_NAMES)
        table = f"{_quoted(database)}.{_quoted(name)}"
        try:
            self._asked(f"CREATE DATABASE IF NOT EXISTS {_quoted(database)}")
            if self._mariadb and rng.random() < 0.1:
                self._asked(f"CREATE SEQUENCE {table}")
                return
            more = rng.choice(("", _PARTITIONS, _PARTITIONS, "ENGINE=MyISAM" if self._mariadb else ""))
            self._asked(f"CREATE TABLE IF NOT EXISTS {table} (id INT, k INT, PRIMARY KEY (id, k)) {more}")
            rows = ", ".join(f"({next(self._ids)}, {k})" for k in (5, 15, 25))
            self._asked(f"INSERT INTO {table} VALUES {rows}")
        except pymysql.MySQLError:
            pass

    # --- statements ----------------------------------------------------------------------------------------------

    def _one(self) -> None:
        self._replaced, self._touched, self._over = set(), [], False
        sql = self._random.choice(self._kinds())()
        rng = self._random
        wrapped = rng.random()
        if wrapped < 0.05:
            sql = f"/*!50000 {sql} */"
        elif wrapped < 0.08 and self._mariadb:
            sql = f"SET STATEMENT max_statement_time = 100, sql_mode = '{self._mode}' FOR {sql}"
        elif wrapped < 0.11 and self._mariadb:
            sql = f"BEGIN NOT ATOMIC {sql}; END"
        elif wrapped < 0.13 and self._mariadb:
            sql = f"/*M!100000 {sql} */"
        before = self._rows
        error = self._put(sql)
        self._look()
        after = self._rows
        lost = {table for table, ids in before.items() if ids - after.get(table, set())}
        # A table that changed places is not reported: its name is there all the time.
        swapped = lost & self._replaced & {*self._tables, *self._sequences}
        session = f"{self._charset}, {self._mode or 'no mode'}, in {self._default or 'no database'}"
        kept = before.keys() - lost - self._may(sql)
        self.done.append(Done(sql, session, error, lost - swapped, kept | swapped, self._end()))

    def _may(self, sql: str) -> set[Table]:
        """Tables that a barrier may be for although they kept all rows: the log does not tell which partition had
        any."""
        return set(self._touched) if "PARTITION" in sql.upper() or "SEQUENCE" in sql.upper() else set()

    def _kinds(self) -> list[Callable[[], str]]:
        own: list[Callable[[], str]] = [self._or_replace, self._or_replace_database, self._sequence, self._convert]
        return [
            self._truncate, self._truncate, self._drop, self._drop, self._drop_database, self._rename, self._swap, self._alter_rename,  # noqa: E501
            self._partition, self._partition, self._partition, self._exchange, self._harmless, self._harmless, self._harmless,  # noqa: E501
            self._temporary, self._engine, self._savepoints, *(own if self._mariadb else ()),
        ]  # fmt: skip

    def _space(self) -> str:
        return self._random.choice(_SPACES) if self._random.random() < 0.4 else " "

    def _words(self, text: str) -> str:
        """Keywords in any case with any space between them."""
        return "".join(self._random.choice((word, word.lower(), word.title())) + self._space() for word in text.split())

    def _existing(self, of: list[Table] | None = None) -> Table:
        tables = (self._random.random() < 0.9 and of) or [*self._tables, *self._sequences]
        found = self._random.choice(tables)
        self._touched.append(found)
        return found

    def _spelled(self, name: str) -> str:
        rng = self._random
        if self._folds and rng.random() < 0.5:
            name = name.swapcase()
        how = rng.random()
        if how < (0.5 if _PLAIN.fullmatch(name) else 0.05):
            return name
        quote = '"' if how < 0.65 and "ANSI" in self._mode else "`"
        return quote + name.replace(quote, quote * 2) + quote

    def _name(self, table: Table | None = None) -> str:
        database, name = table or self._existing()
        rng = self._random
        if database.lower() == self._default.lower() and rng.random() < 0.7:
            return ("." if self._mariadb and rng.random() < 0.1 else "") + self._spelled(name)
        space = rng.choice(("", "", " ", "/**/"))
        return f"{self._spelled(database)}{space}.{space}{self._spelled(name)}"

    def _new(self) -> Table:
        return self._random.choice(self._databases), self._random.choice(_NAMES)

    def _truncate(self) -> str:
        return self._words(self._random.choice(("TRUNCATE TABLE", "TRUNCATE"))) + self._name()

    def _drop(self) -> str:
        words = self._random.choice(("DROP TABLE", "DROP TABLE IF EXISTS", "DROP TABLES"))
        names = [self._name() for _ in range(self._random.choice((1, 1, 2)))]
        if self._random.random() < 0.2:
            names.append(self._name(self._new()))
        return self._words(words) + f"{self._space()},".join(names)

    def _drop_database(self) -> str:
        words = self._random.choice(("DROP DATABASE", "DROP SCHEMA IF EXISTS"))
        return self._words(words) + self._spelled(self._random.choice(self._databases))

    def _rename(self) -> str:
        return self._words("RENAME TABLE") + f"{self._name()} TO {self._name(self._new())}"

    def _swap(self) -> str:
        one, two, between = self._existing(), self._existing(), (self._databases[0], "between")
        self._replaced = {one, two}
        if self._random.random() < 0.5:
            return (
                f"RENAME TABLE {self._name(one)} TO {self._name(between)}, {self._name(two)} TO {self._name(one)}, "
                f"{self._name(between)} TO {self._name(two)}"
            )
        self._replaced = {one}
        return f"RENAME TABLE {self._name(one)} TO {self._name(self._new())}, {self._name(two)} TO {self._name(one)}"

    def _alter_rename(self) -> str:
        how = self._random.choice(("RENAME", "RENAME TO", "RENAME AS", "RENAME ="))
        return f"{self._words('ALTER TABLE')}{self._name()} {how} {self._name(self._new())}"

    def _partition(self) -> str:
        what = self._random.choice(("TRUNCATE PARTITION p0", "TRUNCATE PARTITION p1, p2", "TRUNCATE PARTITION ALL", "DROP PARTITION p1", "REMOVE PARTITIONING",  # noqa: E501
                                    "REORGANIZE PARTITION p0, p1 INTO (PARTITION p1 VALUES LESS THAN (20))"))  # fmt: skip  # noqa: E501
        first = self._random.choice(("", "", "ALGORITHM=DEFAULT, " if not self._mariadb else ""))
        return f"{self._words('ALTER TABLE')}{self._name(self._existing(self._partitioned))} {first}{self._words(what)}"

    def _exchange(self) -> str:
        return (
            f"ALTER TABLE {self._name(self._existing(self._partitioned))} EXCHANGE PARTITION p0 WITH TABLE "
            f"{self._name()} WITHOUT VALIDATION"
        )

    def _convert(self) -> str:
        if self._random.random() < 0.5:
            return (
                f"ALTER TABLE {self._name(self._existing(self._partitioned))} CONVERT PARTITION p2 TO TABLE "
                f"{self._name(self._new())}"
            )
        return f"ALTER TABLE {self._name()} CONVERT TABLE {self._name()} TO PARTITION p2 VALUES LESS THAN (30)"

    def _or_replace(self) -> str:
        rng = self._random
        body = rng.choice(
            (
                "(id INT PRIMARY KEY)",
                f"SELECT {next(self._ids)} AS id",
                "(id INT PRIMARY KEY) SELECT 1 AS id UNION ALL SELECT 1",
                "LIKE nothing",
                "(id NONSENSE)",
            )
        )
        return self._words("CREATE OR REPLACE TABLE") + f"{self._name()} {body}"

    def _or_replace_database(self) -> str:
        return self._words("CREATE OR REPLACE DATABASE") + self._spelled(self._random.choice(self._databases))

    def _sequence(self) -> str:
        words = self._random.choice(("CREATE OR REPLACE SEQUENCE", "DROP SEQUENCE", "DROP SEQUENCE IF EXISTS"))
        return self._words(words) + self._name(self._existing(self._sequences))

    def _engine(self) -> str:
        engine = self._random.choice(("InnoDB", "MyISAM", "'BLACKHOLE'", "`blackhole`", "Blackhole"))
        return f"ALTER TABLE {self._name()} {self._words('ENGINE =')}{engine}"

    def _harmless(self) -> str:
        rng = self._random
        comment = rng.choice(_COMMENTS)
        new = self._spelled(rng.choice(_NAMES))
        what = rng.choice(
            (
                f"COMMENT '{comment}'", f'COMMENT "{comment}"', "ADD import INT, CHANGE import tablespace INT", "ADD discard INT", "ADD truncate VARCHAR(9)",  # noqa: E501
                f"ADD {new} INT COMMENT '{comment}'", "ADD `DROP PARTITION p0` INT", "CONVERT TO CHARACTER SET utf8mb4", "ADD (x INT, y INT), DROP x",  # noqa: E501
                "ADD engine INT, CHANGE engine blackhole INT", "RENAME COLUMN k TO kk", "ADD INDEX i (k), RENAME INDEX i TO j", "ORDER BY id",  # noqa: E501
            )
        )  # fmt: skip
        return rng.choice(
            (
                f"ALTER TABLE {self._name()} {what}", f"ALTER TABLE {self._name()} {what}", f"CREATE TABLE {self._name(self._new())} (id INT PRIMARY KEY)",  # noqa: E501
                f"CREATE TABLE IF NOT EXISTS {self._name()} (id INT)", f"CREATE OR REPLACE VIEW {self._name(self._new())} AS SELECT 1 AS truncated",  # noqa: E501
                f"CREATE DATABASE IF NOT EXISTS {self._spelled(rng.choice(self._databases))}",
            )
        )  # fmt: skip

    def _temporary(self) -> str:
        """A temporary table hides another; what happens to it concerns no subscriber.

        It ends with the session: MariaDB logs a RENAME of it."""
        self._over = True
        table = self._existing()
        self._put(f"CREATE TEMPORARY TABLE {self._name(table)} (id INT)")
        name = self._name(table)
        self._put(
            self._random.choice(
                (f"TRUNCATE TABLE {name}", f"ALTER TABLE {name} ADD x INT", f"INSERT INTO {name} VALUES (1)")
            )
        )
        return f"DROP TEMPORARY TABLE {self._name(table)}"

    def _savepoints(self) -> str:
        one, two = (self._spelled(self._random.choice(_NAMES)) for _ in range(2))
        row = f"INSERT INTO {self._name()} VALUES ({{}}, 5)"
        for sql in ("BEGIN", row, f"SAVEPOINT {one}", row, f"SAVEPOINT {two}", row, f"ROLLBACK TO {one}", row):
            self._put(sql.format(next(self._ids)))
        return "COMMIT"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
