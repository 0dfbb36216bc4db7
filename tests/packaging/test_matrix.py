"""The built wheel and the editable install, in real environments of several Pythons and harnesses.

Marked slow. LM_EVAL_BAYES_MATRIX=full tries every combination instead of a covering set.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from _support.environments import create_environment, installer, interpreter, uv
from _support.paths import REPOSITORY

pytestmark = pytest.mark.slow

HARNESSES = ("0.4.12", "0.4.13")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
CELLS = [
    ("0.4.12", "3.10"),
    ("0.4.13", "3.10"),
    ("0.4.13", "3.11"),
    ("0.4.13", "3.12"),
    ("0.4.12", "3.13"),
    ("0.4.13", "3.13"),
]
if os.environ.get("LM_EVAL_BAYES_MATRIX") == "full":
    CELLS = list(itertools.product(HARNESSES, PYTHONS))

START_UP_FILES = {"_lm_eval_bayes_boot", "lm_eval_bayes_boot.pth", "lm_eval_bayes_boot.start"}

#: What a user writes: no import of ours anywhere.
USER_SCRIPT = """
import json, multiprocessing, sys

def child(queue):
    import lm_eval.tasks
    from lm_eval.api.registry import get_filter
    from lm_eval_bayes.harness.plugin.registration import COMPONENTS, is_registered
    (metric,) = (c for c in COMPONENTS if (c.kind, c.name) == ("metric", "bayes"))
    queue.put([is_registered(metric), get_filter("keep_all").__module__])

def main():
    assert not any(m.startswith("lm_eval_bayes") for m in sys.modules)
    from lm_eval import simple_evaluate
    results = simple_evaluate(
        model="biased_coin", model_args="p=0.5,seed=3", tasks=["demo_arithmetic_bayes"],
        limit=2, metadata={"bayes_n": 4}, bootstrap_iters=0,
    )
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    in_child = queue.get()
    process.join()
    row = results["results"]["demo_arithmetic_bayes"]
    assert in_child == [True, "lm_eval_bayes.harness.task.pipelines"], in_child
    print("RESULT", json.dumps(sorted(row)))

if __name__ == "__main__":
    main()
"""


@dataclass
class Environment:
    """A virtual environment and what a user does in it."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return next((self.folder / "lib").glob("python3*/site-packages"))

    def call(
        self, *command: str | Path, timeout: int = 1800, ok: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        dropped = ("LM_EVAL_BAYES", "PYTHON", "VIRTUAL_ENV")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        work = self.folder.parent / "elsewhere"
        work.mkdir(exist_ok=True)
        result = subprocess.run(
            [str(part) for part in command],
            env=environment | {"HF_HUB_OFFLINE": "1", **env},
            cwd=work,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert (result.returncode == 0) is ok, f"{command}\n{result.stdout}\n{result.stderr}"
        return result

    def lm_eval(self, *arguments: str, ok: bool = True, **env: str) -> str:
        result = self.call(self.folder / "bin" / "lm_eval", *arguments, ok=ok, **env)
        return result.stdout + result.stderr

    def install(self, *arguments: str | Path) -> None:
        self.call(*installer(self.python), *arguments, timeout=1800)

    def uninstall(self) -> None:
        fast = uv()
        if fast:
            self.call(fast, "pip", "uninstall", "-q", "-p", self.python, "lm-eval-bayes")
        else:
            self.call(self.python, "-m", "pip", "uninstall", "-qy", "lm-eval-bayes")

    def ours(self) -> set[str]:
        """Everything in the environment that bears our name."""
        return {str(p.relative_to(self.folder)) for p in self.folder.rglob("*lm*eval*bayes*")}

    def check_user_script(self, **env: str) -> None:
        script = self.folder.parent / "elsewhere" / "user.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(USER_SCRIPT, encoding="utf-8")
        out = self.call(self.python, script, **env).stdout
        rows = json.loads(out.partition("RESULT ")[2])
        assert [row for row in rows if row.startswith("bayes@4,")], rows

    def check_nothing_is_left(self) -> None:
        assert self.ours() == set()
        assert self.call(self.python, "-c", "print('quiet')").stderr == ""
        assert "demo_arithmetic_bayes" not in self.lm_eval("ls", "tasks")


def create(folder: Path, python: str, *requirements: str) -> Environment:
    """Make an environment with the harness, which keeps few of its thousands of tasks.

    Listing all of them takes twenty seconds, and here they only have to be there at all.
    """
    create_environment(folder, python)
    environment = Environment(folder)
    environment.install(*requirements)
    for path in (environment.site_packages / "lm_eval" / "tasks").iterdir():
        if path.is_dir() and path.name not in ("aime", "__pycache__"):
            shutil.rmtree(path)
    return environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    pytest.importorskip("hatchling", reason="builds the wheel; part of the dev extra")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=REPOSITORY,
        capture_output=True,
        timeout=1800,
        check=True,
    )
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def workshop(tmp_path_factory, wheel):
    """Build environments in the background, the next one while this one is tested."""
    pool, started = ThreadPoolExecutor(max_workers=2), {}

    def start(cell: tuple[str, str]) -> Future[Environment]:
        if cell not in started:
            folder = tmp_path_factory.mktemp("cell") / "venv"
            python = interpreter(cell[1])
            # The wheel brings its requirements; the tests install it again and again.
            requirements = (f"lm-eval=={cell[0]}", f"{wheel}", "setuptools")
            started[cell] = pool.submit(create, folder, python, *requirements)
        return started[cell]

    yield start
    pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module", params=CELLS, ids=lambda cell: f"harness {cell[0]}, {cell[1]}")
def cell(request, workshop) -> Environment:
    future = workshop(request.param)
    for later in CELLS[CELLS.index(request.param) + 1 :][:1]:
        with contextlib.suppress(pytest.skip.Exception):
            workshop(later)
    return future.result(timeout=1800)


def all_names() -> set[str]:
    """Every task and group that the YAMLs define."""
    names = set()
    for file in (REPOSITORY / "task_configs").rglob("*.yaml"):
        text = file.read_text(encoding="utf-8").replace("!function", "")
        content = yaml.safe_load(text)
        names.add(content.get("group") or content["task"])
    return names


def test_wheel(cell, wheel):
    cell.install("--no-deps", wheel)  # there already, unless another test has taken it away
    root = {p.name for p in cell.site_packages.glob("*lm_eval_bayes*")}
    assert root == START_UP_FILES | {
        "lm_eval_bayes",
        next(cell.site_packages.glob("lm_eval_bayes-*.dist-info")).name,
    }
    told = cell.lm_eval("ls", "tasks")
    assert all_names() <= {line.split("|")[1].strip() for line in told.splitlines() if "|" in line}
    told = cell.lm_eval("validate", "--tasks", ",".join(sorted(all_names())))
    assert "All tasks found and valid" in told
    cell.check_user_script()
    assert "demo_arithmetic_bayes" not in cell.lm_eval("ls", "tasks", LM_EVAL_BAYES_AUTOLOAD="0")
    cell.uninstall()
    cell.check_nothing_is_left()


def test_editable(cell):
    cell.uninstall()
    cell.install("--no-deps", "-e", REPOSITORY)
    root = {p.name for p in cell.site_packages.glob("*lm_eval_bayes*")}
    info = next(cell.site_packages.glob("lm_eval_bayes-*.dist-info")).name
    assert root == START_UP_FILES | {"_lm_eval_bayes.pth", info}, "nothing else is copied"
    quiet = {"PYTHONDONTWRITEBYTECODE": "1"}
    told = cell.lm_eval("ls", "subtasks", **quiet)
    assert str(REPOSITORY / "task_configs") in told
    cell.check_user_script(**quiet)
    cell.uninstall()
    cell.check_nothing_is_left()


@pytest.fixture(scope="module")
def plain(workshop) -> Environment:
    """One environment for what need not be tried everywhere; without our package."""
    environment = workshop(("0.4.13", "3.12")).result(timeout=1800)
    environment.uninstall()
    return environment


def test_the_lowest_declared_versions(wheel, tmp_path):
    """Every lower bound of pyproject.toml, with the newest versions of everything else."""
    if uv() is None:
        pytest.skip("pip cannot choose the lowest versions; uv is part of the developer's tools")
    lowest = ("--resolution", "lowest-direct", str(wheel))
    environment = create(tmp_path / "venv", sys.executable, *lowest)
    told = environment.lm_eval(
        *("--model", "biased_coin", "--model_args", "beta=2:3"),
        *("--tasks", "demo_arithmetic_bayes"),
    )
    assert "|bayes@8 " in told
    command = environment.folder / "bin" / "lm-eval-bayes"
    from lm_eval_bayes.cli.main import COMMANDS

    for name in COMMANDS:
        assert "Usage:" in environment.call(command, name, "--help").stdout


def test_the_pip_of_python_3_11_installs_it_beside_the_extra_of_the_harness(wheel, tmp_path):
    """pip 23.2 fails where two requirements spell one extra differently."""
    environment = create(tmp_path / "venv", interpreter("3.11"), "pip==23.2.1", "lm-eval")
    pip = (environment.python, "-m", "pip", "--disable-pip-version-check")
    environment.call(*pip, "install", "--dry-run", "lm_eval[math]", wheel, timeout=1800)


def test_target_folder_and_no_start_up_file(plain, wheel, tmp_path):
    """`pip install --target`: Python reads no .pth there, so the package is called by name."""
    target = tmp_path / "target"
    plain.install("--no-deps", "--target", target, wheel)
    env = {"PYTHONPATH": str(target)}
    module = (plain.python, "-m", "lm_eval_bayes")
    told = plain.call(*module, "validate", "--tasks", "demo_arithmetic_bayes", **env).stdout
    assert "All tasks found and valid" in told
    told = plain.call(*module, "ls", "subtasks", **env).stdout
    assert "|demo_arithmetic_bayes" in told
    told = plain.call(
        *(*module, "run", "--model", "biased_coin", "--model_args", "p=0.5,seed=3"),
        *("--tasks", "demo_arithmetic_bayes", "--limit", "2"),
        **env,
    ).stdout
    assert "bayes@" in told
    plain.lm_eval("validate", "--tasks", "demo_arithmetic_bayes", ok=False, **env)


def test_pip_itself_installs_and_removes_everything(plain, wheel):
    pip = (plain.python, "-m", "pip", "--disable-pip-version-check", "--no-input")
    plain.call(*pip, "install", "-q", "--no-deps", wheel)
    plain.check_user_script()
    plain.call(*pip, "uninstall", "-qy", "lm-eval-bayes")
    plain.check_nothing_is_left()


def test_editable_checkout_of_the_harness(plain, wheel, tmp_path):
    """setuptools then finds `lm_eval` by a finder of its own, as in a clone of the harness."""
    installed = plain.site_packages / "lm_eval"
    checkout = tmp_path / "checkout"
    shutil.copytree(installed, checkout / "lm_eval", ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / "not_the_harness").mkdir()
    (checkout / "pyproject.toml").write_text(
        "\n".join(
            [
                '[build-system]\nrequires = ["setuptools"]',
                'build-backend = "setuptools.build_meta"',
                '[project]\nname = "lm_eval"\nversion = "0.4.13"',
                '[project.scripts]\nlm_eval = "lm_eval.__main__:cli_evaluate"',
                '[tool.setuptools.packages.find]\ninclude = ["lm_eval*"]',
            ]
        ),
        encoding="utf-8",
    )
    plain.install("--no-deps", "-e", checkout)
    plain.install("--no-deps", wheel)
    code = "import lm_eval; print(lm_eval.__file__)"
    assert str(checkout) in plain.call(plain.python, "-c", code).stdout
    assert not installed.is_dir()
    assert "|demo_arithmetic_bayes" in plain.lm_eval("ls", "subtasks")
    plain.check_user_script()
