"""What the README says is so."""

from __future__ import annotations

import logging
import re
import shlex
import subprocess
import sys

import pytest
import yaml
from _support.harness_command import lm_eval_command
from _support.paths import REPOSITORY

from lm_eval_bayes.harness.rubrics.result_rows import KEYS as RUBRIC_KEYS
from lm_eval_bayes.harness.task.settings import KEYS
from lm_eval_bayes.rubric import SCHEMATA


def demoted(page: str) -> str:
    """Return a page with every heading one level lower, as in a document that includes it."""
    lines, in_block = [], False
    for line in page.splitlines(keepends=True):
        in_block ^= line.startswith("```")
        lines.append("#" + line if not in_block and re.match(r"#+ ", line) else line)
    return "".join(lines)


def guide() -> str:
    """Return the README, then the pages of the docs with headings one level lower."""
    paths = sorted((REPOSITORY / "examples" / "docs").glob("*.md"))
    pages = [demoted(path.read_text(encoding="utf-8")) for path in paths]
    return "\n".join([(REPOSITORY / "README.md").read_text(encoding="utf-8"), *pages])


README = guide()

#: What the README calls a signal; right or wrong and the end of generation go without saying.
WORDS = {
    "has_box": "box",
    "completion_bpt": "completion bits",
    "prompt_bpt": "prompt bits",
    "token_ratio": "tokens",
    "verifier_a": "verifier",
    "verifier_b": "verifier",
    "verifier_c": "verifier",
}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", blocks("python"))
def test_a_python_block_runs(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    message = re.findall(r"^# prints: (.*)$", code, flags=re.MULTILINE)
    assert message
    assert all(line in printed for line in message), printed


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_yaml_block_parses(text):
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))
    assert isinstance(yaml.load(text, Loader=Loader), dict)


def test_the_table_of_settings_is_complete():
    table = dict(re.findall(r"^\| `(bayes_\w+|cluster)` \| (.*) \|$", README, flags=re.MULTILINE))
    assert table == KEYS


def test_the_tables_of_rubrics_are_complete():
    keys = dict(re.findall(r"^\| `(rubric_\w+)` \| (.*) \|$", README, flags=re.MULTILINE))
    assert keys == RUBRIC_KEYS
    section = README.partition("## Rubrics")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", section, flags=re.MULTILINE)
    assert {name: why for name, _, why in rows} == {n: s.why for n, s in SCHEMATA.items()}
    for name, needs, _ in rows:
        requests = {WORDS.get(signal) for signal in SCHEMATA[name].needs} - {None}
        assert set(needs.split(", ")) - {"-"} == requests, name


def test_the_rubric_of_one_s_own_is_the_example():
    (block,) = (b for b in blocks("yaml") if "name: terse" in b)
    example = REPOSITORY / "examples/your_own_rubric/terse.yaml"
    assert yaml.safe_load(block) == yaml.safe_load(example.read_text(encoding="utf-8"))


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


FIRST_COMMAND = README[README.index("lm_eval --model biased_coin") :].splitlines()[0]


def check_first_output(printed, log):
    assert blocks("text")[0] in printed
    truth = re.search(r"the truth and logs it: ([\d.]+) here", README.replace("\n", " "))
    assert re.search(rf"true score.*is {re.escape(truth[1])}", log)


@pytest.mark.filterwarnings("default")
def test_the_printed_table_is_what_the_first_command_prints(capsys, caplog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO)
    lm_eval_command(*shlex.split(FIRST_COMMAND)[1:])
    check_first_output(capsys.readouterr().out, caplog.text)
    assert not [r.message for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.slow
def test_the_first_command_as_it_is_among_all_tasks_of_the_harness(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "lm_eval_bayes", "run", *shlex.split(FIRST_COMMAND)[1:]],
        capture_output=True,
        text=True,
        timeout=1800,
        cwd=tmp_path,
        check=True,
    )
    check_first_output(run.stdout, run.stderr)


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

    chosen, words = typer.main.get_command(app), shlex.split(command, comments=True)[1:]
    while hasattr(chosen, "commands"):
        chosen, words = chosen.commands[words[0]], words[1:]
    assert chosen.make_context("lm-eval-bayes", list(words)).params
