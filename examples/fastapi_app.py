"""A FastAPI application with a cache of users, which forgets a user when the row changes.

uvicorn examples.fastapi_app:app
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from subscriber_sdk import Subscriber, Update, serve

__all__ = ["app", "load_user", "users"]


class Users(Subscriber):
    """``rows``: cached users by number. ``changes``: how many updates came."""

    def __init__(self) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}
        self.changes = 0

    async def on_update(self, update: Update) -> None:
        """Forget who changed."""
        self.changes += 1
        self.rows.pop(update.key[0], None)


users = Users()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    """Receive updates as long as requests are answered, on the same event loop."""
    async with serve(users, application="web"):
        yield


app = FastAPI(lifespan=lifespan)


async def load_user(number: int) -> dict[str, Any]:
    """Stands for a query of your database."""
    return {"id": number}


@app.get("/users/{number}")
async def user(number: int) -> dict[str, Any]:
    """A user, from the cache where possible."""
    if number in users.rows:
        return users.rows[number]
    changes = users.changes
    row = await load_user(number)
    if changes == users.changes:  # else it may have changed since it was read
        users.rows[number] = row
    return row
