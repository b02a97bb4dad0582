"""Django's settings are those of the process: tests change its default database."""

from __future__ import annotations

import django
import pymysql
from django.conf import settings
from django.db import connections

__all__ = ["set_default"]


def set_default(engine: str, name: str, **more: str) -> None:
    """Make this the database of the alias ``default`` for connections that are made from now on."""
    if not settings.configured:
        pymysql.install_as_MySQLdb()
        settings.configure(USE_TZ=True)
        django.setup()
    database = {"ENGINE": f"django.db.backends.{engine}", "NAME": name, **more}
    connections.settings["default"] = connections.configure_settings({"default": database})["default"]
