"""The root of ``wormholectl``: every module of commands, and the options before them."""

from __future__ import annotations

import platform
import sys
from functools import cached_property
from importlib import import_module
from inspect import getdoc
from types import ModuleType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand
from typer.main import get_command_from_info, get_command_name, get_group_from_info, solve_typer_info_help
from typer.models import CommandInfo, TyperInfo

from wormhole import __version__
from wormholectl import archive, audit, exports, markers, objects, replay, snapshots, spark, zookeeper
from wormholectl.backfill import commands as backfill
from wormholectl.backfill import verify
from wormholectl.config import commands as config
from wormholectl.doctor import commands as doctor
from wormholectl.doctor import support_dump
from wormholectl.filters import commands as filters
from wormholectl.flows import commands as flows
from wormholectl.hosts import commands as hosts
from wormholectl.init import commands as init
from wormholectl.lag import commands as lag
from wormholectl.models import commands as models
from wormholectl.publishers import commands as publishers
from wormholectl.relay import commands as relay
from wormholectl.run import commands as run
from wormholectl.shared.errors import GuardedGroup
from wormholectl.show.printer import print_text
from wormholectl.tail import commands as tail

__all__ = ["ListedCommand", "RootGroup", "app"]


_FIRST: Final = "A database, and the first hour"
_RUN: Final = "Run"
_OBSERVE: Final = "Observe"
_OPERATE: Final = "Operate flows and logs"
_ROWS: Final = "Existing rows, archive and replay"
_CONFIGURE: Final = "Configure"
_GROUPS: Final = {  # in the order of `--help`
    _FIRST: ("tail", "doctor", "init", "models", "objects"),
    _RUN: ("up", "down", "publisher", "monitor", "zookeeper"),
    _OBSERVE: ("flows", "lag", "why-lag", "top", "publishers", "shards", "caravans", "subscribers", "hosts", "audit"),
    _OPERATE: ("markers", "relay", "drain", "support-dump"),
    _ROWS: ("backfill", "verify", "repair", "archive", "replay", "snapshot", "history", "export", "spark"),
    _CONFIGURE: ("config", "filters"),
}
_PANELS: Final = {name: group for group, names in _GROUPS.items() for name in names}
_NOUNS: Final = (
    (tail.app, None),
    (doctor.app, None),
    (init.app, None),
    (models.app, None),
    (objects.app, "objects"),
    (flows.app, "flows"),
    (markers.app, "markers"),
    (publishers.publishers_app, "publishers"),
    (publishers.app, None),
    (relay.app, "relay"),
    (hosts.hosts_app, "hosts"),
    (hosts.app, None),
    (lag.app, None),
    (support_dump.app, None),
    (run.app, None),
    (run.publisher_app, "publisher"),
    (run.monitor_app, "monitor"),
    (config.app, "config"),
    (filters.app, "filters"),
    (archive.app, "archive"),
    (backfill.app, "backfill"),
    (verify.app, None),
    (replay.app, None),
    (audit.app, None),
    (snapshots.app, None),
    (exports.app, "export"),
    (spark.app, "spark"),
    (zookeeper.app, "zookeeper"),
)


def _flow_help(commands: typer.Typer) -> None:
    """Make each paragraph of the commands' help one line, for the terminal to wrap: typer keeps a docstring's
    breaks."""
    documented: list[CommandInfo | TyperInfo] = [*commands.registered_commands]
    if commands.registered_callback is not None:
        documented.append(commands.registered_callback)
    for command in documented:
        paragraphs = (command.help or getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _flow_help(group.typer_instance)


for _commands, _ in _NOUNS:
    _flow_help(_commands)


class ListedCommand(TyperCommand):
    """A command or a group that is built when it is used: the root's help needs names and first lines only."""

    def __init__(self, declared: CommandInfo | TyperInfo, name: str, text: str) -> None:
        super().__init__(name, help=text, rich_help_panel=_PANELS[name])
        self._declared = declared

    @cached_property
    def built(self) -> Any:
        """With its options, its arguments and the commands inside."""
        how: Any = {"pretty_exceptions_short": True, "rich_markup_mode": _MARKUP}
        if isinstance(self._declared, CommandInfo):
            return get_command_from_info(self._declared, **how)
        return get_group_from_info(self._declared, suggest_commands=True, **how)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """What is called first, of a command that runs, shows its help or is completed."""
        return self.built.make_context(*args, **kwargs)


class RootGroup(GuardedGroup):
    """The root, with every noun and command of this package."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        found: dict[str, ListedCommand] = {}
        for commands, noun in _NOUNS:
            if noun is None:
                for command in commands.registered_commands:
                    assert command.callback is not None
                    name = command.name or get_command_name(command.callback.__name__)
                    found[name] = ListedCommand(command, name, command.help or "")
            else:
                group = TyperInfo(commands, name=noun)
                found[noun] = ListedCommand(group, noun, solve_typer_info_help(group))
        for name in _PANELS:  # the order of the help
            self.add_command(found[name])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As Typer prints it, without what it would import for help in Markdown and for tracebacks: neither is used
        here, and both take a sixth of the command's time."""
        unused = {"rich.markdown", "rich.traceback"}.difference(sys.modules)
        for name in unused:
            sys.modules[name] = placeholder = ModuleType(name)
            vars(placeholder)["__getattr__"] = lambda _: None
        try:
            import_module("typer.rich_utils")
        finally:
            for name in unused:
                del sys.modules[name]
        super().format_help(ctx, formatter)


_MARKUP: Final = "rich"
app = typer.Typer(
    cls=RootGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=_MARKUP,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Wormhole pub-sub: every committed change of a database, pushed to the services that asked for it.",
    epilog=(
        "Exit codes: 0 all well, 1 a problem, 2 a wrong request, 3 unreachable. WORMHOLE_DEBUG=1 shows where an "
        "error came from."
    ),
)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from wormhole.host.compiled import compiled_modules, hot_modules

    compiled = compiled_modules()
    interpreted = [name for name in hot_modules() if name not in compiled]
    form = "interpreted, 5 to 70 times slower" if not compiled else "compiled"
    if compiled and interpreted:
        form = f"compiled but for {', '.join(interpreted)}"
    print_text(f"wormholectl {__version__}, Python {platform.python_version()}, {form}")
    raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version, and whether it runs compiled."
        ),
    ] = False,
) -> None:
    """The options before the command."""
