"""The root of ``wormholectl``: it joins all modules of commands, and has the options before a command."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from inspect import getdoc
from types import ModuleType
from typing import Annotated, Any, Final, TypeAlias

import typer
from typer.core import TyperCommand
from typer.main import get_command_from_info, get_command_name, get_group_from_info, solve_typer_info_help
from typer.models import CommandInfo, TyperInfo

from wormhole import __version__
from wormhole.model.errors import UsageError
from wormholectl import capture, explain, markers, objects, zookeeper
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
from wormholectl.subscribe import commands as subscribe
from wormholectl.tail import commands as tail
from wormholectl.tokens import commands as tokens

__all__ = ["ListedCommand", "RootGroup", "app"]


_FIRST: Final = "A database, and the first hour"
_RUN: Final = "Run"
_OBSERVE: Final = "Observe"
_OPERATE: Final = "Operate flows and logs"
_ROWS: Final = "Existing rows, archive and replay"
_CONFIGURE: Final = "Configure"
_GROUPS: Final = {  # in the order of `--help`
    _FIRST: ("tail", "doctor", "init", "models", "objects", "capture"),
    _RUN: ("up", "down", "publisher", "monitor", "sink", "zookeeper"),
    _OBSERVE: (
        "subscribe",
        "flows",
        "lag",
        "why-lag",
        "top",
        "publishers",
        "shards",
        "caravans",
        "subscribers",
        "hosts",
        "audit",
    ),
    _OPERATE: ("explain", "markers", "relay", "drain", "support-dump"),
    _ROWS: ("backfill", "verify", "repair", "archive", "replay", "snapshot", "history", "export", "spark"),
    _CONFIGURE: ("config", "filters", "tokens"),
}
_PANELS: Final = {name: group for group, names in _GROUPS.items() for name in names}
_ENTRY_POINTS: Final = "wormhole.commands"
_EXTRAS: Final = {  # ours that are entry points: the extra that each needs, and its line in `--help`
    "audit": (
        "spark",
        (
            "Compare what was archived with what was delivered and processed, by windows of ten minutes; say which "
            "updates are lost."
        ),
    ),
    "archive": ("archive", "Keep every update as Parquet, and look after what is kept."),
    "replay": ("spark", "Push updates of the archive to an application again, then hand over to the live log."),
    "snapshot": ("spark", "Write a dataset's tables as they are, or were, into Parquet."),
    "history": ("spark", "Write every version of every row into Parquet, with the beginning and the end of each."),
    "export": ("spark", "Carry a dataset's tables on as Delta or Iceberg tables."),
    "spark": ("spark", "Give a Spark cluster what our jobs need."),
    "sink": ("cli", "Fill other stores with the updates of applications."),
}
_NOUNS: Final = (
    (tail.app, None),
    (subscribe.app, None),
    (doctor.app, None),
    (explain.app, None),
    (init.app, None),
    (models.app, None),
    (objects.app, "objects"),
    (capture.app, "capture"),
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
    (tokens.app, "tokens"),
    (backfill.app, "backfill"),
    (verify.app, None),
    (zookeeper.app, "zookeeper"),
)


def _flow_help(commands: typer.Typer) -> None:
    """Join the lines of each help paragraph, because typer keeps a docstring's line breaks. The terminal wraps it."""
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

_Declared: TypeAlias = CommandInfo | TyperInfo


class ListedCommand(TyperCommand):
    """A command or a group that is built when it is used. The root's help needs only its name and first line.

    ``declared``: its declaration; ``None`` for an entry point, which is imported when it is used.
    """

    def __init__(self, declared: _Declared | None, name: str, text: str) -> None:
        super().__init__(name, help=text, rich_help_panel=_PANELS.get(name))
        self._declared = declared

    @cached_property
    def built(self) -> Any:
        """The complete command, with its options, arguments and subcommands.

        Raises :class:`~wormhole.model.errors.UsageError` if the package of the command cannot be used.
        """
        how: Any = {"pretty_exceptions_short": True, "rich_markup_mode": _MARKUP}
        declared = self._declared or _registered(self.name or "")
        if isinstance(declared, CommandInfo):
            return get_command_from_info(declared, **how)
        return get_group_from_info(declared, suggest_commands=True, **how)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Build the command. Typer calls this first when the command runs, shows its help or is completed."""
        try:
            return self.built.make_context(*args, **kwargs)
        except UsageError:
            if not kwargs.get("resilient_parsing"):
                raise
            return super().make_context(*args, **kwargs)  # then a shell completes nothing after this command


def _commands_of(commands: typer.Typer) -> Mapping[str, CommandInfo]:
    found = {}
    for command in commands.registered_commands:
        assert command.callback is not None
        found[command.name or get_command_name(command.callback.__name__)] = command
    return found


def _registered(name: str) -> _Declared:
    """The command ``name`` of its entry point: a command with that name in the entry point's Typer application, or the
    whole application as a noun."""
    from wormhole.ports.entry_points import claims, load_only

    claimed = claims(_ENTRY_POINTS).get(name)
    requirement = f"wormhole-pubsub[{_EXTRAS[name][0]}]" if name in _EXTRAS else ""
    if claimed is None:
        raise UsageError(
            f"the command {name} is not installed", hint=f"pip install '{requirement}'", code="extra-missing"
        )
    try:
        commands = load_only(claimed, f"the command {name}", typer.Typer)
    except UsageError as error:
        if requirement and isinstance(error.__cause__, ModuleNotFoundError):
            raise UsageError.not_installed(error.__cause__, requirement) from error
        raise
    _flow_help(commands)
    return _commands_of(commands).get(name) or TyperInfo(commands, name=name)


class RootGroup(GuardedGroup):
    """The root group. It has the nouns and commands of this package, and commands of entry points."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        found: dict[str, ListedCommand] = {}
        for commands, noun in _NOUNS:
            if noun is None:
                for name, command in _commands_of(commands).items():
                    found[name] = ListedCommand(command, name, command.help or "")
            else:
                group = TyperInfo(commands, name=noun)
                found[noun] = ListedCommand(group, noun, solve_typer_info_help(group))
        for name, (_, text) in _EXTRAS.items():
            found[name] = ListedCommand(None, name, text)
        for name in _PANELS:  # the order of the help
            self.add_command(found[name])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command ``cmd_name``. Entry points are searched only for a name that this package lacks, because the
        search would make `--help` a sixth slower."""
        if cmd_name not in self.commands:
            from wormhole.ports.entry_points import claims

            if cmd_name in claims(_ENTRY_POINTS):
                self.add_command(ListedCommand(None, cmd_name, ""))
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help in Typer's form. This avoids Typer's imports for Markdown and tracebacks, which are not used
        here and take a sixth of the command's time."""
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
