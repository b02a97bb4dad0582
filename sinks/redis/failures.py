"""Turns an error of the Redis server into an error of the port: the sink retries, or an operator has to act."""

from __future__ import annotations

import re
import ssl
from typing import Final, NamedTuple

from redis.exceptions import AuthenticationError, RedisError

from wormhole.host.tls import untrusted
from wormhole.model.errors import TargetRefused, TargetUnavailable

__all__ = ["target_error"]


class _Meaning(NamedTuple):
    """The meaning of an error. ``code``: the code of a problem after which the flow halts; empty: the sink tries again,
    until the error passes or an operator has corrected its cause.
    """

    what: str
    hint: str
    code: str = ""


_CLUSTER: Final = _Meaning("is a cluster", "use a server that is not a cluster", "target-refused")
_RIGHTS: Final = _Meaning(
    "refuses a command of this account", "give the account the rights that it needs", "account-lacks-rights"
)
_BY_ITSELF: Final = "the sink continues by itself"
_MEANINGS: Final = {
    "OOM": _Meaning("has no memory left", f"raise its maxmemory, or remove keys; {_BY_ITSELF}"),
    "READONLY": _Meaning("is a replica, which takes no writes", f"name the primary server; {_BY_ITSELF}"),
    "LOADING": _Meaning("is still loading its data", _BY_ITSELF),
    "BUSY": _Meaning("is busy with a script", f"wait, or end the script with SCRIPT KILL; {_BY_ITSELF}"),
    "MISCONF": _Meaning("cannot save to its disk, and takes no writes", f"look into its log; {_BY_ITSELF}"),
    "MASTERDOWN": _Meaning("is a replica without its primary server", f"name the primary server; {_BY_ITSELF}"),
    "NOREPLICAS": _Meaning("has too few replicas to take writes", f"bring the replicas back; {_BY_ITSELF}"),
    "NOPERM": _RIGHTS,
    "The user executing the script": _RIGHTS,
    "ACL failure": _RIGHTS,  # in a script, in Redis 7.2 and Valkey
    "MOVED": _CLUSTER,
    "ASK": _CLUSTER,
    "CROSSSLOT": _CLUSTER,
    "CLUSTERDOWN": _CLUSTER,
    "WRONGTYPE": _Meaning(
        "has a value of another type under a key of the sink's",
        "remove the key, or give the sink a database of its own",
        "target-refused",
    ),
    "unknown command": _Meaning(
        "lacks a command that the sink needs", "enable the commands that docs/sink-redis.md lists", "target-refused"
    ),
    "DB index": _Meaning("does not have this database", "correct the number in the URL", "target-refused"),
}
_WORD: Final = re.compile(rf"\b({'|'.join(_MEANINGS)})\b")
_ARGUMENTS: Final = re.compile(r",? (with args|script:).*", re.DOTALL)
_OTHER: Final = _Meaning("cannot be used", f"see that it runs and can be reached; {_BY_ITSELF}")
_LOGIN: Final = _Meaning("refuses the login", "correct the account in the URL, or its password_file", "login-refused")


def target_error(where: str, error: RedisError | OSError) -> TargetUnavailable | TargetRefused:
    """The error of the port: refused if the flow has to halt for an operator, or else unavailable. Its message has the
    server's message without the arguments of the command.
    """
    verified = error.__cause__ or error.__context__
    if isinstance(verified, ssl.SSLCertVerificationError):
        return untrusted(where, verified.verify_message)
    status = getattr(error, "status_code", None)
    said = _ARGUMENTS.sub("", f"{status} {error}" if status else str(error)) or type(error).__name__
    found = _WORD.search(said)
    meaning = _LOGIN if isinstance(error, AuthenticationError) else _MEANINGS[found[1]] if found else _OTHER
    message = f"{where} {meaning.what}: {said:.200}"
    if meaning.code:
        return TargetRefused(message, hint=meaning.hint, code=meaning.code)
    return TargetUnavailable(message, hint=meaning.hint)
