"""Addresses of servers: checked, and shown without credentials."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote_plus, urlsplit

from lm_eval_bayes.errors import InvalidInputError

_AFTER_SCHEME = re.compile(r"(?<=://)(?:(?!;\s*https?://)[^\s\"'<>])+")
_SEVERAL = re.compile(r";|[,\s]https?://")
_BEFORE_PATH, _QUERY = re.compile(r"[/?#]"), re.compile(r"[?#]")
_HOST = re.compile(r"([^:]*|\[[^\]]*\])(:\d*)?")


def check_address(address: object, example: str = "http://127.0.0.1:8000/v1") -> str:
    """Return host, port and path of a server's address, and nothing that may be secret.

    Parameters
    ----------
    address : str
        With scheme http or https.
    example : str
        A valid address, for the error.

    Raises
    ------
    InvalidInputError
        If it is not one such address, or contains a user name or password.

    Examples
    --------
    >>> check_address("http://127.0.0.1:8000/v1?key=hidden")
    '127.0.0.1:8000/v1'
    """
    if isinstance(address, (list, tuple)) or _SEVERAL.search(str(address)):
        rule = "name one server; `vllm serve --data-parallel-size`, Ray Serve or a proxy behind "
        rule += "one address spreads requests over several"
        raise InvalidInputError.of("base_url", "format", rule, "several")
    rule = f"be the address of a server, such as {example}"
    try:
        parts = urlsplit(address if isinstance(address, str) else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidInputError.of("base_url", "format", rule, "something else") from None
    if parts.username is not None or parts.password is not None:
        rule = "contain no user name or password, which would end in logs (set OPENAI_API_KEY)"
        raise InvalidInputError.of("base_url", "secret", rule, "some")
    if parts.scheme not in ("http", "https") or not host:
        # An address without a scheme may still hold a key.
        came = "something else" if address else address
        raise InvalidInputError.of("base_url", "format", rule, came)
    return f"{_shown(host, port)}{parts.path}"


def plain_addresses(text: str) -> str:
    """Return a text whose addresses have no user names, passwords, queries and fragments.

    Examples
    --------
    >>> plain_addresses("http://a:8000/v1;http://me:password@b:8000/v1?key=x")
    'http://a:8000/v1;http://b:8000/v1'
    """
    return _AFTER_SCHEME.sub(lambda match: plain_address(match[0]), text)


def plain_address(rest: str) -> str:
    """Return what follows the scheme of an address, without what may be secret.

    Examples
    --------
    >>> plain_address("me:password@host:8000/v1?key=x")
    'host:8000/v1'
    """
    host = _BEFORE_PATH.split(rest, maxsplit=1)[0]
    if "@" in host:
        rest = rest[host.rindex("@") + 1 :]
    elif "@" in rest and not _HOST.fullmatch(host):
        rest = rest.rpartition("@")[2]  # a password with a slash in it
    return _QUERY.split(rest, maxsplit=1)[0]


def host_of(address: object) -> str:
    """Return host and port of an address; "" where it has none."""
    if not isinstance(address, str):
        return ""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        return _shown(parts.hostname, parts.port) if parts.hostname else ""
    except ValueError:
        return ""


def _shown(host: str, port: int | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" if port else shown


def secrets_in(address: str) -> Iterator[str]:
    """Yield the password, the fragment and the values of the query of an address.

    Those of less than four letters are left out: they would be replaced in words of a message.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        return
    values = [pair.rpartition("=")[2] for pair in parts.query.split("&")]
    for value in (parts.password, parts.fragment, *values):
        if value and len(value) >= 4:
            yield from {value, unquote_plus(value)}
