from __future__ import annotations

import json

import pytest

from tests.support.fake_admin import FakeAdmin
from wormhole.admin import Admin, Where
from wormhole.coordination.current_user import current_user
from wormhole.model.errors import Fatal, UsageError
from wormholectl.shared.flow_change import change_flow

ADMIN = Admin(Where("h:7"))


def test_without_a_terminal_it_is_shown_and_not_done(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="--yes"):
        change_flow("Pause?", lambda preview: ADMIN.pause("cache/db1", preview=preview), False, False)
    assert [one.preview for one in admin.requests] == [True]
    first, head, row, note = capsys.readouterr().out.splitlines()
    assert first == "cache/db1 of shop/main/db1 would change:"
    assert head.split() == ["BEFORE", "AFTER"]
    assert row.split() == ["paused", "-", current_user()]
    assert note == "note: it was asked nicely"


def test_with_a_yes_it_is_done_and_shown(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    change_flow("Pause?", lambda preview: ADMIN.pause("cache/db1", preview=preview), True, False)
    assert [(one.preview, one.who, one.flow) for one in admin.requests] == [(False, current_user(), "cache/db1")]
    assert capsys.readouterr().out.startswith("cache/db1 of shop/main/db1 was changed:")


def test_for_programs(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        change_flow("Pause?", lambda preview: ADMIN.pause("cache/db1", preview=preview), False, True)
    planned = json.loads(capsys.readouterr().out)
    change_flow("Pause?", lambda preview: ADMIN.pause("cache/db1", preview=preview), True, True)
    done = json.loads(capsys.readouterr().out)
    assert (planned["changed"], done["changed"]) == (False, True)
    assert (done["before"]["paused"], done["after"]["paused"]) == (None, current_user())
    assert (done["flow"], done["publisher"], done["notes"]) == ("cache/db1", "shop/main/db1", ["it was asked nicely"])


def test_a_flow_that_nobody_has_and_a_refusal_change_nothing(admin: FakeAdmin) -> None:
    with pytest.raises(UsageError, match="did you mean cache/db1"):
        change_flow("Pause?", lambda preview: ADMIN.pause("cahce/db1", preview=preview), True, False)
    assert admin.requests == []
    admin.refusal = Fatal("it is paused already")
    with pytest.raises(Fatal, match="paused already"):
        change_flow("Pause?", lambda preview: ADMIN.pause("cache/db1", preview=preview), False, False)
    assert [one.preview for one in admin.requests] == [True]


def test_a_record_that_no_publisher_lists_is_forgotten_where_its_log_is(admin: FakeAdmin) -> None:
    """Its application is configured no longer."""
    admin.refusal = UsageError("there is no record of old/db1.users")
    with pytest.raises(UsageError, match="no record of"):
        change_flow("Forget?", lambda preview: ADMIN.forget("old/db1.users", preview=preview), True, False)
    assert admin.requests[0].flow == "old/db1.users"
    with pytest.raises(UsageError, match="there is no flow"):
        change_flow("", lambda preview: ADMIN.forget("old/db2", preview=preview), False, False)
    with pytest.raises(UsageError, match="there is no flow"):
        change_flow("", lambda preview: ADMIN.pause("old/db1.users", preview=preview), True, False)
    assert len(admin.requests) == 1
