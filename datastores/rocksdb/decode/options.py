"""Reads OPTIONS files: the settings with which a database was last opened.

The text is like INI: ``[Section "argument"]`` headers, ``name=value`` lines, ``#`` comments, and a backslash before a
special character. ``examples/rocksdb_option_file_example.ini`` in RocksDB's sources shows the format. The write policy
of transactional databases is not in the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from wormhole.model.errors import DecodeError

__all__ = ["DatabaseOptions", "parse_options"]

_HEADER = re.compile(r'\[\s*([A-Za-z][A-Za-z0-9/]*)\s*(?:"((?:[^"\\]|\\.)*)")?\s*\]')
_ESCAPE = re.compile(r"\\(.)")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """``version``: of the library that wrote the file. ``db``: options of the database. ``families``: by column family.

    Values are text, which :meth:`flag` and :meth:`number` convert. An option that the file lacks has the default of
    that version.
    """

    version: str
    db: Mapping[str, str]
    families: Mapping[str, Mapping[str, str]]

    def flag(self, name: str) -> bool:
        """A boolean option of the database; false if absent."""
        return self.db.get(name, "false").lower() in {"true", "1"}

    def number(self, name: str) -> int:
        """A number option of the database; 0 if absent. Raises :class:`DecodeError` for text that is no number."""
        text = self.db.get(name, "0")
        try:
            return int(text)
        except ValueError:
            raise DecodeError(f"OPTIONS file: {name}={text!r} is no number") from None


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda m: _CONTROL.get(m[1], m[1]), text)


def _without_comment(line: str) -> str:
    """The line up to the first ``#`` that no backslash precedes."""
    end = 0
    while end < len(line) and line[end] != "#":
        end += 2 if line[end] == "\\" else 1
    return line[:end].strip()


def parse_options(text: str) -> DatabaseOptions:
    """Read an OPTIONS file. Raises :class:`DecodeError` with the line's number."""
    db: dict[str, str] = {}
    version: dict[str, str] = {}
    families: dict[str, Mapping[str, str]] = {}
    section: dict[str, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = _without_comment(raw)
        if not line:
            continue
        if line.startswith("["):
            header = _HEADER.fullmatch(line)
            if header is None:
                raise DecodeError(f"OPTIONS file: line {number} is no section header: {line[:80]!r}")
            kind, argument = header[1], _plain(header[2] or "")
            if kind == "DBOptions":
                section = db
            elif kind == "Version":
                section = version
            elif kind == "CFOptions":
                section = {}
                families[argument] = section
            else:
                section = {}  # table factories: no option in them concerns the log
            continue
        name, equals, value = line.partition("=")
        if not equals or section is None:
            raise DecodeError(f"OPTIONS file: line {number} is no name=value within a section: {line[:80]!r}")
        section[name.strip()] = _plain(value.strip())
    if "rocksdb_version" not in version:
        raise DecodeError("OPTIONS file: the [Version] section with rocksdb_version is missing")
    return DatabaseOptions(version["rocksdb_version"], db, families)
