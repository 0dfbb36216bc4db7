"""`lm-eval-bayes doctor`: what is installed, what works here, and what is to mend."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, Optional

import typer

from lm_eval_bayes._util.text import plural
from lm_eval_bayes.cli.commands.doctor_paths import Finding, State, folders, questions, store_place
from lm_eval_bayes.cli.ui.exit_codes import CHECK_FAILED
from lm_eval_bayes.cli.ui.output import say, say_json, say_table
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.harness.plugin.installed import Registered

#: Seconds for a process of its own to import the harness, which takes one to six.
IMPORT_S = 120.0


class Package(NamedTuple):
    """A distribution, the least version, and what it is for."""

    name: str
    least: str | None
    purpose: str
    extra: str | None = None


PACKAGES = (
    Package("lm-eval-bayes", None, ""),
    Package("numpy", "1.24", "every number"),
    Package("scipy", "1.11", "every posterior"),
    Package("pyyaml", "6", "task files"),
    Package("math-verify", "0.8", "grading of mathematical answers"),
    Package("typer", "0.12.5", "the command line"),
    Package("rich", "13", "tables on a terminal"),
    Package("jinja2", "3.1", "reports"),
    Package("datasets", None, "loading questions"),
    Package("huggingface-hub", None, "fetching questions, submissions"),
    Package("torch", None, "--model hf, --model vllm", "hf"),
    Package("transformers", None, "--model hf, the verifier on a CPU", "hf"),
    Package("vllm", None, "--model vllm, the verifier on a GPU", "vllm"),
    Package("matplotlib", "3.8", "pictures as files (reports need none)", "plots"),
)


def command(
    store: Annotated[
        Optional[Path],  # noqa: UP045  typer reads this on Python 3.10 too
        typer.Option(
            metavar="PATH",
            help="Look also at the place of a trial store, which may be a file to come.",
        ),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask the hub whether questions are there.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds to wait for the hub, in all.")
    ] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell what is installed, what works here, and what is to mend.

    Looks at Python and the packages, at the harness and whether it finds this package's models,
    metrics and tasks (and how), at the backends that record signals, at the questions of the
    contests (in the cache, or within reach on the hub), and at the folders that a run writes to.
    Nothing is installed, fetched or changed, and neither torch nor vLLM is loaded.

    A finding is ok, a note (some runs need it, or it is worth knowing), or wrong: a run needs it
    and it is missing. Each that can be mended has one command that does so. Ends with exit code
    1 if something is wrong.

    \b
    Examples:
      lm-eval-bayes doctor
      lm-eval-bayes doctor --offline --store /scratch/runs/aime25.sqlite --json
    """
    from lm_eval_bayes.harness.plugin.installed import Probe, harness_folder
    from lm_eval_bayes.harness.task import contest_data

    if not 0 < timeout < float("inf"):
        raise InvalidInputError.of("--timeout", "be a number of seconds above 0", timeout)
    # Both take seconds; they are under way while the rest is looked at.
    probe = Probe.start() if harness_folder() is not None else None
    try:
        forbidden = contest_data.offline()
        absent = [one for one in contest_data.needed() if not contest_data.is_cached(one)]
        asked = None if offline or forbidden else contest_data.reach(absent, timeout)
        findings = [*_packages(), *_backends(), *folders()]
        if store is not None:
            findings += store_place(store)
        findings += questions(asked, forbidden)
        findings += _harness(None if probe is None else probe.result(IMPORT_S))
    finally:
        if probe is not None:
            probe.close()
    findings.sort(key=lambda one: _SECTIONS.index(one.section))
    wrong = sum(one.state is State.wrong for one in findings)
    if as_json:
        told = [{**asdict(one), "state": one.state.value} for one in findings]
        say_json({"ok": not wrong, "findings": told})
    else:
        _show(findings, wrong)
    raise typer.Exit(CHECK_FAILED if wrong else 0)


_SECTIONS = ("packages", "harness", "backends", "questions", "folders", "store")


def _show(findings: Sequence[Finding], wrong: int) -> None:
    by_section: dict[str, list[Finding]] = {}
    for one in findings:
        by_section.setdefault(one.section, []).append(one)
    for section, those in by_section.items():
        say_table(section, ("", "what", "found"), [(o.state.value, o.name, o.found) for o in those])
        say()
    mends: dict[str, list[Finding]] = {}
    for one in sorted(findings, key=lambda one: one.state is not State.wrong):
        if one.mend is not None:
            mends.setdefault(one.mend, []).append(one)
    if mends:
        say("what mends it")
        for mend, those in mends.items():
            # On a line of its own, so that it can be copied from any terminal.
            names = ", ".join(dict.fromkeys(one.name for one in those))
            say(f"  {those[0].state.value}: {names}")
            say(f"    {mend}")
        say()
    if wrong:
        say(f"{plural(wrong, 'thing')} that a run needs {'is' if wrong == 1 else 'are'} missing")
    else:
        say("nothing that a run needs is missing")


# -- packages ------------------------------------------------------------------------------------


def _packages() -> Iterator[Finding]:
    from lm_eval_bayes import __version__
    from lm_eval_bayes.harness.plugin.installed import is_older, version_of

    yield Finding("packages", "python", State.ok, f"{platform.python_version()}, {sys.executable}")
    for package in PACKAGES:
        version = version_of(package.name)
        if package.name == "lm-eval-bayes":
            place = Path(__file__).resolve().parents[2]
            told = f"{__version__}, {place}"
            if version is None:
                told += " (not installed, found by the path)"
            yield Finding("packages", package.name, State.ok, told)
        elif version is None:
            state = State.wrong if package.extra is None else State.note
            found = f"not installed; needed for {package.purpose}"
            yield Finding("packages", package.name, state, found, _install(package))
        elif package.least is not None and is_older(version, package.least):
            state = State.wrong if package.extra is None else State.note
            found = f"{version}, older than {package.least}"
            yield Finding("packages", package.name, state, found, _install(package))
        else:
            yield Finding("packages", package.name, State.ok, version)


def _install(package: Package) -> str:
    if package.extra is not None:
        return _pip(f"lm-eval-bayes[{package.extra}]")
    least = "" if package.least is None else f">={package.least}"
    return _pip(f"{package.name}{least}")


def _pip(what: str) -> str:
    return f"pip install {shlex.quote(what)}"


# -- the harness ---------------------------------------------------------------------------------


def _harness(registered: Registered | None) -> Iterator[Finding]:
    from lm_eval_bayes.harness.plugin.installed import (
        OLDEST_HARNESS,
        TESTED_HARNESSES,
        is_older,
        other_command,
        version_of,
    )

    version = version_of("lm-eval")
    mend = _pip(f"lm-eval>={OLDEST_HARNESS}")
    tested = " and ".join(TESTED_HARNESSES)
    if registered is None:
        yield Finding("harness", "lm-eval", State.wrong, "not installed: nothing can be run", mend)
        return
    if version is None:
        told = "of unknown version; this package is tested with " + tested
        yield Finding("harness", "lm-eval", State.note, told)
    elif is_older(version, OLDEST_HARNESS):
        told = f"{version}, older than {OLDEST_HARNESS}"
        yield Finding("harness", "lm-eval", State.wrong, told, mend)
    elif version in TESTED_HARNESSES:
        yield Finding("harness", "lm-eval", State.ok, f"{version}, supported")
    else:
        told = f"{version}, which this package is not tested with; {tested} are"
        yield Finding("harness", "lm-eval", State.note, told)
    yield _plugin(registered)
    other = other_command()
    if other is not None:
        told = f"{other} belongs to another Python than this one, and may know nothing of it"
        run = f"{shlex.quote(sys.executable)} -m lm_eval run --help"
        yield Finding("harness", "lm_eval on the PATH", State.note, told, run)


def _plugin(registered: Registered) -> Finding:
    from lm_eval_bayes.harness.plugin import installed

    def finding(state: State, found: str, mend: str | None = None) -> Finding:
        return Finding("harness", "plugin", state, found, mend)

    if registered.error is not None:
        told = f"the harness cannot be imported: {registered.error}"
        again = f"pip install --force-reinstall 'lm-eval>={installed.OLDEST_HARNESS}'"
        return finding(State.wrong, told, again)
    if registered.complete:
        folder = installed.harness_folder()
        if folder is not None and installed.discovers_plugins(folder):
            how = "by its own discovery of entry points"
        elif installed.watches():
            how = f"by the start-up file {installed.start_up_file() or ''}".rstrip()
        else:
            how = "by itself"
        parts = f"{len(registered.by_itself)} components and the tasks"
        return finding(State.ok, f"lm_eval finds {parts}, {how}")
    absent = ", ".join(registered.missing)
    if not registered.complete_by_hand:
        told = f"this harness cannot be extended as a whole; it does not find: {absent}"
        return finding(State.wrong, told, _pip(f"lm-eval=={installed.TESTED_HARNESSES[-1]}"))
    instead = "`python -m lm_eval_bayes run` and `lm-eval-bayes run` find everything"
    if installed.switched_off():
        value = os.environ.get("LM_EVAL_BAYES_AUTOLOAD", "")
        told = f"LM_EVAL_BAYES_AUTOLOAD={value} keeps it from lm_eval; {instead}"
        return finding(State.note, told, "unset LM_EVAL_BAYES_AUTOLOAD")
    if installed.version_of("lm-eval-bayes") is None:
        place = Path(__file__).resolve().parents[3]
        told = f"lm_eval does not find it, since the package is not installed; {instead}"
        checkout = (place / "pyproject.toml").is_file()
        return finding(State.note, told, _pip(str(place)) if checkout else _pip("lm-eval-bayes"))
    start = installed.start_up_file()
    why = "its start-up file is missing" if start is None else f"{start} was not read"
    told = f"lm_eval does not find {absent}: {why}; {instead}"
    again = "pip install --force-reinstall --no-deps lm-eval-bayes"
    return finding(State.wrong, told, again)


# -- backends ------------------------------------------------------------------------------------


def _backends() -> Iterator[Finding]:
    from lm_eval_bayes.harness.plugin.installed import BACKENDS, gpus, version_of

    for backend in BACKENDS:
        names = ", ".join(backend.names)
        missing = [name for name in backend.needs if version_of(name) is None]
        if missing:
            told = f"cannot run, for want of {', '.join(missing)}"
            mend = _pip(f"lm-eval-bayes[{backend.extra}]")
            yield Finding("backends", names, State.note, told, mend)
        else:
            told = f"can run, and records {backend.records}"
            yield Finding("backends", names, State.ok, told)
    told = "can run if the harness can run them; their texts are stored, without signals"
    yield Finding("backends", "all others", State.ok, told)
    if version_of("torch") is not None:
        found = gpus()
        told = ", ".join(f"{found.count(name)} x {name}" for name in dict.fromkeys(found))
        none = "none that the driver tells of; models are computed on the CPU, slowly"
        yield Finding("backends", "GPU", State.ok if found else State.note, told or none)
