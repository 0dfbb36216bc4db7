"""Every command that a page shows is run, in the page's order, in one folder per page.

What cannot run here stands in a table with its reason: other arguments in the place of a GPU, files
of the reader's own, and commands that are left out.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _support.command_line import called
from _support.harness_command import lm_eval_command
from _support.paths import REPOSITORY
from _support.saved_matrices import outcomes, saved

DOCS = REPOSITORY / "examples" / "docs"
#: The pages with commands; those of single commands are made of help texts, which have their own
#: tests.
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(REPOSITORY.glob("examples/*/README.md")),
]

#: Commands that are not run, by a part of them, with the reason.
LEFT_OUT = {
    "pip install '": "installs from the network",
    "pip install .": "installs from the network; the tests run in its result",
    "pip install -e": "installs from the network; the tests run in its result",
    "python -m venv": "makes an environment, which the tests run in",
    "pre-commit install": "changes the repository",
    "pytest -n": "is these tests",
    "pytest -m": "is these tests",
    "bash .ci/run": "runs these tests",
    "gsm8k_cot_bayes,minerva_math_bayes": "needs a network, for two data sets of the hub",
    "export MODEL=": "is a part of the Slurm recipes, which test_slurm.py runs",
    "executor=ray": "starts a Ray cluster, as test_ray_run.py does by hand",
    "sbatch --": "needs a Slurm, on which test_slurm.py runs it",
    "vllm serve": "needs a GPU",
    "base_url=http://127.0.0.1": "needs a server, as end_to_end/test_api_server.py has",
    "--verifier opencompass/": "needs a network and a GPU, for a model of 3 billion parameters",
}
#: What stands in the place of a GPU, and of a data set of the hub.
INSTEAD = [
    (
        r"--model vllm --model_args (pretrained=[\w/.-]+(,\w+=\w+)*|'{.*?}}')",
        "--model biased_coin --model_args beta=4:3",
    ),
    (
        r"backend=vllm,store=([\w/.]+),pretrained=[\w/.-]+,max_model_len=\d+",
        r"backend=biased_coin,store=\1,beta=2:3",
    ),
    (r"\baime25_(bayes|rubric)\b", r"demo_arithmetic_\1"),
]
#: Files and folders of the reader's own by page, and how they come to be.
GIVEN = {
    "README.md": ("runs/new", "runs/old", "logs"),
    "decisions.md": ("results",),
    "rubrics.md": ("new_run",),
    "leaderboard/README.md": ("submissions/mine",),
}


def name_of(page):
    """Return the name of a page, with its folder below the examples."""
    below = page.name == "README.md" and page.parent != REPOSITORY
    return f"{page.parent.name}/README.md" if below else page.name


def commands(page):
    """Return the commands of a page, without comments, one per line of its blocks."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(
        r"^```(?:bash|sh|console)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE
    )
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip()]


def screens(page):
    """Return the screens of `lm-eval-bayes` that a page shows, the first block after a command."""
    text = page.read_text(encoding="utf-8")
    shown = r"^lm-eval-bayes [^\n]*\n```\n\n```text\n(.*?)^```$"
    return re.findall(shown, text, flags=re.DOTALL | re.MULTILINE)


def left_out(command):
    """Return why a command is not run; None if it is."""
    return next((why for part, why in LEFT_OUT.items() if part in command), None)


def as_run(command):
    for pattern, words in INSTEAD:
        command = re.sub(pattern, words, command)
    return command


def give(name):
    """Make a file or a folder that a page takes as the reader's own."""
    path = Path(name)
    if name == "logs":
        weak = REPOSITORY / "tests/runs/readers/data/inspect_ai/weak.eval"
        path.mkdir()
        shutil.copy(weak, path / "weak.eval")
    elif name == "submissions/mine":
        shutil.copytree(min(path.parent.iterdir()), path)
        (path / "submission.yaml").write_text("model: My model\nowner: me\n", encoding="utf-8")
    elif name in ("runs", "new_run"):
        lm_eval_command(
            *("--model", "trials", "--model_args", f"backend=biased_coin,store={name}.sqlite,p=.6"),
            *("--tasks", "demo_arithmetic_rubric", "--log_samples", "--output_path", name),
        )
    else:
        matrix = outcomes(len(name), 0.2 if name.endswith("new") else 0.0)
        saved(path, f"org/{path.name}", matrix, task="aime25_bayes")


def run(command):
    """Run a command, and return what one of `lm-eval-bayes` prints.

    Those of the package run in this process, a script in one of its own.
    """
    words = shlex.split(command, comments=True)
    if words[0] == "lm_eval":
        lm_eval_command(*words[1:])
    elif words[0] == "lm-eval-bayes":
        expanded = []
        for word in words[1:]:
            matches = sorted(map(str, Path().glob(word))) if word.endswith("*") else []
            expanded += matches or [word]
        code, printed, error = called(*expanded)
        assert code == 0, (command, error)
        assert printed.strip() or "written to" in error, command
        return printed
    else:
        assert words[0] == "python", command
        done = subprocess.run(
            [sys.executable, *words[1:]], capture_output=True, text=True, timeout=1800
        )
        assert done.returncode == 0, (command, done.stderr)
    return ""


def test_each_exemption_is_of_a_command():
    shown = [command for page in PAGES for command in commands(page)]
    for part in LEFT_OUT:
        assert any(part in command for command in shown), part
    for pattern, _ in INSTEAD:
        assert any(re.search(pattern, command) for command in shown), pattern
    assert set(GIVEN) <= set(map(name_of, PAGES))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(left_out(command) is None for command in commands(page))],
    ids=lambda page: str(page.relative_to(REPOSITORY)),
)
def test_the_commands_of_a_page_run_in_their_order(page, tmp_path, monkeypatch):
    if page.parent.name == "leaderboard":
        shutil.copytree(page.parent, tmp_path / "page")
        monkeypatch.chdir(tmp_path / "page")
    else:
        shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
        monkeypatch.chdir(tmp_path)
    for name in GIVEN.get(name_of(page), ()):
        give(name)
    printed = [run(as_run(command)) for command in commands(page) if left_out(command) is None]
    for screen in screens(page):
        assert any(screen in output for output in printed), screen
