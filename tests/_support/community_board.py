"""The example of a community leaderboard: a copy of it, and its script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from _support.paths import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "leaderboard"


def copy_of_the_example(folder):
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("page", "__pycache__"))
    return folder


def build(folder, *options, **variables):
    """Run the script; return (exit code, standard output, standard error)."""
    own = {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, str(folder / "build_page.py"), *options],
        env={**os.environ, **own, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
