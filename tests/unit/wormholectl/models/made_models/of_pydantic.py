# Made by: wormholectl models server://db1 --style pydantic -o models.py
# Do not edit: make it again. `wormholectl models --check FILE` reports the tables that changed since.
# source: server://db1
# table "crm.users": 6bb5988f033a57c2
# table "shop.literal": dc4df10fdd99548d
# table "shop.order_items": cef597b04574c354
# table "shop.users": 7dc551f2d5165b15
"""Models of tables."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Json

from subscriber_sdk.models import InUtc, SetNames

__all__ = [
    "CrmUsers",
    "OrderItems",
    "ShopUsers",
    "TableLiteral",
]


class CrmUsers(BaseModel):
    """Table crm.users. Without a key."""

    model_config = ConfigDict(frozen=True)

    name: str | None


class TableLiteral(BaseModel):
    """Table shop.literal. Key: id."""

    model_config = ConfigDict(frozen=True)

    id: Literal["a"]


class OrderItems(BaseModel):
    """Table shop.order_items. Key: id, class."""

    model_config = ConfigDict(frozen=True, validate_by_name=True, protected_namespaces=())

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
    json_: Annotated[str, Field(validation_alias="json")]
    model_dump_: Annotated[str, Field(validation_alias="model_dump")]
    a_b: Annotated[str, Field(validation_alias="a b")]
    a_b_2: Annotated[str, Field(validation_alias="a-b")]


class ShopUsers(BaseModel):
    """Table shop.users. Key: id."""

    model_config = ConfigDict(frozen=True)

    id: int
    email: str
