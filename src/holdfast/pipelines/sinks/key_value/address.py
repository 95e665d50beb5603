"""Where a Redis server is, and whether what it acknowledges is on its disk.

Owns the URL, in which a password is a reference, and the connection. It must never let a query
write to a server that may forget an answer it has given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import ResponseError
from redis.retry import Retry

from holdfast.pipelines.intake.secret_references import is_reference, resolved
from holdfast.pipelines.sinks.target import TargetError

SCHEMES: Final = ("redis", "rediss", "unix")
OPTION: Final = "target: the password"
CONNECT_S: Final = 10
ANSWER_S: Final = 60
# About half a minute in all: a server that was killed reads its log before it answers.
RETRIES: Final = 32
PAUSE_S_MAX: Final = 1

_PORT: Final = 6379
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
"""What may stand behind the question mark of rediss://. None of them takes a check away."""

WANTED: Final[Mapping[str, str]] = {
    "appendonly": "yes",
    "appendfsync": "always",
    # With "yes" nothing is synced while a child of the server writes the log or a snapshot anew.
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}
_WHY: Final = {
    "maxmemory-policy": "under any other one a full server drops rows and what it remembers of "
    "the query",
}


def checked(url: str) -> str:
    """Return a URL that may be pickled and shown. TargetError: it has a password, or is none."""
    _settings(url)
    return url


def connect(url: str, *, retries: int = RETRIES) -> Redis:
    """Return a client. OptionError: the password can't be had here. Nothing is asked yet."""
    settings = _settings(url)
    user, password = settings.pop("username"), settings.pop("password")
    if password is None:
        settings["username"] = user
    else:
        resolved(OPTION, password)  # refused here, and not where a command is sent
        settings["credential_provider"] = _Named(user, password)
    return Redis(
        **settings,
        protocol=2,
        socket_timeout=ANSWER_S,
        socket_connect_timeout=CONNECT_S,
        # Whatever is sent may be sent again: scripts see that it was done before.
        retry=Retry(ExponentialBackoff(cap=PAUSE_S_MAX, base=0.05), retries),
    )


class _Named(CredentialProvider):
    """A password by its name, read for each connection: it may change while a query runs."""

    def __init__(self, user: str | None, reference: str) -> None:
        self._user = user
        self._reference = reference

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = resolved(OPTION, self._reference)
        return (password,) if self._user is None else (self._user, password)


def _settings(url: str) -> dict[str, Any]:
    try:
        parts = urlsplit(url)
    except ValueError:  # which quotes what stands before the @
        raise _no_url("it is no URL") from None
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    try:
        port = parts.port
    except ValueError:
        raise _no_url("its port is no number") from None
    password = None if not parts.password else unquote(parts.password)
    if password is not None and not is_reference(password):
        raise TargetError(
            f"{OPTION} is not written into a query, which plans and logs show; give "
            "redis://USER:env:NAME@HOST or USER:file:PATH (as %2F where it has a slash), which is "
            "read where a connection is opened"
        )
    found: dict[str, Any] = {
        "username": unquote(parts.username) if parts.username else None,
        "password": password,
    }
    if parts.scheme == "unix":
        database = given.pop("db", "0")
        found["unix_socket_path"] = unquote(parts.path)
        missing = not parts.path
        if parts.hostname or port is not None:
            raise _no_url("a socket is on this machine, and it names a host")
    else:
        database = parts.path.removeprefix("/") or "0"
        found |= {"host": parts.hostname, "port": port or _PORT}
        missing = not parts.hostname
    if missing or parts.scheme not in SCHEMES or not database.isdecimal():
        raise _no_url("it names no server, or a database that is no number")
    found["db"] = int(database)
    if parts.scheme == "rediss":
        found["ssl"] = True
        found |= {name: given.pop(name) for name in _FILES if name in given}
    if given:  # a password could be among them: only names are told
        raise _no_url(f"it has {', '.join(sorted(given))} behind the question mark")
    return found


def _no_url(why: str) -> TargetError:
    return TargetError(
        f"target: {why}; use redis://HOST:PORT/DATABASE, rediss://HOST:PORT/DATABASE (with "
        f"?{'=FILE&'.join(_FILES)}=FILE) or unix:///SOCKET?db=DATABASE"
    )


def refuse_unsafe(client: Redis) -> None:
    """TargetError unless what the server has answered is on its disk, and stays there.

    Asked before each batch: settings change while a server runs, and another one may have its
    address.
    """
    mode = _asked("INFO", lambda: client.info("server").get("redis_mode"))
    if mode != "standalone":
        raise TargetError(
            f"target: this Redis runs as {mode}, and a row, its marker and the query's memory "
            "change in one script, which a cluster's nodes can't; use a server that stands alone"
        )
    role = _asked("INFO", lambda: client.info("replication").get("role"))
    if role != "master":
        raise TargetError(
            f"target: this Redis is a {role}; use the address of the server it copies from"
        )
    for name, wanted in WANTED.items():
        found = _asked("CONFIG GET", partial(_setting, client, name))
        if found != wanted:
            why = _WHY.get(name, "otherwise a crash takes back what the server has acknowledged")
            raise TargetError(
                f"target: Redis says {name} {found}, and exactly once needs {name} {wanted}: "
                f"{why}. Set it in redis.conf, so that a restart keeps it"
            )


def _setting(client: Redis, name: str) -> Any:
    return client.config_get(name).get(name)


def _asked(command: str, ask: Callable[[], Any]) -> Any:
    try:
        found = ask()
    except ResponseError as error:
        raise _not_told(command, str(error)) from error
    if found is None:
        raise _not_told(command, "it does not know the setting")
    return found


def _not_told(command: str, why: str) -> TargetError:
    return TargetError(
        f"target: Redis does not answer {command} ({why}), so nobody knows whether it keeps what "
        "it acknowledges. Let this user ask (ACL SETUSER NAME +config|get +info), use a server "
        "that says it, or write to PostgreSQL"
    )
