"""What the README says is so."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lm_eval_bayes.harness.settings import KEYS

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", blocks("python"))
def test_a_python_block_runs(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    told = re.findall(r"^# prints: (.*)$", code, flags=re.MULTILINE)
    assert told
    assert all(line in printed for line in told), printed


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_yaml_block_parses(text):
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))
    assert isinstance(yaml.load(text, Loader=Loader), dict)


def test_the_table_of_settings_is_complete():
    table = dict(re.findall(r"^\| `(bayes_\w+)` \| (.*) \|$", README, flags=re.MULTILINE))
    assert table == KEYS


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "command",
    [
        line
        for block in blocks("bash")
        for line in block.replace("\\\n", " ").splitlines()
        if "lm_eval " in line
    ],
)
def test_a_harness_command_is_understood(command):
    from lm_eval._cli import HarnessCLI
    from lm_eval.config.evaluate_config import EvaluatorConfig

    words = shlex.split(command[command.index("lm_eval ") :])[1:]
    args = HarnessCLI()._parser.parse_args(["run", *words])
    config = EvaluatorConfig.from_cli(args)
    assert config.tasks


def test_the_printed_table_is_what_the_first_command_prints(tmp_path):
    words = shlex.split(README[README.index("lm_eval --model biased_coin") :].splitlines()[0])
    run = subprocess.run(
        [sys.executable, "-m", "lm_eval_bayes", "run", *words[1:]],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        check=True,
    )
    (table,) = blocks("text")
    assert table in run.stdout
    truth = re.search(r"the truth and logs it: ([\d.]+) here", README.replace("\n", " "))
    assert f"should hold, is {truth[1]}" in run.stderr


@pytest.mark.parametrize(
    "command",
    [
        line
        for block in blocks("bash")
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("lm-eval-bayes ")
    ],
)
def test_a_command_of_ours_is_understood(command):
    import typer

    from lm_eval_bayes.cli.main import app

    chosen, words = typer.main.get_command(app), shlex.split(command)[1:]
    while hasattr(chosen, "commands"):
        chosen, words = chosen.commands[words[0]], words[1:]
    assert chosen.make_context("lm-eval-bayes", list(words)).params
