"""Whether a publisher that says hello is meant here. Pure."""

from __future__ import annotations

from wormhole.wire.v1 import push_pb2

__all__ = ["refusal_of"]

_Goodbye = push_pb2.Goodbye


def refusal_of(
    hello: push_pb2.Hello, versions: tuple[int, int], application: str, subscriber: str, dataset: str
) -> tuple[push_pb2.Goodbye.Reason, str, str] | None:
    """Reason, message and hint of the goodbye that answers ``hello``; ``None``: it is welcome.

    ``versions``: the first and the last that are spoken here. ``dataset``: the only one that is meant; empty: any.
    """
    first, last = versions
    if min(last, hello.max_version) < max(first, hello.min_version):
        message = f"versions {hello.min_version} to {hello.max_version} offered, versions {first} to {last} spoken here"
        return _Goodbye.VERSION, message, "install releases of wormhole-pubsub that have a protocol version in common"
    if hello.application != application or (hello.subscriber and hello.subscriber != subscriber):
        message = f"{hello.application}/{hello.subscriber} was meant, {application}/{subscriber} listens here"
        hint = "look for a stale registration, or two subscribers with one `advertise` address"
        return _Goodbye.WRONG_ADDRESS, message, hint
    if dataset and hello.dataset and hello.dataset != dataset:
        # An installation with an application of the same name: its updates would be handled here and lost there.
        message = f"dataset {hello.dataset} was offered, {application}/{subscriber} that listens here is for dataset {dataset}"
        hint = "two configurations name one address for their subscribers: give one of them another port"
        return _Goodbye.WRONG_ADDRESS, message, hint
    return None
