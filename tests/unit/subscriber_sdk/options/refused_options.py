"""Not run: mypy and pyright refuse each call (``make check``). An ignored error that does not exist is one itself."""

from __future__ import annotations

from contextlib import aclosing

from subscriber_sdk import Subscriber, SubscriberOptions, TlsFiles, run, serve, updates


class Idle(Subscriber):
    """Does nothing."""


async def wrong(tls: TlsFiles) -> None:
    run(Idle(), application="app", handler_timout=5)  # type: ignore[call-arg]
    run(Idle(), application="app", concurrency="many")  # type: ignore[arg-type]
    run(Idle())  # type: ignore[call-arg]
    async with serve(Idle(), application="app", publishers=7):  # type: ignore[arg-type]
        pass
    async with aclosing(updates(coordinator="shop.toml")):  # type: ignore[call-arg]
        pass
    options: SubscriberOptions = {"tls": tls, "retries": 3}  # type: ignore[typeddict-unknown-key]
    run(Idle(), application="app", **options)
