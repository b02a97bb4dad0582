"""The noun ``relay``: shows, verifies and trims the copy of a log that a publisher keeps on its own disk."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormhole.model.errors import UsageError
from wormholectl.exit_codes import BROKEN
from wormholectl.shared.confirm import confirm
from wormholectl.shared.options import AsJson, Where, Yes, now, parsed, with_where
from wormholectl.show.printer import (
    counted,
    print_json,
    print_progress,
    print_text,
    print_warnings,
    size,
)

if TYPE_CHECKING:
    from wormholectl.relay.folders import KnownRelay

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="The relay of a log: the record on the publisher's own disk that flows read that are behind.",
)

Log = Annotated[
    str, typer.Argument(metavar="[DATASET/COPY/LOG]", help="Of which log; without it every one.", show_default=False)
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder", metavar="DIR", help="Read this folder, whatever a configuration names.", show_default=False
    ),
]

_SHOW: Final = """Examples:

  wormholectl relay show -c shop.toml

  wormholectl relay show shop/main/db1 -c zk1:2181/wormhole --json

  wormholectl relay show --folder /var/lib/wormhole/shop/main/db1/relay
"""
_VERIFY: Final = """Examples:

  wormholectl relay verify -c shop.toml

  wormholectl relay verify --folder /var/lib/wormhole/shop/main/db1/relay --json
"""
_TRIM: Final = """Examples:

  wormholectl relay trim shop/main/db1 --keep 2GiB -c shop.toml

  wormholectl relay trim shop/main/db1 --all --yes -c shop.toml
"""


@app.command(epilog=_SHOW)
@with_where
def show(where: Where, log: Log = "", folder: Folder = None, as_json: AsJson = False) -> None:
    """Show what relays hold, as their publishers report it; without a publisher, what the files in the folder say."""
    from wormhole.admin.admin_service import publisher_name
    from wormholectl.relay.folders import known_relays, of_folder
    from wormholectl.show.relays import relay_lines, relay_object

    found = []
    relays = known_relays(where, log, folder)
    for relay in relays:
        status = relay.answer.status if relay.answer is not None else None
        reported = status is not None
        if status is None:
            status, _ = of_folder(relay)
        name = publisher_name(status) if reported else relay.log
        if as_json:
            where_it_is = str(relay.folder) if relay.folder is not None else None
            about = {"log": name or None, "reported": reported, "folder": where_it_is}
            found.append({**about, "relay": relay_object(status, reported=reported)})
            continue
        print_text(f"{name or relay.folder}:", *(f"  {line}" for line in relay_lines(status, now())))
        if not reported:
            print_text("  read from its files: no publisher reports it now")
        if relay.folder is not None and name:
            print_text(f"  files in {relay.folder}")
    if as_json:
        print_json({"relays": found})


@app.command(epilog=_VERIFY)
@with_where
def verify(where: Where, log: Log = "", folder: Folder = None, as_json: AsJson = False) -> None:
    """Read every record of relays on this host, and compare its checksum. Nothing is changed, and a publisher may be
    writing meanwhile. Exit code 1 for a file that is damaged.
    """
    from publisher.relay.folder import verify as read_all
    from wormholectl.relay.folders import known_relays
    from wormholectl.show.relays import RELAY_FILES

    relays = [one for one in known_relays(where, log, folder) if one.folder is not None]
    if not relays:
        raise UsageError(
            "it is not known in which folder the files are", hint="give -c FILE.toml of their host, or --folder DIR"
        )
    results, damaged = [], False
    for relay in relays:
        assert relay.folder is not None
        files = read_all(relay.folder, lambda done, total: print_progress(f"{size(done)} of {size(total)}"))
        print_progress("")
        bad = [one for one in files if one.error]
        damaged = damaged or bool(bad)
        if as_json:
            about = {"log": relay.log or None, "folder": str(relay.folder), "ok": not bad}
            results.append({**about, "files": RELAY_FILES.objects(files)})
            continue
        RELAY_FILES.show(files, f"{relay.folder}: no relay files")
        if files:
            verdict = f"{counted(len(bad), 'file')} damaged" if bad else "every checksum is right"
            print_text(f"{relay.folder}: {counted(len(files), 'file')}, {verdict}")
        if bad:
            print_text("next: the publisher removes a damaged file when it reads it, and reads the datastore instead")
    if as_json:
        print_json({"relays": results})
    if damaged:
        raise typer.Exit(BROKEN)


@app.command(epilog=_TRIM)
@with_where
def trim(
    where: Where,
    log: Log = "",
    keep: Annotated[
        str, typer.Option("--keep", metavar="SIZE", help="Remove the oldest records above this.", show_default=False)
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Remove every record.")] = False,
    folder: Folder = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove the oldest records of one relay: say which flows need them, ask, and remove them. Its publisher does it
    while it runs; otherwise the files are removed here.
    """
    from wormhole.model.units import parse_size
    from wormholectl.relay.folders import known_relays

    if bool(keep) == everything:
        what = "--all and --keep exclude each other" if keep else "how much is to stay?"
        raise UsageError(what, hint="give --keep SIZE, such as --keep 2GiB, or --all")
    keep_bytes = parsed(parse_size, "--keep", keep, "2GiB") if keep else 0
    relays = known_relays(where, log, folder)
    if len(relays) > 1:
        raise UsageError("there are several relays", hint=f"name one: {', '.join(one.log for one in relays)}")
    relay = relays[0]
    removed, left = (_by_publisher if relay.answer is not None else _here)(relay, keep_bytes, yes)
    if as_json:
        print_json({"log": relay.log or None, "removed_bytes": removed, "bytes": left})
    else:
        print_text(f"removed {size(removed)}; {size(left)} are left")


def _at_least(too_much: int) -> str:
    """The text for a size that is a minimum, because only whole files are removed."""
    return f"at least {size(too_much)}" if too_much else "none"


def _by_publisher(relay: "KnownRelay", keep_bytes: int, yes: bool) -> tuple[int, int]:
    from wormhole.admin.admin_service import trim_relay
    from wormhole.coordination.current_user import current_user
    from wormhole.model.visible import few
    from wormhole.wire.v1 import admin_pb2

    assert relay.answer is not None
    request = admin_pb2.TrimRelayRequest(who=current_user(), preview=True, keep_bytes=keep_bytes)
    found = trim_relay(relay.answer, request)
    too_much = max(0, found.before.bytes - keep_bytes)
    print_text(
        f"{relay.log}: {size(found.before.bytes)} of records, {_at_least(too_much)} of them to be removed", error=True
    )
    if found.losing:
        flows = f"{counted(len(found.losing), 'flow')}: {few([*found.losing])}"
        print_warnings([f"only the relay has what is needed next by {flows}"])
    if not too_much:
        return 0, found.before.bytes
    confirm("Remove them?", yes)
    request.preview = False
    done = trim_relay(relay.answer, request)
    return done.before.bytes - done.after.bytes, done.after.bytes


def _here(relay: "KnownRelay", keep_bytes: int, yes: bool) -> tuple[int, int]:
    from publisher.relay.folder import look
    from publisher.relay.folder import trim as remove

    assert relay.folder is not None
    before = sum(one.bytes for one in look(relay.folder))
    too_much = max(0, before - keep_bytes)
    print_text(f"{relay.folder}: {size(before)} of records, {_at_least(too_much)} of them to be removed", error=True)
    if not too_much:
        return 0, before
    print_warnings(["no publisher reports which flows need them: what the datastore no longer has is lost with them"])
    confirm("Remove them?", yes)
    removed = remove(relay.folder, keep_bytes)
    return removed, before - removed
