"""Addresses of servers: checked, and shown without credentials."""

from __future__ import annotations

from urllib.parse import urlsplit

from lm_eval_bayes.errors import InvalidInputError


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
        If it is not such an address, or contains a user name or password.

    Examples
    --------
    >>> check_address("http://127.0.0.1:8000/v1?key=hidden")
    '127.0.0.1:8000/v1'
    """
    rule = f"be the address of a server, such as {example}"
    try:
        parts = urlsplit(address if isinstance(address, str) else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidInputError.of("base_url", rule, "something else") from None
    if parts.username is not None or parts.password is not None:
        rule = "contain no user name or password, which would end in logs (set OPENAI_API_KEY)"
        raise InvalidInputError.of("base_url", rule, "some")
    if parts.scheme not in ("http", "https") or not host:
        # An address without a scheme may still hold a key.
        came = "something else" if address else address
        raise InvalidInputError.of("base_url", rule, came)
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}{parts.path}" if port else f"{shown}{parts.path}"
