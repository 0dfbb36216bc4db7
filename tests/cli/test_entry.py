"""The first moments of the command: what it loads, and Ctrl-C while it does."""

import subprocess
import sys

import pytest
from _support.command_line import called

from lm_eval_bayes import __version__

START = "from lm_eval_bayes.cli import run; run()"
#: Sends Ctrl-C to itself at the n-th module that is loaded after the entry itself.
INTERRUPTED = (
    """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in jobs behind

class Finder:
    left = int(sys.argv.pop())
    def find_spec(self, name, path=None, target=None):
        if "lm_eval_bayes.cli.main" in sys.modules or name == "lm_eval_bayes.cli.main":
            Finder.left -= 1
            if Finder.left == 0:
                os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""
    + START
)


def python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=600
    )


@pytest.mark.parametrize(
    "module", [80, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 40, 160, 400))]
)
def test_interrupted_while_it_loads(module, tmp_path):
    counts = tmp_path / "a.csv"
    counts.write_text("id,c,n\n1,3,8\n2,5,8\n", encoding="utf-8")
    done = python(INTERRUPTED, "summary", str(counts), str(module))
    assert (done.returncode, done.stdout, done.stderr.split()) in (
        (130, "", ["stopped"]),
        (130, "", []),  # so ends Ctrl-C while arguments are read
    )


def test_help_loads_nothing_heavy():
    heavy = (
        *("numpy", "scipy", "lm_eval", "torch", "transformers", "datasets", "huggingface_hub"),
        *("matplotlib", "jinja2", "yaml", "sqlite3", "rich"),
    )
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('loaded:', set({heavy}) & set(sys.modules)))\n" + START
    )
    done = python(code, "summary", "--help")
    assert done.returncode == 0
    assert done.stdout.endswith("loaded: set()\n")


def test_version():
    assert called("--version") == (0, f"lm-eval-bayes {__version__}\n", "")
