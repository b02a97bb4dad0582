"""``wormholectl explain``: the entry of a code, and what a code is that has none."""

from __future__ import annotations

import json

from tests.support.command_line import run
from wormhole.problems.catalogue import entries


def test_it_prints_the_entry_of_a_code() -> None:
    code, out, _ = run("explain", "marker-purged")
    entry = entries()["marker-purged"]
    assert code == 0
    assert out.splitlines()[0] == f"marker-purged: {entry.title}"
    assert all(f"  {text}" in out for text in (entry.means, entry.look_at, entry.do))


def test_alone_it_lists_all_codes() -> None:
    _, out, _ = run("explain", "--json")
    listed = json.loads(out)["codes"]
    assert [one["code"] for one in listed] == list(entries())
    assert {line.split()[0] for line in run("explain")[1].splitlines()[1:]} == entries().keys()


def test_a_code_that_does_not_exist_is_one_error_with_the_nearest_names() -> None:
    code, out, err = run("explain", "marker-purge")
    assert (code, out) == (2, "")
    assert err.startswith("error [wrong-request]: ")
    assert "marker-purged" in err
    assert "archive" not in err
