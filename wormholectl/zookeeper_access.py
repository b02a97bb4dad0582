"""``wormholectl zookeeper``: makes credentials for a fleet's ZooKeeper and closes it to everybody else."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from wormhole.config import CoordinatorConfig
from wormhole.coordination import zookeeper_at
from wormhole.coordination.securing import close_to_others, make_identities, standing
from wormhole.model.errors import UsageError
from wormholectl.confirm import confirm
from wormholectl.output import print_text

__all__ = ["close", "credentials"]

_SHOWN: Final = 10


def credentials(coordinator: str, folder: Path) -> None:
    """Make the files that ``folder`` lacks and tell ZooKeeper of them. Raises :class:`~wormhole.model.errors.WormholeError`."""
    settings = _shared(coordinator)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}", hint="name another folder with --to") from error
    files = make_identities(settings, folder)
    closed = standing(settings.model_copy(update={"auth_file": files["operator"]})).closed
    print_text(f"{settings.zookeeper} knows these identities:")
    for who, file in files.items():
        print_text(f"  {who:24}{file}")
    print_text(
        "publishers and monitors take theirs as auth_file in [coordinator] and are restarted; subscribers and commands as",
        "WORMHOLE_COORDINATOR_AUTH_FILE. Each file belongs to the user of its process, mode 0600, on no other host than it runs on.",
        "it is closed to everybody else"
        if closed
        else "then `wormholectl zookeeper close` takes the rights of all others",
    )


def close(coordinator: str, operator: Path | None, yes: bool) -> None:
    """Close it, after showing who would be locked out. Raises :class:`~wormhole.model.errors.WormholeError`."""
    settings = _shared(coordinator)
    if operator is not None:
        settings = settings.model_copy(update={"auth_file": operator})
    if settings.auth_file is None:
        raise UsageError(
            "nothing says who closes it",
            hint="--credentials FILE, with the operator's that `wormholectl zookeeper credentials` made",
        )
    seen = standing(settings)
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
    print_text(f"{settings.zookeeper} is closed to everybody without credentials")


def _shared(coordinator: str) -> CoordinatorConfig:
    if not coordinator:
        raise UsageError(
            "nothing says which ZooKeeper is meant", hint="give -c FILE.toml or -c ZK:2181/ROOT (WORMHOLE_COORDINATOR)"
        )
    settings = zookeeper_at(coordinator)
    if settings.same_user:
        raise UsageError(
            f"the ZooKeeper of {coordinator} is the one that `wormholectl up` embeds: it is closed to every other user already",
            hint="name the ZooKeeper of a fleet",
        )
    return settings
