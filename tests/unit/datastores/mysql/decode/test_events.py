"""Type numbers and names, and which format descriptions are refused."""

from __future__ import annotations

import pytest

from datastores.mysql.decode import events
from wormhole.model.errors import DecodeError


def lengths(**changed: int) -> bytes:
    data = bytearray(171)
    for kind, length in {2: 13, 15: 98, 19: 8, 23: 8, 24: 8, 25: 8, 30: 10, 31: 10, 32: 10, 33: 42, 162: 19}.items():
        data[kind - 1] = length
    for name, length in changed.items():
        data[int(name[1:]) - 1] = length
    return bytes(data)


def test_the_format_of_today_is_accepted() -> None:
    events.check_post_headers(lengths())
    events.check_post_headers(lengths()[:40])  # MySQL: its list ends before MariaDB's numbers
    events.check_post_headers(lengths(t162=0))  # not written by this server


@pytest.mark.parametrize(("kind", "name"), [("t19", "TABLE_MAP"), ("t30", "WRITE_ROWS"), ("t162", "GTID (MariaDB)")])
def test_another_layout_is_refused_by_name(kind: str, name: str) -> None:
    with pytest.raises(DecodeError, match="post-header") as refused:
        events.check_post_headers(lengths(**{kind: 6}))
    assert name in str(refused.value)
    assert refused.value.hint


def test_an_event_is_named_with_its_number() -> None:
    assert events.name_of(events.XID) == "XID event (type 16)"
    assert events.name_of(99) == "unknown event (type 99)"


def test_every_exported_number_of_a_type_has_a_name() -> None:
    others = {"HEADER", "CHECKSUM", "NAMES", "ARTIFICIAL", "IGNORABLE"}
    for name in events.__all__:
        value = getattr(events, name)
        if isinstance(value, int) and name not in others and not name.startswith("FL_"):
            assert value in events.NAMES, name
