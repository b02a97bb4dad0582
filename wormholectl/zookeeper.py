"""The noun ``zookeeper``: makes credentials for a shared ZooKeeper, and closes it to clients without credentials."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormhole.model.errors import UsageError
from wormholectl.shared.confirm import confirm
from wormholectl.shared.options import CoordinatorAt, Yes
from wormholectl.show.printer import print_table, print_text

if TYPE_CHECKING:
    from wormhole.config import CoordinatorConfig

__all__ = ["app"]

_SHOWN: Final = 10

app = typer.Typer(
    no_args_is_help=True, help="Close ZooKeeper to every client except publishers, subscribers and operators."
)


@app.command(
    epilog="Examples:\n\n  wormholectl zookeeper credentials --to /etc/wormhole/credentials -c zk1:2181/wormhole"
)
def credentials(
    to: Annotated[
        Path,
        typer.Option("--to", metavar="FOLDER", help="Where the files are made, or are already.", show_default=False),
    ],
    coordinator: CoordinatorAt = "",
) -> None:
    """Make credentials for operators, publishers and the subscribers of each application. Nothing is closed by it.

    Again after an application was added; what is there stays as it is.
    """
    from wormhole.coordination.apply_access import access_state, make_identities

    settings = _shared(coordinator)
    try:
        to.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(
            f"{to} cannot be made: {error.strerror}", hint="name another folder with --to", code="file-unwritable"
        ) from error
    files = make_identities(settings, to)
    closed = access_state(settings.model_copy(update={"auth_file": files["operator"]})).closed
    print_table(("IDENTITY", "FILE"), [(who, str(file)) for who, file in files.items()], "")
    print_text(
        (
            "publishers and monitors take theirs as auth_file in [coordinator] and are restarted; subscribers and "
            "commands as"
        ),
        (
            "WORMHOLE_COORDINATOR_AUTH_FILE. Each file belongs to the user of its process, mode 0600, on no other host "
            "than it runs on."
        ),
        "it is closed to all others" if closed else "then `wormholectl zookeeper close` takes the rights of all others",
    )


@app.command(
    epilog=(
        "Examples:\n\n  wormholectl zookeeper close --credentials /etc/wormhole/credentials/operator -c "
        "zk1:2181/wormhole"
    )
)
def close(
    coordinator: CoordinatorAt = "",
    operator: Annotated[
        Path | None,
        typer.Option(
            "--credentials",
            metavar="FILE",
            envvar="WORMHOLE_COORDINATOR_AUTH_FILE",
            help="The operator's, if not what FILE.toml names.",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Take every right from processes without credentials. Shows which run without them, and asks."""
    from wormhole.coordination.apply_access import access_state, close_to_others

    settings = _shared(coordinator)
    if operator is not None:
        settings = settings.model_copy(update={"auth_file": operator})
    if settings.auth_file is None:
        raise UsageError(
            "it is not known who closes it",
            hint="--credentials FILE, with the operator's that `wormholectl zookeeper credentials` made",
        )
    seen = access_state(settings)
    for path in seen.locked_out[:_SHOWN]:
        print_text(f"without credentials: {path}")
    if len(seen.locked_out) > _SHOWN:
        print_text(f"and {len(seen.locked_out) - _SHOWN} more")
    count = len(seen.locked_out)
    what = (
        f"lock out {count} process{'es' if count != 1 else ''}" if count else "close it; every process has credentials"
    )
    confirm(f"{settings.zookeeper}: {what}?", yes)
    close_to_others(settings)
    print_text(f"{settings.zookeeper} is closed to clients without credentials")


def _shared(coordinator: str) -> "CoordinatorConfig":
    from wormhole.coordination.connect import zookeeper_at

    if not coordinator:
        raise UsageError(
            "it is not known which ZooKeeper is meant",
            hint="give -c FILE.toml or -c ZK:2181/ROOT (WORMHOLE_COORDINATOR)",
        )
    settings = zookeeper_at(coordinator)
    if settings.same_user:
        raise UsageError(
            (
                f"the ZooKeeper of {coordinator} is the one that `wormholectl up` embeds: it is closed to every other "
                "user already"
            ),
            hint="name the ZooKeeper of a fleet",
        )
    return settings
