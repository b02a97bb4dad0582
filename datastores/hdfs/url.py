"""Parses ``hdfs://user@namenode:8020/``, which may list several NameNodes separated by commas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["FORM", "Address"]

FORM: Final = "hdfs://user@namenode:8020/"
_PORT: Final = 8020
_OPTIONS: Final = ("configuration", "principal", "keytab")


@dataclass(frozen=True, slots=True)
class Address:
    """``user``: the account, a superuser; empty: this process's user, or the Kerberos ``principal``.
    ``name_nodes``: host and port of each NameNode of one HDFS. ``configuration``: a folder with ``core-site.xml`` and
    ``hdfs-site.xml``; empty: none is read. ``keytab``: the file with the key of ``principal``.
    """

    user: str
    name_nodes: tuple[str, ...]
    configuration: str = ""
    principal: str = ""
    keytab: str = ""

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a URL. Raises ``ValueError`` with a message that never holds a password."""
        parts = urlsplit(url)
        user, _, hosts = parts.netloc.rpartition("@")
        if parts.scheme != "hdfs" or parts.path not in ("", "/") or parts.fragment or ":" in user:
            raise ValueError(f"must be {FORM}, without a password and with nothing behind the slash but parameters")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if not set(options) <= set(_OPTIONS):
            raise ValueError(f"has an unknown parameter; known are {', '.join(_OPTIONS)}")
        if ("principal" in options) != ("keytab" in options):
            raise ValueError("must give principal and keytab together")
        for name in ("configuration", "keytab"):
            if name in options and not options[name].startswith("/"):
                raise ValueError(f"must give {name} as an absolute path")
        if options.get("principal") and user:
            raise ValueError("must give a user or a principal, not both")
        return cls(unquote(user), tuple(map(_with_port, hosts.split(","))), **options)


def _with_port(text: str) -> str:
    host, _, port = text.rpartition(":") if ":" in text else (text, "", str(_PORT))
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"must be {FORM}; the host or the port of a NameNode is none")
    return f"{host}:{port}"
