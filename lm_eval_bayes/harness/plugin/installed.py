"""What is installed: packages, the harness, and whether it finds what this package adds to it.

Only metadata and file names are read here. The harness itself is imported by another process
(:func:`print_registered`), so that a broken or slow harness does not affect this one.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lm_eval_bayes.harness.plugin import patches
from lm_eval_bayes.harness.plugin.registration import COMPONENTS, HOOKS, Component, is_registered

#: The file that makes a start of Python wait for the harness.
START_UP_FILE = "lm_eval_bayes_boot." + ("start" if sys.version_info >= (3, 15) else "pth")


def _name(component: Component) -> str:
    return f"{component.kind} {component.name}"


TASK_FOLDER = "the folder of tasks"

#: What this package adds to the harness.
NAMES = (*map(_name, COMPONENTS), TASK_FOLDER)

#: What a probe prints before its JSON, since the harness and others print as well.
_MARK = "lm_eval_bayes probe: "


def harness_folder() -> Path | None:
    """Return the folder of the harness's package, without importing it."""
    spec = importlib.util.find_spec("lm_eval")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0]) if folders else None


def start_up_file() -> Path | None:
    """Return the start-up file that this Python reads, None if it is missing."""
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    folders += [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    files = (Path(folder) / START_UP_FILE for folder in folders)
    return next((file for file in files if file.is_file()), None)


def watches() -> bool:
    """Return whether the start-up file was read when this process began."""
    return any(getattr(finder, "lm_eval_bayes", False) for finder in sys.meta_path)


def other_command() -> Path | None:
    """Return the `lm_eval` that a shell would start, if it belongs to another Python."""
    path = shutil.which("lm_eval")
    if path is None:
        return None
    command = Path(path)
    # The command of a user site lies elsewhere, and may be a link.
    own_folders = {
        Path(sysconfig.get_path("scripts")).resolve(),
        Path(sys.executable).parent.resolve(),
    }
    folders = {command.parent.resolve(), command.resolve().parent}
    return None if own_folders & folders or _runs_this_python(command) else command


def _runs_this_python(script: Path) -> bool:
    try:
        with script.open("rb") as file:
            line = file.readline(1000)
    except OSError:
        return False
    interpreter = line.removeprefix(b"#!").strip().decode("utf-8", "replace")
    return os.path.abspath(interpreter) == os.path.abspath(sys.executable)


# -- the harness as a process of its own sees it ------------------------------------------------


@dataclass(frozen=True)
class Registered:
    """What a fresh process found in the harness's registries.

    Attributes
    ----------
    error : str or None
        Why the harness could not be imported.
    names : tuple of str
        Those of :data:`NAMES` that are registered when the harness is imported.
    """

    error: str | None = None
    names: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """What `lm_eval` does not find."""
        return tuple(name for name in NAMES if name not in self.names)


def registered(timeout_s: float, environment: Mapping[str, str] | None = None) -> Registered:
    """Return what a process finds that imports the harness.

    Parameters
    ----------
    timeout_s : float
        Seconds after which it is ended.
    environment : mapping, optional
        Its environment; as `lm_eval` would have it unless given.
    """
    # What lies in the working directory is no part of the environment; this package is
    # added last, for a checkout that is found through it.
    package_parent = str(Path(__file__).resolve().parents[3])
    code = (
        "import sys\n"
        "if sys.path and sys.path[0] == '': del sys.path[0]\n"
        + "".join(f"import {name}\n" for name in HOOKS)
        + f"sys.path.append({package_parent!r})\n"
        "from lm_eval_bayes.harness.plugin.installed import print_registered\n"
        "print_registered()\n"
    )
    done = _output([sys.executable, "-c", code], timeout_s, environment)
    if done is None:
        return Registered(f"importing it took more than {timeout_s:g} s")
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            return Registered(None, tuple(json.loads(line.removeprefix(_MARK))))
    last = [line.strip() for line in done.stderr.splitlines() if line.strip()][-1:]
    return Registered(last[0] if last else f"exit code {done.returncode}")


def _output(
    command: list[str], timeout_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Run a command; None where it cannot be started or takes too long."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def print_registered() -> None:
    """Print what this process's harness has registered; for a process of its own."""
    folder = [TASK_FOLDER] if patches.is_installed(patches.TASK_INDEX) else []
    names = [_name(component) for component in COMPONENTS if is_registered(component)]
    print(f"\n{_MARK}{json.dumps(names + folder)}", flush=True)


# -- backends ------------------------------------------------------------------------------------


class Backend(NamedTuple):
    """Backends whose trials are recorded with signals, and what they need.

    Attributes
    ----------
    names : tuple of str
        What `--model` of the harness takes, and `backend=` of `--model trials`.
    needs : tuple of str
        The distributions that it imports.
    extra : str
        The extra of this package that brings them, empty where none does.
    records : str
        What is recorded of every trial.
    """

    names: tuple[str, ...]
    needs: tuple[str, ...]
    extra: str
    records: str


_SERVER = ("requests", "aiohttp", "tenacity", "tiktoken")
_ALL = "seed, tokens, end of generation, bits of completion and prompt, times"
_GIVEN = "seed, tokens, end of generation, times; bits where the server gives log-probabilities"

#: The backends that `lm_eval_bayes.harness.models.backends.SAMPLING` has a class for.
BACKENDS = (
    Backend(("vllm",), ("vllm", "torch"), "vllm", _ALL),
    Backend(("hf",), ("torch", "transformers", "accelerate"), "hf", _ALL),
    Backend(("local-completions", "local-chat-completions"), _SERVER, "api", _GIVEN),
    Backend(("openai-completions", "openai-chat-completions"), _SERVER, "api", _GIVEN),
    Backend(("sglang",), ("sglang",), "", "tokens, end of generation"),
    Backend(("biased_coin",), (), "", "seed, tokens, end of generation, times"),
)

#: Which extra brings a module that a backend of the harness imports.
EXTRAS = {name: backend.extra for backend in BACKENDS if backend.extra for name in backend.needs}
EXTRAS["peft"] = "hf"


def gpus(timeout_s: float = 5.0) -> tuple[str, ...]:
    """Return the names of the GPUs that the driver's own tool lists, without loading torch."""
    done = _output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout_s)
    if done is not None and done.returncode == 0:
        return tuple(line.strip() for line in done.stdout.splitlines() if line.strip())
    return ("AMD GPU",) if Path("/dev/kfd").exists() else ()
