from __future__ import annotations

from pathlib import Path

from tests.support.replay_plans import archived, seen, setting, wish


def test_what_is_configured_is_reported_to_tasks(tmp_path: Path) -> None:
    found = setting(archived(tmp_path))
    assert found.source_kind == "rocksdb"
    assert not found.formats.open()


def test_a_publisher_is_known_by_its_log_wherever_it_is() -> None:
    assert seen(reach="h:1").log == seen(reach="h:2").log == ("orders", "main", "db1")
    assert wish().start.text == ""
