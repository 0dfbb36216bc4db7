"""What every test may use."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

# One thread per process: pytest-xdist keeps the cores busy. Set before numpy is imported.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import hypothesis
import pytest
import typer.main
import typer.testing
from _support.paths import SHARED

# Typer's runner builds all commands at every call, which takes longer than most of them.
typer.testing._get_command = cache(typer.main.get_command)

# A test never fails because the machine is busy, and takes seconds at most. In CI the examples are
# the same every time: a change is not held up by what another one has brought in.
hypothesis.settings.register_profile(
    "untimed",
    max_examples=50,
    derandomize="CI" in os.environ,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real questions and outcomes; tests that need it skip where it is absent."""
    folder = SHARED
    if not (folder / "data").is_dir():
        pytest.skip("needs ../shared, the real questions, which are not part of the repository")
    return folder


@pytest.fixture(scope="session")
def offline_hub(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables under which the four contests load without a network."""
    home = tmp_path_factory.mktemp("hub") / "hf_home"
    shutil.copytree(shared / "hf_home", home)
    for folder, _, files in os.walk(home):
        os.chmod(folder, 0o755)
        for name in files:
            os.chmod(Path(folder) / name, 0o644)
    return {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
