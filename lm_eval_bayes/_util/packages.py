"""Installed packages: their versions, the supported releases, and commands that install them."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

#: The name of this package on the package index.
DISTRIBUTION = "lm-eval-bayes"


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, None if it is not installed.

    Examples
    --------
    >>> version_of("no-such-distribution") is None
    True
    """
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def is_older(version: str, least: str) -> bool:
    """Return whether a version is below another, by the numbers at its beginning.

    Examples
    --------
    >>> is_older("0.4.9", "0.4.12"), is_older("0.4.12.dev0", "0.4.12"), is_older("2.0rc1", "1.11")
    (True, False, False)
    """
    return _numbers(version) < _numbers(least)


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


@dataclass(frozen=True)
class SupportedReleases:
    """The releases of a distribution that this package works with, by its own metadata.

    Attributes
    ----------
    distribution : str
        Its name on the package index.
    tested : tuple of str
        The releases that every change of this package is tested with.
    """

    distribution: str
    tested: tuple[str, ...]

    def _bound(self, sign: str) -> str | None:
        """Return the release that follows a sign in the requirement of this package."""
        release = re.compile(rf"{self.distribution}\b[^;]*{sign}\s*([\d.]+)")
        return next((match[1] for match in map(release.match, _requirements()) if match), None)

    @property
    def oldest(self) -> str:
        """The oldest release that works."""
        return self._bound(">=") or "0"

    @property
    def below(self) -> str | None:
        """The first release that does not work, None if no such release is known."""
        return self._bound("<")

    def __str__(self) -> str:
        """The range as a requirement, such as ``lm-eval>=0.4.12,<0.5``."""
        lower = "" if self.oldest == "0" else f">={self.oldest}"
        return f"{self.distribution}{lower}" + (f",<{self.below}" if self.below else "")

    def problem(self, version: str | None) -> str | None:
        """Return why a release does not work, None if it does.

        Parameters
        ----------
        version : str or None
            The installed version; None (a folder on the path without metadata) is accepted.

        Examples
        --------
        >>> HARNESS.problem("0.4.13") is None
        True
        >>> HARNESS.problem("0.5.0")
        'lm-eval 0.5.0 is not supported; needed is lm-eval>=0.4.12,<0.5'
        """
        if version is None:
            return None
        too_new = self.below is not None and not is_older(version, self.below)
        if not too_new and not is_older(version, self.oldest):
            return None
        return f"{self.distribution} {version} is not supported; needed is {self}"


#: The lm-evaluation-harness. 0.5 has other classes of tasks.
HARNESS = SupportedReleases("lm-eval", ("0.4.12", "0.4.13"))

#: vLLM, for the backends that record trials; any release for the harness's own `--model vllm`.
VLLM = SupportedReleases("vllm", ("0.27.0", "0.32.0"))


def own_source() -> str:
    """Return what pip can install this package from again.

    Returns
    -------
    str
        The folder or wheel file that it was installed from (PEP 610), the checkout that it is
        imported from, or its name on the package index.
    """
    try:
        recorded = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        checkout = Path(__file__).resolve().parents[2]
        return str(checkout) if (checkout / "pyproject.toml").is_file() else DISTRIBUTION
    url = urlsplit(json.loads(recorded)["url"]) if recorded else None
    return url2pathname(url.path) if url and url.scheme == "file" else DISTRIBUTION


def pip_install(*requirements: str) -> str:
    """Return the shell command that installs some requirements.

    Examples
    --------
    >>> pip_install("numpy>=2.0")
    "pip install 'numpy>=2.0'"
    """
    return f"pip install {shlex.join(requirements)}"


def pip_install_extra(extra: str) -> str:
    """Return the shell command that installs what an extra of this package needs.

    It names the extra's requirements, not the extra, so that it also works where this package was
    installed from a checkout or a wheel file.

    Parameters
    ----------
    extra : str
        A name under ``[project.optional-dependencies]`` of pyproject.toml.

    Examples
    --------
    >>> pip_install_extra("ray")
    "pip install 'ray>=2.60'"
    """
    ends = (f"extra == '{extra}'", f'extra == "{extra}"')
    lines = (line.partition(";")[0].strip() for line in _requirements() if line.endswith(ends))
    return pip_install(*(list(lines) or [f"{DISTRIBUTION}[{extra}]"]))


def _requirements() -> Sequence[str]:
    """Return what this package requires, nothing where it has no metadata."""
    try:
        return importlib.metadata.requires(DISTRIBUTION) or ()
    except importlib.metadata.PackageNotFoundError:
        return ()
