"""The demo: its datastores, workload, journals and story."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from examples.demo.checker import Verdict
from examples.demo.datastore import KINDS, Datastore, open_datastore, open_store
from examples.demo.journal import Commit, Journal, Receipt, Tail, digest
from examples.demo.processes import DemoError
from examples.demo.scene import NotInTimeError, Scene
from examples.demo.story import MOST_LINES, WIDTH, Story, short_shards, table
from examples.demo.workload import TABLES, Change, serial_of, transactions
from scripts.prepare import ROOT
from wormhole.model.errors import ConfigError

# --- datastore ---


@pytest.fixture(params=list(KINDS))
def datastore(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Datastore]:
    found = open_datastore(request.param, tmp_path)
    try:
        found.start()
    except ConfigError as error:  # no such server here; in CI a skip is a failure
        pytest.skip(str(error))
    yield found
    found.close()


def test_it_holds_what_was_committed_after_every_chore(datastore: Datastore, request: pytest.FixtureRequest) -> None:
    assert datastore.source.startswith('source = "')
    assert datastore.told
    store = open_store(request.node.callspec.params["datastore"], datastore.place)
    due = sorted(((part, name) for name, parts in store.chores.items() for part in parts), reverse=True)
    chores = [name for _, name in due]  # the first one last
    expected: dict[tuple[str, str], str] = {}
    for number, changes in enumerate(islice(transactions(1), 200)):
        if number % 50 == 0 and chores:
            assert store.do(chores.pop())
        store.commit(changes)
        for change in changes:
            key = (change.table, change.key.decode())
            if change.value is None:
                del expected[key]
            else:
                expected[key] = digest(change.value)
    assert not chores
    store.close()
    datastore.close()
    assert datastore.content() == expected
    assert datastore.content() == expected  # `--check` asks once more


# --- journal: the demo's journals: what is written is read, and a torn last line does not count ---


COMMIT = Commit(7, 3, "users", "user-0001", digest(b"value"), 1000, 2000)
RECEIPT = Receipt("db1.0of8", 2, "1.db1:7:0", "users", "user-0001", 7, digest(b"value"), 3000)


def test_lines_read_back() -> None:
    assert Commit.parse(COMMIT.line().rstrip("\n")) == COMMIT
    assert Receipt.parse(RECEIPT.line().rstrip("\n")) == RECEIPT


def test_a_tail_follows_a_growing_file_by_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    tail = Tail(path)
    assert tail.lines() == []
    journal = Journal(path)
    journal.write(["one\n", "two\n", "thr"])
    assert tail.lines() == ["one", "two"]
    assert tail.lines() == []
    journal.write(["ee\n"])
    assert tail.lines() == ["three"]


def test_no_value_has_a_digest_of_its_own() -> None:
    assert digest(None) == "-"
    assert digest(b"") != digest(None)
    assert digest(b"a") != digest(b"b")


# --- scene: who waits for the scene is told what went wrong, and at once if waiting cannot help ---


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, lambda *_: None)


async def test_what_does_not_happen_is_named(scene: Scene) -> None:
    with pytest.raises(NotInTimeError, match=r"the moon's rise did not happen within 0\.01 s"):
        await scene.until(lambda: False, 0.01, "the moon's rise")


async def test_a_data_loss_ends_the_wait(scene: Scene) -> None:
    scene.event("cache-1", {"event": "loss", "message": "updates 3 to 5 are gone"})
    with pytest.raises(DemoError, match="cache-1 received a data loss: updates 3 to 5 are gone") as caught:
        await scene.until(lambda: False, 3600.0, "anything")
    assert not isinstance(caught.value, NotInTimeError)


async def test_the_writer_says_what_is_left(scene: Scene) -> None:
    assert told(scene) == (None, None, False)
    scene.event("writer", {"event": "chore", "what": "flushed", "left": 1})
    scene.event("writer", {"event": "finished", "updates": 12})
    assert told(scene) == (1, 12, False)
    scene.event("writer", {"event": "closed"})
    assert told(scene) == (1, 12, True)


def told(scene: Scene) -> tuple[int | None, int | None, bool]:
    return scene.chores_left, scene.finished, scene.closed


# --- story: what the demo prints fits: at most 60 lines of 100 columns, and every word is in the glossary ---


def test_it_never_prints_more_than_fits() -> None:
    out = io.StringIO()
    story = Story(out)
    for _ in range(100):
        story.progress("all goes on " * 20)
        story.say("something happened " * 20)
    story.show(table([Verdict("cache"), Verdict("index")], frozenset({"index"})))
    for _ in range(100):
        story.end("a fault")
    lines = out.getvalue().splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH
    assert any("order" in line for line in lines)
    assert any("a fault" in line for line in lines)


def test_progress_leaves_room_for_what_happens() -> None:
    out = io.StringIO()
    story = Story(out)
    for _ in range(100):
        story.progress("all goes on")
    story.say("cache-1 killed")
    assert "cache-1 killed" in out.getvalue()


@pytest.mark.parametrize(
    ("shards", "text"),
    [
        (["db1.2of8", "db1.0of8"], "db1.(0 2)of8"),
        ([f"db1.{n}of8" for n in range(8)], "all 8 shards"),
        ([], "no shard"),
    ],
)
def test_shards_are_listed_shortly(shards: list[str], text: str) -> None:
    assert short_shards(shards) == text


TERMS = (
    "application",
    "caravan",
    "change buffer",
    "column family",
    "coordination",
    "datamarker",
    "duplicate",
    "flow",
    "latency",
    "lead caravan",
    "lost",
    "order violation",
    "p50, p99",
    "pinning",
    "publisher",
    "recovery",
    "shard",
    "subscriber",
    "update",
)


def test_every_term_of_the_demo_is_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    words = {match.split(" (")[0].strip() for match in re.findall(r"^- \*\*([^*]+)\*\*:", glossary, re.MULTILINE)}
    assert set(TERMS) <= words, set(TERMS) - words


# --- workload: the demo's workload: the same for the same seed, and what the checker relies on ---


def _changes(seed: int, count: int = 2000) -> list[Change]:
    return [change for transaction in islice(transactions(seed), count) for change in transaction]


def test_the_seed_decides_everything() -> None:
    assert _changes(3, 200) == _changes(3, 200)
    assert _changes(3, 200) != _changes(4, 200)


def test_serials_count_from_one_and_stand_in_the_values() -> None:
    changes = _changes(1)
    assert [change.serial for change in changes] == list(range(1, len(changes) + 1))
    assert all(serial_of(change.value) == change.serial for change in changes if change.value is not None)


def test_a_key_is_deleted_once_and_never_written_again() -> None:
    gone: set[tuple[str, bytes]] = set()
    for change in _changes(2):
        assert (change.table, change.key) not in gone
        if change.value is None:
            gone.add((change.table, change.key))
    assert gone


def test_every_table_is_used_and_keys_are_written_again() -> None:
    changes = _changes(5)
    assert {change.table for change in changes} == set(TABLES)
    users = [change.key for change in changes if change.table == "users"]
    assert len(set(users)) < len(users) / 2


def test_a_strange_value_has_no_serial() -> None:
    assert serial_of(b"short") == 0
