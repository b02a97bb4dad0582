"""Whether a publisher that says hello is meant here. Pure."""

from __future__ import annotations

from subscriber_sdk.admission import Refusal
from wormhole.wire.v1 import push_pb2

__all__ = ["refusal_of"]

_Goodbye = push_pb2.Goodbye


def refusal_of(hello: push_pb2.Hello, versions: tuple[int, int], application: str, subscriber: str) -> Refusal | None:
    """Reason, message and hint of the goodbye that answers ``hello``; ``None``: it is welcome.

    ``versions``: the first and the last that are spoken here. Which dataset it may push:
    :mod:`subscriber_sdk.admission`.
    """
    first, last = versions
    if min(last, hello.max_version) < max(first, hello.min_version):
        message = f"versions {hello.min_version} to {hello.max_version} offered, versions {first} to {last} spoken here"
        return _Goodbye.VERSION, message, "install releases of wormhole-pubsub that have a protocol version in common"
    if hello.application != application or (hello.subscriber and hello.subscriber != subscriber):
        message = f"{hello.application}/{hello.subscriber} was meant, {application}/{subscriber} listens here"
        hint = "look for a stale registration, or two subscribers with one `advertise` address"
        return _Goodbye.WRONG_ADDRESS, message, hint
    return None
