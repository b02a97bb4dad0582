from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.fake_admin import FakeAdmin
from wormholectl.complete import application_names, flow_names
from wormholectl.discovery import Where


@dataclass
class Context:
    params: dict[str, Any]
    parent: Context | None = None
    more: list[str] = field(default_factory=list)


def test_names_come_from_the_publishers(admin: FakeAdmin) -> None:
    context = Context({"coordinator": None}, Context({"coordinator": "shop.toml"}))
    assert flow_names(context, "ca") == ["cache/db1"]
    assert flow_names(context, "") == ["cache/db1", "mail/db1"]
    assert application_names(context, "m") == ["mail"]
    assert admin.asked[0] == Where("", "shop.toml")


def test_when_nobody_answers_there_is_nothing_to_offer() -> None:
    assert flow_names(Context({"publisher": "127.0.0.1:1"}), "") == []
    assert flow_names(Context({}), "") == []
