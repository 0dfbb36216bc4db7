"""Fresh interpreters, with and without the start-up files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from _support.paths import REPOSITORY

START_UP_FILES = REPOSITORY / "lm_eval_bayes" / "_boot"

Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def site_folder(tmp_path: Path) -> Path:
    """A folder with the three start-up files, as an installer would write them."""
    folder = tmp_path / "site"
    module = folder / "_lm_eval_bayes_boot"
    module.mkdir(parents=True)
    shutil.copy(START_UP_FILES / "_lm_eval_bayes_boot.py", module / "__init__.py")
    for name in ("lm_eval_bayes_boot.pth", "lm_eval_bayes_boot.start"):
        shutil.copy(START_UP_FILES / name, folder)
    return folder


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Run code in a new interpreter.

    `start` names a folder whose start-up files are processed as at the start of Python.
    `bare` leaves out site-packages, so that neither the harness nor an installed copy of this
    package is there. Otherwise the package is the checkout's.
    """

    def run(
        code: str, *, start: Path | None = None, bare: bool = False, **env: str
    ) -> subprocess.CompletedProcess[str]:
        lines = [textwrap.dedent(code)]
        if start is not None:
            lines.insert(0, f"import site; site.addsitedir({str(start)!r})")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LM_EVAL_BAYES")}
        environment |= {"PYTHONPATH": "" if bare else str(REPOSITORY), "HF_HUB_OFFLINE": "1"}
        # The copy that this environment may have installed stays out of the way.
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", **env}
        script = tmp_path / f"script_{len(list(tmp_path.glob('script_*')))}.py"
        script.write_text("\n".join(lines), encoding="utf-8")
        flags = ["-S", "-s"] if bare else []
        return subprocess.run(
            [sys.executable, *flags, str(script)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    return run
