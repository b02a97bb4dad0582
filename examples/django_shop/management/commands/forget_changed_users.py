"""DJANGO_SETTINGS_MODULE=examples.django_shop.settings python -m django forget_changed_users"""

from __future__ import annotations

from typing import Any

from django.core.cache import cache
from django.core.management.base import BaseCommand
from django.db import close_old_connections

from subscriber_sdk import Subscriber, Update, run

__all__ = ["Command", "Users"]


class Users(Subscriber):
    """Plain ``def``, because Django's cache and models block: the callback runs in a thread."""

    def on_update(self, update: Update) -> None:
        """Forget who changed."""
        close_old_connections()  # a process that runs for days outlives connections; there are no requests to do it
        number = update.key[0]
        assert isinstance(number, int)
        cache.delete(f"user:{number}")


class Command(BaseCommand):
    """Runs beside the web processes, until SIGTERM."""

    help = "Drop cached users whose row changed"

    def handle(self, *args: Any, **options: Any) -> None:
        """As Django calls it."""
        run(Users(), application="cache")
