"""Sets the access rights (ACLs) of the nodes of a ZooKeeper. Blocks.

The embedded ZooKeeper of `wormholectl up` is closed in one step. A ZooKeeper that a fleet shares is closed in two:
first the identities are made, and then other clients lose their rights.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError, NoNodeError
from kazoo.security import READ_ACL_UNSAFE

from wormhole.config import CoordinatorConfig
from wormhole.coordination.access import Access, digest_id
from wormhole.coordination.credentials import make_credentials, read_credentials
from wormhole.coordination.kazoo_client import (
    LOST_ERRORS,
    Client,
    acl_of,
    disconnect_blocking,
    lost,
    new_client,
    refused,
)
from wormhole.model.errors import ConfigError

__all__ = ["AccessState", "access_state", "close_to_others", "make_identities", "take_over"]

_log = logging.getLogger(__name__)

_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class AccessState:
    """The state of a root before it is closed. ``access``: its identities, ``None`` if none were made. The other field
    lists the entries of processes that run without credentials.
    """

    access: Access | None
    locked_out: tuple[str, ...]

    @property
    def closed(self) -> bool:
        return self.access is not None and self.access.closed


def take_over(settings: CoordinatorConfig) -> None:
    """Close a whole server to all but the holder of ``settings.auth_file``, which is the server's super user.

    Nodes from a time when it was open, or of other credentials, are closed too. Raises
    :class:`~wormhole.model.errors.CoordinationLost` and :class:`~wormhole.model.errors.ConfigError`.
    """
    with _connected(settings) as client:
        whole = Access(client.identity, client.identity, closed=True)
        if _stored(client) == whole:  # this record is written last, so all nodes are closed already
            return
        client.access = whole
        _ensure_top(client)
        for path in _tree(client, "/"):
            _set(client, path)
        _store(client, whole)


def make_identities(settings: CoordinatorConfig, folder: Path) -> Mapping[str, Path]:
    """Write a credentials file for each identity that has none in ``folder``, and register them with ZooKeeper.

    The identities are the operator, the publishers, and for each stored application its subscribers. Returns the files
    by identity. If the root is closed, the new identities get their rights at once. ``settings.auth_file``: the file of
    an operator, if the root is closed already.
    """
    files = {"operator": folder / "operator", "publisher": folder / "publisher"}
    for who, path in files.items():
        make_credentials(path, who)
    # The client also uses the credentials of the settings, so that an operator's credentials can be replaced.
    also = None if settings.auth_file is None else ("digest", read_credentials(settings.auth_file))
    with _connected(settings.model_copy(update={"auth_file": files["operator"]}), also) as client:
        paths = client.paths
        stored = _stored(client)
        for application in _children(client, paths.applications):
            name = f"subscriber-{application}"
            files[name] = folder / name
            make_credentials(files[name], name)
        operator, publisher, *subscribers = (digest_id(read_credentials(path)) for path in files.values())
        names = [name.removeprefix("subscriber-") for name in list(files)[2:]]
        access = Access(
            operator, publisher, dict(zip(names, subscribers, strict=True)), stored is not None and stored.closed
        )
        client.access = access
        _ensure_top(client)
        if access != stored:
            _store(client, access)
        if access.closed:
            _close(client)
    return files


def access_state(settings: CoordinatorConfig) -> AccessState:
    """The state of the root before it is closed. The operator's credentials are needed if it is closed already."""
    with _connected(settings) as client:
        access = _stored(client)
        named = set() if access is None else {access.operator, access.publisher, *access.subscribers.values()}
        entries = (path for path in _tree(client, client.paths.root) if _goes_with_its_process(client, path))
        return AccessState(access, tuple(path for path in entries if _is_open(client, path, named)))


def _goes_with_its_process(client: Client, path: str) -> bool:
    with suppress(NoAuthError):
        found = client.exists(path)
        return found is not None and bool(found.ephemeralOwner)
    return False


def _is_open(client: Client, path: str, named: set[str]) -> bool:
    """Whether none of the identities ``named`` has a right at the node. False for an unreadable node."""
    with suppress(NoAuthError, NoNodeError):  # the node's maker closed it, or the node was deleted
        return not named & {one.id.id for one in client.get_acls(path)[0]}
    return False


def close_to_others(settings: CoordinatorConfig) -> None:
    """Remove every right at the root and below it, except those of the identities. ``settings.auth_file``: the
    operator's.

    Raises :class:`~wormhole.model.errors.ConfigError` if there are no identities, or the credentials are not the
    operator's.
    """
    with _connected(settings) as client:
        access = _stored(client)
        if access is None or client.identity != access.operator:
            raise ConfigError(
                (
                    f"ZooKeeper {settings.zookeeper} does not know the credentials in {settings.auth_file} as those "
                    "of an "
                    "operator"
                ),
                hint="`wormholectl zookeeper credentials --to FOLDER` makes them: FOLDER/operator",
                code="coordination-refused",
            )
        # The identities are stored as closed first, so that running processes make no more open nodes. Then the present
        # nodes are closed.
        client.access = replace(access, closed=True)
        _store(client, client.access)
        _close(client)


def _ensure_top(client: Client) -> None:
    for path in (*client.paths.top, client.paths.config, client.paths.history, client.paths.hosts):
        client.ensure_path(path)


def _close(client: Client) -> None:
    refused: set[str] = set()
    for _ in range(_ROUNDS):
        found = 0
        for path in (*_top(client), *(_of_subscribers(client))):
            for one in _tree(client, path):
                try:
                    found += _set(client, one)
                except NoAuthError:  # the maker of a node decides about the rights at it
                    if one == path:
                        raise
                    refused.add(one)
        if not found:  # no process made an open node meanwhile
            break
    for path in sorted(refused):
        _log.warning(
            "%s keeps the rights that its maker gave it, which excludes us. Next: delete it with the operator's "
            "credentials, or as ZooKeeper's super user where something is below it",
            path,
        )


def _top(client: Client) -> list[str]:
    """The topmost nodes of this installation: a root that is ``/`` is shared with others."""
    root = client.paths.root
    if root:
        return [root]
    paths = client.paths
    return [paths.access, *paths.top, paths.config, paths.history, paths.hosts]


def _of_subscribers(client: Client) -> list[str]:
    """The folders of the applications' subscribers, which subscribers may not make themselves."""
    made = []
    for application in client.access.subscribers:
        path = client.paths.subscribers(application)
        try:
            if client.exists(client.paths.application(application)) is not None:
                client.create(path)
        except NodeExistsError:
            continue
        made.append(path)
    return made


def _set(client: Client, path: str) -> int:
    """Give the node its rights. Returns 1 if the node exists and had other rights, else 0."""
    wanted = acl_of(client.access, client.paths, path)
    try:
        had, _ = client.get_acls(path)
        if sorted(had) == sorted(wanted):
            return 0
        client.set_acls(path, wanted)
    except NoNodeError:
        return 0
    return 1


def _store(client: Client, access: Access) -> None:
    path, data = client.paths.access, access.to_json()
    # All may read the hashes of random passwords until the root is closed.
    rights = [*acl_of(access, client.paths, path), *([] if access.closed else READ_ACL_UNSAFE)]
    try:
        client.create(path, data, acl=rights)
    except NodeExistsError:
        client.set(path, data)
        client.set_acls(path, rights)


def _stored(client: Client) -> Access | None:
    path = client.paths.access
    try:
        return Access.from_json(bytes(client.get(path)[0]), path)
    except NoNodeError:
        return None


def _tree(client: Client, path: str) -> Iterator[str]:
    """The node and all nodes below it, parents first; empty if the node does not exist. Nodes below a node that its
    maker closed to this client are left out.
    """
    left = [path] if client.exists(path) is not None else []
    while left:
        one = left.pop()
        yield one
        try:
            left += [f"{one.rstrip('/')}/{name}" for name in reversed(_children(client, one))]
        except NoAuthError:
            if one == path:
                raise


def _children(client: Client, path: str) -> list[str]:
    try:
        return sorted(client.get_children(path))
    except NoNodeError:
        return []


@contextmanager
def _connected(settings: CoordinatorConfig, also: tuple[str, str] | None = None) -> Iterator[Client]:
    client = new_client(settings)
    if also is not None:
        client.auth_data.add(also)
    try:
        client.start(timeout=settings.connect_timeout)
        yield client
    except LOST_ERRORS as error:
        raise lost("see and set who may do what", settings, error) from error
    except KazooException as error:
        raise refused("let anybody but its operator set who may do what", settings, error) from error
    finally:
        disconnect_blocking(client)
