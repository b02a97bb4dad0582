"""A request that is wrong: one message with a next step, exit code 2, nothing printed and nothing changed."""

from __future__ import annotations

import pytest

from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from tests.support.publisher_status import relay

CASES = {
    "flows -a cahce": "did you mean cache",
    "flows --state sleeping": "one of unassigned",
    "flows dead-letters list cash/db1": "did you mean cache/db1",
    "flows dead-letters discard cache/db1 --yes": "either --key KEY or --all",
    "flows dead-letters discard cache/db1 --all --key users:7 --yes": "either --key KEY or --all",
    "markers show cache/db2": "did you mean cache/db1",
    "markers rewind cache/db1 --since=2x -y": "--since 2x: must be",
    "markers rewind cache/db1 --since=-5m -y": "--since -5m: must be",
    "markers rewind cache/db1 --since=h -y": "--since h: must be",
    "markers rewind cache/db1 --since=1e9d -y": "--since 1e9d: must be",
    "lag cahce": "did you mean cache",
    "lag cache --max soon": "soon: must be a duration",
    "why-lag cache/db7": "did you mean cache/db1",
    "top": "needs a terminal",
    "top --every soon": "soon: must be a duration",
    "backfill start cahce": "did you mean cache",
    "backfill start cache --tables shop.user": "did you mean shop.users",
    "backfill start cache --tables shop.secret": "GRANT SELECT",
    "backfill start cache --tables shop.log": "shop.log cannot be read: shop.log has no primary key",
    "backfill start cache --rate fast": "for example --rate 4MiB/s",
    "backfill start cache --rate 0B/s": "no row would ever be sent",
    "backfill show cahce": "did you mean cache",
    "backfill show cache --watch": "`wormholectl backfill start cache` begins one",
    "backfill pause cache": "no backfill of cache runs",
    "backfill resume cache": "no backfill of cache runs",
    "backfill cancel cache": "no backfill of cache runs",
    "verify cahce --yes": "did you mean cache",
    "verify cache/db7 --yes": "did you mean cache/db1",
    "verify cache --rate 0B/s --yes": "no row would ever be sent",
    "verify cache --tables shop.user --yes": "did you mean shop.users",
    "repair cache/db7 --yes": "did you mean cache/db1",
    "relay show shop/main/db2": "shop/main/db2 has no relay",
    "relay verify": "in which folder",
    "relay trim": "how much is to stay?",
    "relay trim --all --keep 1GiB": "--all and --keep exclude each other",
    "relay trim --keep much": "--keep much",
    "hosts": "needs a coordinator",
}


@pytest.mark.parametrize("command", CASES)
def test_what_publishers_are_asked_wrongly(command: str, admin: FakeAdmin) -> None:
    admin.status.relay.CopyFrom(relay())
    code, out, err = run(*command.split(), "-p", "h:7")
    assert (code, out) == (2, "")
    assert CASES[command] in err
    assert "next: " in err
    assert [one for one in admin.requests if not one.preview] == []


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("doctor", "give the URL of a database; for an installation -c FILE.toml"),
        ("doctor oracle://h/", "names no log"),
        ("config show", "WORMHOLE_COORDINATOR"),
        ("config history", "WORMHOLE_COORDINATOR"),
    ],
)
def test_what_is_asked_of_nothing(command: str, says: str) -> None:
    code, out, err = run(*command.split())
    assert (code, out, says in err) == (2, "", True), err
