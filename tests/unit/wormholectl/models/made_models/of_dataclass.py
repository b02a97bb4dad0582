# Made by: wormholectl models server://db1 --style dataclass -o models.py
# Do not edit: make it again. `wormholectl models --check FILE` reports the tables that changed since.
# source: server://db1
# table "crm.users": 6bb5988f033a57c2
# table "shop.literal": dc4df10fdd99548d
# table "shop.order_items": cef597b04574c354
# table "shop.users": 7dc551f2d5165b15
"""Models of tables."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, Json

from subscriber_sdk.models import InUtc, SetNames

__all__ = [
    "CrmUsers",
    "OrderItems",
    "ShopUsers",
    "TableLiteral",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrmUsers:
    """Table crm.users. Without a key."""

    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLiteral:
    """Table shop.literal. Key: id."""

    id: Literal["a"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderItems:
    """Table shop.order_items. Key: id, class."""

    id: int
    class_: Annotated[str, Field(validation_alias="class")]
    price: Decimal | None
    weight: float
    photo: bytes | None
    day: dt.date
    placed: dt.datetime | None
    seen: Annotated[dt.datetime, InUtc] | None
    spent: dt.timedelta
    notes: Json[Any] | None
    state: Literal["new", 'it\'s "old"', "a\nb"]
    stage: Literal[
        "a state with a long name, number 0",
        "a state with a long name, number 1",
        "a state with a long name, number 2",
        "a state with a long name, number 3",
        "a state with a long name, number 4",
        "a state with a long name, number 5",
    ]
    marks: Annotated[frozenset[Literal["a", "b"]], SetNames] | None
    column_2fa: Annotated[int | None, Field(validation_alias="2fa")]
    int_: Annotated[int, Field(validation_alias="int")]
    json: str
    model_dump: str
    a_b: Annotated[str, Field(validation_alias="a b")]
    a_b_2: Annotated[str, Field(validation_alias="a-b")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopUsers:
    """Table shop.users. Key: id."""

    id: int
    email: str
