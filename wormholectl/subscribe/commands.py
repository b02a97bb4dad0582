"""The command ``subscribe``, which shows the updates that an application receives: its options and help."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormholectl.shared.options import AsJson, TlsCa, TlsCert, TlsCrl, TlsKey, TlsName, duration

if TYPE_CHECKING:
    from wormhole.wire.update import Update
    from wormhole.wire.v1 import push_pb2

__all__ = ["app"]

app = typer.Typer()

_EXAMPLES: Final = """Examples:

  wormholectl subscribe cache --publishers 127.0.0.1:7490

  wormholectl subscribe cache --publishers db-1:7490 --tls-cert c.pem --tls-key c.key --tls-ca ca.pem --id c1 --json
"""


@app.command(epilog=_EXAMPLES)
def subscribe(
    application: Annotated[str, typer.Argument(metavar="APP", help="The application.", show_default=False)],
    publishers: Annotated[
        list[str], typer.Option("--publishers", metavar="HOST:PORT", help="Where a publisher listens; repeatable.")
    ],
    lasts: Annotated[str, typer.Option("--for", metavar="DURATION", help="End after so long.")] = "10m",
    as_json: AsJson = False,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="PATTERN", help="Only these tables (shop.users, 'shop.*'); repeatable."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after this many updates.")] = None,
    name: Annotated[str, typer.Option("--id", metavar="NAME", help="The id that its certificate has.")] = "observer",
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    tls_crl: TlsCrl = None,
    tls_name: TlsName = "",
) -> None:
    """Show what an application receives from now on, without being its subscriber: nothing is stored, no shard moves,
    and no log is held back.
    """
    import asyncio
    import os
    import secrets
    from fnmatch import fnmatchcase

    from subscriber_sdk.server.dialler import check_addresses
    from wormhole.config import TlsAuthority, TlsFiles
    from wormhole.model.errors import UsageError
    from wormhole.push.attaching import LONGEST_OBSERVED_S, Attaching
    from wormholectl.show.printer import print_json, print_line, print_text
    from wormholectl.subscribe.observed import Observed, observe_all
    from wormholectl.tail.show import update_as_json, update_as_line

    token = os.environ.get("WORMHOLE_TOKEN", "")  # not an option, because other users see options
    seconds = duration("--for", lasts, "10m")
    if not 1 <= seconds <= LONGEST_OBSERVED_S:
        raise UsageError(f"--for {lasts}: at least 1s and at most 1d", hint="shorten it, and start it again later")
    tls: TlsFiles | TlsAuthority | None = None
    if tls_ca and tls_cert and tls_key:
        tls = TlsFiles(cert=tls_cert, key=tls_key, ca=tls_ca, crl=tls_crl)
    elif tls_ca and token and not tls_cert and not tls_key:
        tls = TlsAuthority(ca=tls_ca, crl=tls_crl)
    elif tls_ca or tls_cert or tls_key or tls_crl:
        raise UsageError("--tls-cert, --tls-key and --tls-ca belong together", hint="give all three, or a token")
    check_addresses(publishers, tls, token, insecure=False)
    shown = 0

    def update(one: "Update") -> bool:
        nonlocal shown
        if shown == limit:
            return False
        if not tables or any(fnmatchcase(one.table, pattern) for pattern in tables):
            shown += 1
            if as_json:
                print_json(update_as_json(one, ""))
            else:
                print_line(update_as_line(one))
        return shown != limit

    def begun(hello: "push_pb2.Hello") -> None:
        if not as_json:
            about = f"{application} receives from {hello.publisher} from now on, for {lasts}; Ctrl-C ends"
            print_text(f"what {about}", error=True)

    who = Attaching(application, name, secrets.token_hex(16), token=token, observes=seconds)
    with suppress(KeyboardInterrupt):
        asyncio.run(observe_all(publishers, who, tls, tls_name, Observed(begun, update)))
