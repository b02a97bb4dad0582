"""The program: its nouns and verbs, wrong requests, and the entries of codes."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import wormholectl
from tests.support.command_line import inside, run
from tests.support.fake_admin import FakeAdmin
from tests.support.installed_package import put_package
from tests.support.publisher_status import relay
from wormhole import __version__
from wormhole.host import compiled as compiled_module
from wormhole.ports import entry_points
from wormhole.ports.entry_points import claims
from wormhole.problems.catalogue import entries
from wormholectl.app import _EXTRAS, app

# --- app ---


COMMANDS = [
    ["tail"],
    ["doctor"],
    ["init"],
    ["flows"],
    ["flows", "pause"],
    ["flows", "resume"],
    ["flows", "skip"],
    ["flows", "accept-loss"],
    ["flows", "dead-letters"],
    ["flows", "dead-letters", "list"],
    ["flows", "dead-letters", "retry"],
    ["flows", "dead-letters", "discard"],
    ["markers"],
    ["markers", "show"],
    ["markers", "set"],
    ["markers", "rewind"],
    ["markers", "forget"],
    ["publishers"],
    ["shards"],
    ["hosts"],
    ["drain"],
    ["lag"],
    ["why-lag"],
    ["top"],
    ["support-dump"],
    ["caravans"],
    ["subscribers"],
    ["publisher", "run"],
    ["monitor", "run"],
    ["up"],
    ["down"],
    ["config", "check"],
    ["config", "apply"],
    ["config", "diff"],
    ["config", "show"],
    ["config", "history"],
    ["filters", "explain"],
    ["backfill"],
    ["verify"],
    ["repair"],
]


@pytest.mark.parametrize(
    ("compiled", "form"),
    [
        (("a.x", "a.y"), "compiled"),
        (("a.x",), "compiled but for a.y"),
        ((), "interpreted, 5 to 70 times slower"),
    ],
)
def test_the_version_is_one_line(compiled: tuple[str, ...], form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_module, "hot_modules", lambda: ("a.x", "a.y"))
    monkeypatch.setattr(compiled_module, "compiled_modules", lambda: compiled)
    version = f"wormholectl {__version__}, Python {platform.python_version()}, {form}\n"
    assert run("--version") == (0, version, "")


@pytest.mark.parametrize(
    ("shell", "environment"),
    [
        ("bash", {"COMP_WORDS": "wormholectl fl", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "wormholectl fl"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "wormholectl fl", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_shells_complete_commands(shell: str, environment: dict[str, str]) -> None:
    environment["_WORMHOLECTL_COMPLETE"] = f"complete_{shell}"
    found = CliRunner().invoke(app, [], env=environment, prog_name="wormholectl")
    assert "flows" in found.output


def test_the_terminal_wraps_the_help_and_not_the_docstring() -> None:
    def broken(command: Any, name: str) -> Iterator[str]:
        if "\n" in (command.help or "").replace("\n\n", ""):
            yield name
        for word, inner in inside(command).items():
            yield from broken(inner, f"{name} {word}".strip())

    assert list(broken(typer.main.get_command(app), "")) == []


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command: list[str]) -> None:
    code, out, _ = run(*command, "--help")
    assert code == 0
    assert "Example" in out
    assert f"wormholectl {' '.join(command)}" in out
    assert "completion" not in out, "these options are of the root"


def test_what_is_in_one_help_only() -> None:
    assert "--install-completion" in run("--help")[1]
    assert "[TABLE=]" in run("tail", "--help")[1], "brackets are no markup"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["tail", "rocksdb://x/y"], 2, "names no log"),
        (["tail", "rocksdb:///x", "--filter", "key = 1"], 2, "column 5: a single ="),
        (["tail", "rocksdb:///x", "--limit", "0"], 2, "--limit"),
        (["tail", "rocksdb:///no/such/store"], 3, "there is no directory /no/such/store"),
        (["doctor", "rocksdb:///no/such/store"], 3, "there is no directory /no/such/store"),
        (["flows"], 2, "--publisher HOST:PORT"),
        (["caravans", "--publisher", "127.0.0.1:1"], 3, "does not answer"),
        (["subscribers", "--tls-ca", "x", "-p", "h:1"], 2, "belong together"),
        (["publisher", "run", "-c", "/no/such.toml"], 2, "no such configuration file"),
        (["config", "apply", "/no/such.toml"], 2, "no such configuration file"),
        (["config", "check", "/no/such.toml"], 2, "no such configuration file"),
        (["dance"], 2, "dance"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_wrong_is_said_on_standard_error(arguments: list[str], code: int, says: str) -> None:
    found, out, err = run(*arguments)
    assert (found, out) == (code, "")
    assert says in err
    assert "Traceback" not in err


def test_a_command_imports_only_what_it_needs() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import sys, wormholectl.app; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    takes_long = {"pydantic", "grpc", "rich", "asyncio", "kazoo", "google.protobuf", "importlib.metadata"}
    assert (takes_long | {"spark_replay"}).isdisjoint(told)


def test_the_help_of_the_root_builds_no_command_and_imports_no_markdown() -> None:
    code = """
import sys
from wormholectl.app import app
from typer.main import get_command
root = get_command(app)
try:
    root(["--help"], prog_name="wormholectl")
except SystemExit as ended:
    built = [name for name, one in root.commands.items() if "built" in vars(one)]
    unused = {"rich.markdown", "rich.traceback", "markdown_it", "pygments", "importlib.metadata", "spark_replay"}
    print(ended.code, built, unused & set(sys.modules))
    import rich.markdown
    print(rich.markdown.Markdown("text").markup)
"""
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.splitlines()[-2:] == ["0 [] set()", "text"]


def test_the_command_names_its_extra_where_a_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wormholectl.app")
    monkeypatch.setitem(sys.modules, "typer", None)

    with pytest.raises(SystemExit, match=re.escape("pip install 'wormhole-pubsub[cli]'")):
        wormholectl.main()


Install = Callable[..., None]
VERB = """
import typer
app = typer.Typer()

@app.command()
def dance() -> None:
    '''Dance
    once.'''
    print("danced")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package onto the path that claims the command ``name``."""

    def put(package: str, name: str, code: str, attribute: str = "app") -> None:
        put_package(tmp_path / package, monkeypatch, package, "wormhole.commands", name, code, attribute)

    return put


def test_a_package_adds_a_command(install: Install) -> None:
    install("dancer_a", "dance", VERB)
    assert run("dance") == (0, "danced\n", "")
    assert "Dance once." in run("dance", "--help")[1]


def test_a_package_adds_a_noun(install: Install) -> None:
    install("dancer_b", "dances", VERB + "\n@app.command()\ndef rest(): pass\n")
    assert run("dances", "dance") == (0, "danced\n", "")


@pytest.mark.parametrize(
    ("name", "code", "attribute", "says"),
    [
        ("dance", "import no_such", "app", "cannot be imported: ModuleNotFoundError: No module named 'no_such'"),
        ("dance", "1/0", "app", "cannot be imported: ZeroDivisionError"),
        ("dance", VERB, "misspelt", "cannot be imported: AttributeError"),
        ("dance", "app = print", "app", "is no instance of typer.main.Typer"),
        ("archive", VERB, "app", "2 packages claim the command archive: "),
    ],
    ids=["its package", "an error", "no such name", "something else", "one of ours"],
)
def test_an_entry_point_that_cannot_be_used_takes_only_itself_away(
    name: str, code: str, attribute: str, says: str, install: Install
) -> None:
    install(f"dancer_{abs(hash((code, attribute)))}", name, code, attribute)
    listed, others = run("--help"), run("snapshot", "--help")
    assert (listed[0], listed[2], others[0]) == (0, "", 0)
    found, out, err = run(name)
    assert (found, out) == (2, "")
    assert says in err
    assert "next: " in err
    assert "Traceback" not in err


def test_a_shell_completes_nothing_of_a_command_that_cannot_be_used(install: Install) -> None:
    install("dancer_f", "dance", "import no_such")
    environment = {"_WORMHOLECTL_COMPLETE": "complete_bash", "COMP_WORDS": "wormholectl dance ", "COMP_CWORD": "2"}
    found = CliRunner().invoke(app, [], env=environment, prog_name="wormholectl")
    assert (found.exit_code, found.output.strip()) == (0, "")


def test_two_packages_that_claim_one_command(install: Install) -> None:
    install("dancer_c", "dance", VERB)
    install("dancer_d", "dance", VERB)
    found, _, err = run("dance")
    assert found == 2
    assert "2 packages claim the command dance: dancer_c 1.2 and dancer_d 1.2" in err


def test_a_command_of_ours_cannot_be_taken(install: Install) -> None:
    install("dancer_e", "lag", VERB)
    assert "danced" not in run("lag")[1]


@pytest.mark.parametrize("missing", ["no entry point", "no package"])
@pytest.mark.parametrize("name", list(_EXTRAS))
def test_a_command_without_its_extra_is_listed_and_names_it(
    name: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "no package":
        monkeypatch.setitem(sys.modules, claims("wormhole.commands")[name][0].module, None)
    else:
        monkeypatch.setattr(entry_points, "claims", lambda group: {})
    assert f" {name} " in run("--help")[1]
    found, out, err = run(name)
    assert (found, out) == (2, "")
    assert f"pip install 'wormhole-pubsub[{_EXTRAS[name][0]}]'" in err


@pytest.mark.parametrize("name", list(_EXTRAS))
def test_the_help_of_the_root_is_that_of_the_command(name: str) -> None:
    assert _EXTRAS[name][1] == inside(typer.main.get_command(app))[name].help


# --- explain: ``wormholectl explain``: the entry of a code, and what a code is that has none ---


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


# --- markers ---


def test_bare_and_show_list(admin: FakeAdmin) -> None:
    code, out, _ = run("markers", "-p", "h:7")
    head, first, second = out.splitlines()
    assert (code, head.split()[:3]) == (0, ["FLOW", "MARKER", "DELIVERED"])
    assert first.split()[:3] == ["cache/db1", "1/2/10", "7"]
    assert second.split()[:3] == ["mail/db1", "-", "-"]
    code, out, _ = run("markers", "show", "cache/db1", "-p", "h:7", "--json")
    (one,) = json.loads(out)["markers"]
    assert (one["flow"], one["marker"], one["delivered"], one["headroom_s"]) == ("cache/db1", "1/2/10", "7", 7200.0)


def test_set_and_forget(admin: FakeAdmin) -> None:
    assert run("markers", "set", "cache/db1", "1/1/5", "-p", "h:7", "-y")[0] == 0
    assert run("markers", "forget", "cache/db1", "-p", "h:7", "-y")[0] == 0
    one, other = admin.requests
    assert one.set_marker.place == "1/1/5"
    assert other.WhichOneof("what") == "forget"


def test_rewind_counts_from_now(admin: FakeAdmin) -> None:
    before = time.time()
    assert run("markers", "rewind", "cache/db1", "--since", "2h", "-p", "h:7", "-y")[0] == 0
    assert before - 7200 <= admin.requests[0].set_marker.at_s <= time.time() - 7200


# --- wrong requests ---


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
