"""No snippet of a document is only text: each is held to what reads its language, whatever else runs it.

Commands exist with their options, configurations are read, programs compile and what they import is there. A snippet
that is not ours to check has a line ``<!-- not run: REASON -->`` before it. What a document shows of output, and
drawings, are ``text``.

The tests beside this one, and ``make quickstart-test``, run the snippets.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import subprocess
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest
import yaml

from scripts.prepare import ROOT
from scripts.prose import documents
from tests.support.command_line import can_be_typed
from wormhole.config import parse_json

_FENCE: Final = re.compile(
    r"^(?:(?P<marker><!-- not run: [^\n]+ -->)\n\n?)?(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())
_VERBS: Final = frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
# What follows a whole page; other pages have a test of their own that takes its commands.
_FOLLOWED_BY: Final = {"docs/quickstart.md": "scripts/quickstart.py", "docs/release.md": "scripts/dist.py"}


class Snippet(NamedTuple):
    """One fence. ``marked``: it says why it is not run."""

    page: str
    line: int
    language: str
    code: str
    marked: bool


def snippets() -> Iterator[Snippet]:
    for path in documents(ROOT):
        text = path.read_text()
        found = list(_FENCE.finditer(text))
        name = str(path.relative_to(ROOT))
        assert 2 * len(found) == len(re.findall(r"^ *```", text, re.MULTILINE)), f"{name}: a fence that does not end"
        for one in found:
            line = text.count("\n", 0, one.start("indent")) + 1
            yield Snippet(name, line, one["language"], textwrap.dedent(one["code"]), bool(one["marker"]))


_SUBMITTED: Final = ("spark_replay/submit.py", "local:///opt/wormhole/replay.py")


def _python(snippet: Snippet) -> None:
    tree = ast.parse(snippet.code)
    compile(tree, "snippet", "exec")
    if "from subscriber_sdk" in snippet.code:
        return  # `make check` holds these to mypy and pyright (scripts/programs.py)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for name in names:
                    importlib.import_module(name.name)
            case ast.ImportFrom(module=str(module), names=names):
                imported = importlib.import_module(module)
                missing = [name.name for name in names if not hasattr(imported, name.name)]
                assert not missing, f"{module} has no {', '.join(missing)}"


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: _merged(base[key], over[key]) for key in base.keys() & over.keys() if isinstance(base[key], dict)}
    return {**base, **over, **both}


def _toml(snippet: Snippet) -> None:
    """A configuration, or a part of one; in the latter case the rest is added."""
    given = tomllib.loads(snippet.code)
    if project := given.get("project"):
        assert set(project["entry-points"]) <= set(_PROJECT["project"]["entry-points"])
        return
    datasets = given.get("datasets", {})
    named = {one["dataset"] for one in given.get("applications", {}).values()} | datasets.keys()
    log = {"copies": {"main": {"logs": {"db1": {"source": "rocksdb:///var/lib/shop"}}}}}
    rest = {name: log for name in named if "copies" not in datasets.get(name, {})}
    parse_json(json.dumps(_merged({"version": 1, "datasets": rest}, given)), "the snippet")


def _installs(words: list[str]) -> None:
    extras = _PROJECT["project"]["optional-dependencies"]
    for word in words:
        named = re.fullmatch(r"(?:wormhole-pubsub|\.)\[(.+)\]", word)
        assert not named or set(named[1].split(",")) <= set(extras), word


def _sh(snippet: Snippet) -> None:
    subprocess.run(["sh", "-n", "-c", snippet.code], check=True, timeout=60)
    for line in snippet.code.replace("\\\n", "").splitlines():
        match shlex.split(re.sub(r"^[A-Z_]+=\S* ", "", line), comments=True):
            case ["wormholectl", *_]:
                can_be_typed(line)
            case ["spark-submit", *words]:
                program = next(at for at, word in enumerate(words) if word in _SUBMITTED)
                can_be_typed(shlex.join(["wormholectl", "replay", *words[program + 1 :]]))
            case ["make", verb, *_]:
                assert verb in _VERBS, line
            case ["pip", "install", *words]:
                _installs(words)
            case ["export" | "pytest", *_]:
                pass
            case _:
                assert _is_run(snippet.page), f"no test runs it: {line}"


def _is_run(page: str) -> bool:
    """Whether a test takes the commands of the page, so that they may be any program's."""
    if page in _FOLLOWED_BY:
        return page.rpartition("/")[2] in (ROOT / _FOLLOWED_BY[page]).read_text()
    test = ROOT / "tests" / "docs" / f"test_{page.rpartition('/')[2].removesuffix('.md')}_page.py"
    return test.exists() and 'blocks("sh")' in test.read_text()


def _sql(snippet: Snippet) -> None:
    assert all(re.match(r"(--|[A-Z]{3,} )", line) for line in filter(None, snippet.code.splitlines())), "no statement"


def _yaml(snippet: Snippet) -> None:
    yaml.safe_load(snippet.code)


def _shown(snippet: Snippet) -> None:
    """Not for running: ``text`` is output or a drawing, mermaid a drawing."""


CHECKS: Final[dict[str, Callable[[Snippet], None]]] = {
    "mermaid": _shown, "python": _python, "sh": _sh, "sql": _sql, "text": _shown, "toml": _toml,
    "yaml": _yaml,
}  # fmt: skip


@pytest.mark.parametrize("snippet", list(snippets()), ids=lambda one: f"{one.page}:{one.line}")
def test_a_snippet_is_right(snippet: Snippet) -> None:
    if snippet.marked:
        return
    check = CHECKS.get(snippet.language)
    assert check, f"nothing checks a fence in {snippet.language or 'no language'}: mark it"
    check(snippet)
