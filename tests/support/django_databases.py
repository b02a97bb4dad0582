"""Django's settings are those of the process: tests change its default database."""

from __future__ import annotations

import sys

import django
import pymysql
from django.conf import settings
from django.db import connections

__all__ = ["set_default"]


def set_default(engine: str, name: str, **more: str) -> None:
    """Make this the database of the alias ``default`` for connections that are made from now on."""
    if not settings.configured:
        pymysql.install_as_MySQLdb()
        # Otherwise Django's `MySQLdb.converters` is a second copy, whose import replaces `pymysql.err`: an error of a
        # connection is then none that other tests catch.
        mine = {name: module for name, module in sys.modules.items() if name.startswith("pymysql.")}
        sys.modules.update({name.replace("pymysql", "MySQLdb", 1): module for name, module in mine.items()})
        settings.configure(USE_TZ=True)
        django.setup()
    database = {"ENGINE": f"django.db.backends.{engine}", "NAME": name, **more}
    connections.settings["default"] = connections.configure_settings({"default": database})["default"]
