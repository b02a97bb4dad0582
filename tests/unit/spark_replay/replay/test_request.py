from __future__ import annotations

from pathlib import Path

from tests.support.replay_plans import archived, seen, setting, wish


def test_what_is_configured_is_reported_to_tasks(tmp_path: Path) -> None:
    found = setting(archived(tmp_path))
    assert found.source_kind == "rocksdb"
    assert not found.formats.open()


def test_a_publisher_is_known_by_its_log_wherever_it_is(tmp_path: Path) -> None:
    found = setting(archived(tmp_path))
    assert found.log_of(seen(reach="h:1").status) == found.log_of(seen(reach="h:2").status) == ("orders", "main", "db1")
    assert wish().start.text == ""


def test_a_log_is_the_same_whichever_copy_of_the_failover_serves_it(tmp_path: Path) -> None:
    found = setting(archived(tmp_path), failover=("main", "west"))
    assert (
        found.log_of(seen(copy="main").status)
        == found.log_of(seen(copy="west").status)
        != found.log_of(seen(copy="other").status)
    )
    assert [found.archives(copy) for copy in ("main", "west", "other")] == [True, True, False]
