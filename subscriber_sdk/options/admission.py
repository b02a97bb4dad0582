"""Decides which publishers may push to this subscriber. Pure.

With TLS the option ``publishers`` lists names of certificates. An entry ``NAME`` may push the dataset of the
subscriber's application. An entry ``DATASET=NAME`` may push that dataset only, so that one list serves the subscribers
of several datasets. A certificate's names are its common name and its subject alternative names. The configuration
names the application's dataset. Without a coordinator the dataset is not known, and the dataset that the publisher
sends is accepted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from wormhole.wire.v1 import push_pb2

__all__ = ["Admission", "Refusal", "publisher_entries", "without_process"]

Refusal = tuple[push_pb2.Goodbye.Reason, str, str]
"""Reason, message and hint of a goodbye."""

_Goodbye = push_pb2.Goodbye
_SHOWN: Final = 8  # the most names in a message, because a certificate may have hundreds
_HINT: Final = (
    "add the publisher's certificate to the subscriber's option `publishers` (WORMHOLE_PUBLISHERS), and restart it"
)


@dataclass(frozen=True, slots=True)
class Admission:
    """The rules for one stream. ``publishers``: the entries of the option; empty without TLS, where names are unknown.

    ``dataset``: the application's dataset; empty: not known. ``expected``: the publisher that was connected at the
    dialled address a moment ago, in the form of :func:`without_process`; empty: any publisher may answer there.
    """

    application: str
    subscriber: str
    publishers: tuple[str, ...] = ()
    dataset: str = ""
    expected: str = ""

    def refuses_hello(self, hello: push_pb2.Hello, versions: tuple[int, int]) -> Refusal | None:
        """Why a publisher that sends ``hello`` is refused; ``None`` if it is accepted. The dataset is not checked here.

        ``versions``: the first and the last protocol version of this side.
        """
        first, last = versions
        if min(last, hello.max_version) < max(first, hello.min_version):
            message = (
                f"publisher {hello.publisher or '(unnamed)'} speaks protocol versions {hello.min_version} to "
                f"{hello.max_version}, subscriber {self._here} {first} to {last}: they have none in common"
            )
            older = "publisher" if hello.max_version < first else "subscriber"
            hint = f"upgrade wormhole-pubsub of the {older}, the older side, first (docs/upgrade.md)"
            return _Goodbye.VERSION, message, hint
        if hello.application != self.application or hello.subscriber not in ("", self.subscriber):
            message = f"{hello.application}/{hello.subscriber} was meant, {self._here} listens here"
            hint = "look for a stale registration, or two subscribers with one `advertise` address"
            return _Goodbye.WRONG_ADDRESS, message, hint
        if self.expected and without_process(hello.publisher) != self.expected:
            message = (
                f"publisher {hello.publisher or '(unnamed)'} answers at the address where {self.expected} was "
                "connected a moment ago: several publishers are behind it, and of these only one would be connected"
            )
            hint = (
                "dial each publisher at an address of its own (docs/dialling.md); one that takes the place of another "
                "is accepted after half a minute"
            )
            return _Goodbye.WRONG_ADDRESS, message, hint
        return None

    def refuses_certificate(self, names: Collection[str]) -> Refusal | None:
        """Why a peer with these certificate names may not push anything here; ``None`` if it may push some dataset."""
        if not self.publishers or any(_name(entry) in names for entry in self.publishers):
            return None
        return self._refusal(names, "")

    def refuses_dataset(self, names: Collection[str], dataset: str) -> Refusal | None:
        """Why a peer with these certificate names may not push ``dataset`` (``Hello.dataset``); ``None`` if it may."""
        if self.dataset and dataset != self.dataset and (dataset or self.publishers):
            # Another installation may have an application of the same name: its updates would be handled here and lost
            # there.
            message = (
                f"dataset {dataset or '(none)'} was offered, "
                f"{self._here} that listens here is for dataset {self.dataset}"
            )
            hint = (
                "two configurations name one address for their subscribers: give one of them another port; "
                "where the application's dataset was changed, restart its subscribers"
            )
            return _Goodbye.WRONG_ADDRESS, message, hint
        if not self.publishers or any(
            _name(entry) in names and _dataset(entry) in {"", dataset} for entry in self.publishers
        ):
            return None
        return self._refusal(names, f"dataset {dataset or '(none)'} ")

    @property
    def _here(self) -> str:
        return f"{self.application}/{self.subscriber}"

    def _refusal(self, names: Collection[str], what: str) -> Refusal:
        message = (
            f"a publisher with the names {_few(sorted(names))} may not push {what}here: "
            f"{self._here} takes it from {_few(self.publishers)}"
        )
        return _Goodbye.NOT_ALLOWED, message, _HINT


def without_process(publisher: str) -> str:
    """The part of ``Hello.publisher`` that stays the same when the publisher restarts."""
    return publisher.rpartition(":")[0] or publisher


def publisher_entries(given: object) -> tuple[str, ...]:
    """The option ``publishers`` as entries: from a list, a text with commas, or a mapping of datasets to names.

    Raises :class:`ValueError` for anything else.
    """
    if isinstance(given, dict):
        return tuple(f"{dataset}={name}" for dataset, names in given.items() for name in publisher_entries(names))
    parts = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, (list, tuple, set, frozenset)) or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{given!r} is no list of names")
    entries = tuple(part.strip() for part in parts if part.strip())
    if wrong := [entry for entry in entries if not _name(entry) or entry.startswith("=")]:
        raise ValueError(f"{wrong[0]!r} lacks a name or a dataset")
    return entries


def _name(entry: str) -> str:
    return entry.rpartition("=")[2]


def _dataset(entry: str) -> str:
    return entry.rpartition("=")[0]


def _few(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_SHOWN]) or "(none)"
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
