"""The tree of docs/intervals.md names commands and options that exist."""

from __future__ import annotations

import re

import typer
from _support.paths import REPOSITORY

from lm_eval_bayes.cli.main import app


def test_the_commands_of_the_tree_exist():
    page = (REPOSITORY / "examples/docs/intervals.md").read_text(encoding="utf-8")
    tree = page.partition("```text\n")[2].partition("```")[0]
    ends = re.findall(r"·{3,} (.*)$", tree, re.MULTILINE)
    commands = [text.split() for end in ends for text in end.split(", ")]
    assert len(commands) == 13
    group = typer.main.get_command(app)
    for name, *words in commands:
        options = {option for param in group.commands[name].params for option in param.opts}
        assert {word for word in words if word.startswith("--")} <= options
