from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import wormholectl
from tests.support.command_line import inside, run
from tests.support.installed_package import put_package
from wormhole import __version__
from wormhole.host import compiled as compiled_module
from wormhole.ports import entry_points
from wormhole.ports.entry_points import claims
from wormholectl.app import _EXTRAS, app

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


def test_options_of_completion_are_in_the_help_of_the_root_only() -> None:
    for command in COMMANDS:
        assert "completion" not in run(*command, "--help")[1]
    assert "--install-completion" in run("--help")[1]


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


def test_brackets_in_a_help_text_are_no_markup() -> None:
    assert "[TABLE=]" in run("tail", "--help")[1]


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
