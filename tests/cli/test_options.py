"""All commands and options: what help shows, and what became of removed ones."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import typer
from _support.command_line import called, command_error

from lm_eval_bayes.cli.main import app
from lm_eval_bayes.cli.ui.errors import REMOVED_COMMANDS, REMOVED_OPTIONS, usage_sentence
from lm_eval_bayes.cli.ui.options import MORE, OPTIONS, READING

#: The options of every command that `--help` shows, but for those that many have.
SHOWN = {
    "run": "--width --decide --budget --max-trials --store",
    "summary": "--k --by --estimates",
    "compare": "-a -b --k --questions --align",
    "rank": "--pairs",
    "plan": "--width --apart --max-trials",
    "noise": "--difference --overwrite",
    "report": "--output --title --no-texts --overwrite",
    "gate": "-a -b --margin --floor --on --fail-if-unknown --junit --markdown --align",
    "doctor": "--store --offline --formats",
    "export table": "--output --overwrite --k",
    "export hub": "--model-id --output --value --task-id --overwrite",
    "export every-eval-ever": "--output --model-id --instances --texts --organization "
    "--relationship --overwrite",
    "store info": "--check",
    "store merge": "--output --keep-first",
    "store export": "--output --format --overwrite",
    "store prune": "--model --sampling --prompt --trials-from --yes",
    "study convergence": "--score --replicates",
    "study simulate": "--models --means --questions --trials --beta --replicates --output --html "
    "--overwrite",
    "study anchors": "--target --anchor --keep",
    "study rank": "--ties --method --shared --paper",
    "study rubric": "--schema --weights --thresholds --freeze",
    "study verify": "--verifier --base-url --batch-size --limit --out --restart",
}
COMMON = {"--scope", "--json", "--verbose", "--help"}
#: Options of reading runs, in every command that reads them.
OF_READING = ["--task", "--metric", "--filter", "--dedupe", "--columns", "--settings", "--setting"]


def commands(group, path=""):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield path + name, command


COMMANDS = dict(commands(typer.main.get_command(app)))


def options_of(command, panel):
    return [
        max(parameter.opts, key=len)
        for parameter in command.params
        if parameter.param_type_name == "option"
        and (getattr(parameter, "rich_help_panel", None) or OPTIONS) == panel
    ]


def test_every_command_shows_its_own_options_and_those_of_reading():
    shown = {name: set(options_of(command, OPTIONS)) for name, command in COMMANDS.items()}
    assert {name: options - COMMON for name, options in shown.items()} == {
        name: set(options.split()) for name, options in SHOWN.items()
    }
    assert max(len(options.split()) for options in SHOWN.values()) <= 12
    reading = Counter(tuple(options_of(command, READING)) for command in COMMANDS.values())
    assert reading.keys() == {(), tuple(OF_READING), ("--task", "--dedupe")}
    assert reading[tuple(OF_READING)] == 13


@pytest.mark.parametrize("name", [name for name, c in COMMANDS.items() if options_of(c, MORE)])
def test_help_all_shows_the_rest(name):
    short, everything = (
        re.findall(
            r"^  (--[\w-]+)", called(name, option)[1].partition("\nOptions:")[2], re.MULTILINE
        )
        for option in ("--help", "--help-all")
    )
    more = options_of(COMMANDS[name], MORE)
    assert not set(more) & set(short)
    assert set(more) <= set(everything)


@pytest.mark.parametrize("removed", [*REMOVED_COMMANDS, *REMOVED_OPTIONS])
def test_what_was_removed_names_its_successor(removed):
    words = removed.split(" ")
    name, option = " ".join(words[:-1]) or "summary", words[-1]
    if removed in REMOVED_COMMANDS:
        assert removed not in COMMANDS
        sentence = usage_sentence(command_error(removed))
        instead = REMOVED_COMMANDS[removed]
    else:
        concerned = COMMANDS.values() if len(words) == 1 else [COMMANDS[name]]
        assert not any(option in p.opts for command in concerned for p in command.params)
        sentence = usage_sentence(command_error(name, option, "x"))
        instead = REMOVED_OPTIONS[removed]
    assert sentence.endswith(instead)
    for code in re.findall(r"`([^`]+)`", instead):
        named = [
            n for n in [*COMMANDS, "hf upload", "TASK_bayes"] if f"{code} ".startswith(f"{n} ")
        ]
        assert named, instead
        for given in re.findall(r"--[a-z-]+", code) if named[-1] in COMMANDS else ():
            assert any(given in p.opts for p in COMMANDS[named[-1]].params)
