"""Virtual environments of several Pythons."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def interpreter(*versions: str) -> str:
    """Return a Python of one of these versions, or skip."""
    candidates = [sys.executable, *(shutil.which(f"python{version}") or "" for version in versions)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in versions:
        candidates += sorted(str(path) for path in pyenv.glob(f"{version}.*/bin/python{version}"))
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        try:
            out = subprocess.run(
                [candidate, "-c", code], capture_output=True, text=True, timeout=600, check=False
            )
        except OSError:
            continue
        if out.returncode == 0 and out.stdout.strip() in versions:
            return candidate
    pytest.skip(f"no Python {' or '.join(versions)} on this machine")


def uv() -> str | None:
    """Return the fast installer where there is one; pip does the same, slowly."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.is_file() else shutil.which("uv")


def create_environment(folder: Path, python: str) -> None:
    """Create an environment with pip."""
    fast = uv()
    command = [fast, "venv", "-q", "--seed", "-p", python] if fast else [python, "-m", "venv"]
    subprocess.run([*command, str(folder)], timeout=600, check=True)


def installer(python: Path) -> list[str]:
    """Return the command that installs into the environment of an interpreter."""
    fast = uv()
    if fast:
        return [fast, "pip", "install", "-q", "-p", str(python)]
    return [str(python), "-m", "pip", "install", "-q"]
