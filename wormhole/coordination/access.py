"""Computes the rights that each identity of an installation has at every ZooKeeper node. Pure.

ZooKeeper checks the node itself for reading and writing, and its parent for making and deleting. A right at one node
implies none at the nodes below it. So every node gets its own list. Releases of ZooKeeper differ in whether ``exists``
needs the right to read, so an identity that calls it has this right.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from wormhole.coordination.records import Paths
from wormhole.model.record import StoredRecord, Text, dumped

__all__ = ["ALL", "Access", "digest_id"]

ALL: Final = "cdrwa"
"""Letters of rights: create below, delete below, read, write, administer (change the rights themselves)."""


def digest_id(credentials: str) -> str:
    """The name of the holder of ``user:password`` in a list of rights (ZooKeeper's ``digest`` scheme): ``user:hash``.

    The scheme fixes SHA-1. The hashed password consists of 256 random bits.
    """
    user = credentials.partition(":")[0]
    return f"{user}:{base64.b64encode(hashlib.sha1(credentials.encode(), usedforsecurity=False).digest()).decode()}"


class _AccessNode(StoredRecord):
    largest = 1 << 20
    operator: Text
    publisher: Text
    subscribers: dict[str, str]
    closed: bool


@dataclass(frozen=True, slots=True)
class Access:
    """The identities of one root, by their :func:`digest_id`.

    ``subscribers``: by application. ``closed``: no other identity has any right. Until the root is closed,
    every node stays open to all, so that processes can be given their credentials one after the other.
    """

    operator: str
    publisher: str
    subscribers: Mapping[str, str] = field(default_factory=dict)
    closed: bool = False

    def to_json(self) -> bytes:
        """The content of the node at :attr:`~wormhole.coordination.records.Paths.access`.

        It holds hashes of random passwords, no password.
        """
        return dumped({**_AccessNode.fields_of(self), "subscribers": dict(self.subscribers)})

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Self:
        """Inverse of :meth:`to_json`. Raises :class:`~wormhole.model.errors.ConfigError` that names the node."""
        hint = "an operator writes it anew with `wormholectl zookeeper credentials`"
        return cls(**_AccessNode.read(data, where, hint).fields())

    def role(self, identity: str) -> str:
        """The role of ``identity`` (a :func:`digest_id`), in words; empty for an unknown identity."""
        known = {one: f"subscriber of {application}" for application, one in self.subscribers.items()}
        return (known | {self.publisher: "publisher", self.operator: "operator"}).get(identity, "")

    def rights(self, paths: Paths, path: str) -> dict[str, str]:
        """The letters of :data:`ALL` for each identity at the node ``path``; other identities have no right there."""
        inside = path == paths.root or path.startswith(f"{paths.root}/")
        parts = tuple(path[len(paths.root) :].strip("/").split("/")) if inside else ()
        rights: dict[str, str] = {}
        for identity, letters in self._granted(parts):
            rights[identity] = "".join(letter for letter in ALL if letter in letters + rights.get(identity, ""))
        return rights

    def _granted(self, parts: tuple[str, ...]) -> list[tuple[str, str]]:
        operator, everybody = (self.operator, ALL), [(one, "r") for one in (self.publisher, *self.subscribers.values())]
        match parts:
            case ("access",):
                return [operator, *everybody]
            case ("applications", application, *below):
                subscriber = self.subscribers.get(application)
                return [operator, *self._of_application(below, subscriber)]
            case ("publishers" | "logs", *_):
                return [operator, (self.publisher, "cdrw")]
            case ("history" | "hosts",):
                return [operator, (self.publisher, "cr")]
            case ("hosts", _):
                return [operator, (self.publisher, "cdr")]
            case ("hosts", _, "monitor"):
                return [operator, (self.publisher, "rw")]
            case ("applications" | "datasets" | "config", *_):
                return [operator, (self.publisher, "r")]
        return [operator]

    def _of_application(self, below: list[str], subscriber: str | None) -> list[tuple[str, str]]:
        """The rights below an application: a subscriber reads its settings and keeps its own entry; a publisher keeps
        the rest.
        """
        match below:
            case []:
                publisher, own = "cr", "r"
            case ["subscribers"]:
                publisher, own = "r", "cdr"
            case ["subscribers", _]:
                publisher, own = "r", "rw"
            case ["flows", *_]:  # the flow's node, with the epochs that were granted
                publisher, own = "cdrw", "r"
            case ["attach", *_]:
                publisher, own = "cdrw", "r"
            case ["tokens"]:
                publisher, own = "r", ""
            case _:
                publisher, own = "cdrw", ""
        return [(self.publisher, publisher), *([(subscriber, own)] if subscriber and own else [])]
