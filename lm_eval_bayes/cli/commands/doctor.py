"""`lm-eval-bayes doctor`: the installation, and which format a file is; problems and fixes."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

import typer

from lm_eval_bayes._util.hashing import weight_hash_folder
from lm_eval_bayes._util.packages import (
    HARNESS,
    VLLM,
    is_older,
    own_source,
    pip_install,
    pip_install_extra,
    version_of,
)
from lm_eval_bayes._util.text import format_bytes, join_words, one_line, plural
from lm_eval_bayes.cli.screens.layout import Form, say_sentence, say_table
from lm_eval_bayes.cli.ui.errors import CHECK_FAILED
from lm_eval_bayes.cli.ui.options import MORE, Json, option
from lm_eval_bayes.cli.ui.output import say, say_json, warn
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError

if TYPE_CHECKING:
    from lm_eval_bayes.harness.plugin.installed import Registered
    from lm_eval_bayes.harness.task.questions import HubQuery

#: Seconds that the import of the harness may take in its own process; it usually takes 1 to 6.
IMPORT_TIMEOUT_S = 120.0
#: Free space of a folder below which it gets a note.
LOW_SPACE_BYTES = 1_000_000_000

REINSTALL = "pip install --force-reinstall"

#: The result of a check: "note" if only some runs need it or the user should know about it,
#: "wrong" if every run needs it and it is missing.
State: TypeAlias = Literal["ok", "note", "wrong"]


class Finding(NamedTuple):
    """The result of one check, with the command that fixes a problem."""

    name: str
    state: State
    detail: str
    fix: str | None = None


class Package(NamedTuple):
    """A distribution, its oldest version that works, its purpose, and the extra that has it."""

    name: str
    oldest: str | None
    purpose: str
    extra: str | None = None


PACKAGES = (
    Package("numpy", "2.0", "every number"),
    Package("scipy", "1.13", "every posterior"),
    Package("pyyaml", "6", "task files"),
    Package("math-verify", "0.8", "grading of mathematical answers"),
    Package("typer", "0.15.4", "the command line"),
    Package("rich", "13", "tables on a terminal"),
    Package("pytablewriter", "1", "tables of the harness"),
    Package("jinja2", "3.1", "reports"),
    Package("datasets", None, "loading questions"),
    Package("huggingface-hub", None, "fetching questions, submissions"),
    Package("torch", None, "--model hf, --model vllm", "hf"),
    Package("transformers", None, "--model hf, the verifier on a CPU", "hf"),
    Package("vllm", VLLM.oldest, "--model vllm, the verifier on a GPU", "vllm"),
    Package("ray", "2.60", "executor=ray: many workers with one store", "ray"),
)


def command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]", help="Show only which format these files or folders are."),
    ] = None,
    store: Annotated[
        Path | None, option("PATH", "Also check a trial store, or its folder.")
    ] = None,
    offline: Annotated[
        bool, option(None, "Do not ask the hub for questions.", "--offline")
    ] = False,
    list_formats: Annotated[
        bool, option(None, "Only list the files that every command reads.", "--formats")
    ] = False,
    timeout: Annotated[
        float, option("S", "Seconds to wait for the hub, in total.", panel=MORE)
    ] = 5.0,
    as_json: Json = False,
) -> None:
    """Check the installation, or which format a file is, and show problems and their fixes.

    Checks the packages, whether the harness finds this package's models, metrics and tasks, the
    backends, the questions of the contests (in the cache, or on the hub), and the folders that a
    run writes to. Nothing is installed, fetched or changed.

    A check ends as ok, note (only some runs need it) or wrong (every run needs it). Below a problem
    stands the command that fixes it. The exit code is 1 if something is wrong.

    \b
    Examples:
      lm-eval-bayes doctor
      lm-eval-bayes doctor --offline --store /scratch/runs/aime25.sqlite --json
      lm-eval-bayes doctor logs/2026-05-01_gsm8k.eval board.csv
      lm-eval-bayes doctor --formats
    """
    if list_formats:
        _list_formats()
        return
    if files:
        _describe(files, as_json)
        return
    from lm_eval_bayes._util.validation import check_positive
    from lm_eval_bayes.harness.plugin import installed
    from lm_eval_bayes.harness.task import questions

    check_positive("--timeout", timeout)
    offline_variable = questions.offline()
    missing = [data for data in questions.needed() if not questions.is_cached(data)]
    reach = None if offline or offline_variable else questions.HubQuery(missing, timeout)
    has_harness = installed.harness_folder() is not None
    checks = {
        "packages": _packages(),
        "harness": _harness(installed.registered(IMPORT_TIMEOUT_S) if has_harness else None),
        "backends": _backends(),
        "questions": _questions(reach, offline_variable),
        "folders": _folders(),
        "store": () if store is None else _store(store),
    }
    findings = [(section, finding) for section, of in checks.items() for finding in of]
    n_wrong = sum(finding.state == "wrong" for _, finding in findings)
    if as_json:
        records = [{"section": section, **finding._asdict()} for section, finding in findings]
        say_json({"ok": not n_wrong, "findings": records})
    else:
        problems = plural(n_wrong, "problem") if n_wrong else "No problems"
        n_notes = sum(finding.state == "note" for _, finding in findings)
        say(f"{problems} in {plural(len(findings), 'check')}, {plural(n_notes, 'note')}.")
        form = Form.of_output()
        for _, finding in findings:
            say_sentence(f"{finding.state:5}  {finding.name}: {finding.detail}", form)
            if finding.fix is not None:  # on its own line, so that it can be copied
                say(f"    {finding.fix}")
    raise typer.Exit(CHECK_FAILED if n_wrong else 0)


# -- packages ------------------------------------------------------------------------------------


def _packages() -> Iterator[Finding]:
    from lm_eval_bayes import __version__

    python = f"{platform.python_version()}, {os.path.abspath(sys.executable)}"
    yield Finding("python", "ok", python)
    detail = f"{__version__}, {Path(__file__).resolve().parents[2]}"
    if version_of("lm-eval-bayes") is None:
        detail += " (not installed; imported from this path)"
    yield Finding("lm-eval-bayes", "ok", detail)
    for package in PACKAGES:
        version, oldest = version_of(package.name), package.oldest
        if version is not None and not (oldest and is_older(version, oldest)):
            yield Finding(package.name, "ok", version)
            continue
        problem = "not installed" if version is None else f"{version}, older than {oldest}"
        fix = pip_install(f"{package.name}>={oldest}" if oldest else package.name)
        yield Finding(
            package.name,
            "note" if package.extra else "wrong",
            f"{problem}; needed for {package.purpose}",
            pip_install_extra(package.extra) if package.extra else fix,
        )


# -- the harness ---------------------------------------------------------------------------------


def _harness(registered: Registered | None) -> Iterator[Finding]:
    from lm_eval_bayes.harness.plugin.installed import other_command

    version = version_of(HARNESS.distribution)
    install = pip_install(str(HARNESS))
    tested = f"this package is tested with {join_words(HARNESS.tested)}"
    finding = partial(Finding, "lm-eval")
    if registered is None:
        yield finding("wrong", "not installed; every run needs it", install)
        return
    if version is None:
        yield finding("note", f"of unknown version; {tested}")
    elif HARNESS.problem(version) is not None:
        yield finding("wrong", f"{version} is not supported; needed is {HARNESS}", install)
        return
    elif version in HARNESS.tested:
        yield finding("ok", f"{version}, supported")
    else:
        yield finding("note", f"{version}; {tested}")
    yield _plugin(registered)
    other = other_command()
    if other is not None:
        detail = f"{other} belongs to another Python, which may not have this package"
        fix = f"{shlex.quote(sys.executable)} -m lm_eval run --help"
        yield Finding("lm_eval on the PATH", "note", detail, fix)


def _plugin(registered: Registered) -> Finding:
    from lm_eval_bayes.harness.plugin import installed

    finding = partial(Finding, "plugin")
    if registered.error is not None:
        detail = f"the harness cannot be imported: {registered.error}"
        return finding("wrong", detail, f"{REINSTALL} '{HARNESS}'")
    if not registered.missing:
        if installed.watches():
            how = f"through the start-up file {installed.start_up_file() or ''}".rstrip()
        else:
            how = "registered at its import"
        components = f"{len(registered.names) - 1} components and the tasks"
        return finding("ok", f"lm_eval finds {components}, {how}")
    missing = ", ".join(registered.missing)
    alternative = "`python -m lm_eval_bayes run` and `lm-eval-bayes run` find everything"
    value = os.environ.get("LM_EVAL_BAYES_AUTOLOAD", "")
    # the rule of the boot module, which is no part of an installed package
    if value.strip().lower() in ("0", "false", "no", "off"):
        detail = f"switched off for lm_eval by LM_EVAL_BAYES_AUTOLOAD={value}; {alternative}"
        return finding("note", detail, "unset LM_EVAL_BAYES_AUTOLOAD")
    if version_of("lm-eval-bayes") is None:
        detail = f"lm_eval does not find it because it is not installed; {alternative}"
        return finding("note", detail, pip_install(own_source()))
    file = installed.start_up_file()
    reason = "its start-up file is missing" if file is None else f"{file} was not read"
    detail = f"lm_eval does not find {missing}: {reason}; {alternative}"
    return finding("wrong", detail, f"{REINSTALL} --no-deps {shlex.quote(own_source())}")


# -- backends ------------------------------------------------------------------------------------


def _backends() -> Iterator[Finding]:
    from lm_eval_bayes.harness.plugin.installed import BACKENDS, gpus

    for backend in BACKENDS:
        names = ", ".join(backend.names)
        missing = [name for name in backend.needs if version_of(name) is None]
        if missing:
            detail = f"cannot run without {join_words(missing)}"
            fix = pip_install_extra(backend.extra) if backend.extra else pip_install(*missing)
            yield Finding(names, "note", detail, fix)
        else:
            yield Finding(names, "ok", f"can run; records {backend.records}")
    if version_of("torch") is None:
        return
    if found := Counter(gpus()):
        names = ", ".join(f"{n} x {name}" for name, n in found.items())
        yield Finding("GPU", "ok", names)
    else:
        yield Finding("GPU", "note", "no GPU found; models run on the CPU, slowly")


# -- questions -----------------------------------------------------------------------------------


def _questions(reach: HubQuery | None, offline_variable: str | None) -> Iterator[Finding]:
    """Check the questions of the contests: in the cache, else on the hub if it was asked."""
    from lm_eval_bayes.harness.task import questions

    errors = None if reach is None else reach.results()
    for data in questions.needed():
        tasks = ", ".join(data.tasks)
        load = f"load_dataset({data.name!r}, revision={data.revision!r})"
        fetch = f'python -c "from datasets import load_dataset; {load}"'
        if questions.is_cached(data):
            yield Finding(data.name, "ok", f"in the cache, for {tasks}")
            continue
        if errors is not None:
            error = errors[data.name]
            if error is None:
                yield Finding(data.name, "ok", f"available on the hub, for {tasks}")
                continue
            reason = f"not available on the hub ({error})"
        elif offline_variable:
            reason = f"{offline_variable} forbids to fetch them"
            fetch = f"env -u {offline_variable} {fetch}"
        else:
            reason = "the hub was not asked"
        # a note: other tasks do without them
        yield Finding(data.name, "note", f"not in the cache, and {reason}; for {tasks}", fetch)


# -- folders -------------------------------------------------------------------------------------


def _folders() -> Iterator[Finding]:
    """Check the folders that a run writes to."""
    from lm_eval_bayes.harness.task.questions import cache_folder

    set_temporary = 'export TMPDIR="$HOME"'
    try:
        temporary = Path(tempfile.gettempdir())
    except OSError as error:
        detail = f"no temporary folder can be written to: {error.strerror or error}"
        yield Finding("temporary", "wrong", detail, set_temporary)
    else:
        yield _folder("temporary", temporary, set_temporary)
    yield _folder("questions", cache_folder(), 'export HF_HOME="$HOME/hf_home"')
    set_cache = 'export XDG_CACHE_HOME="$HOME/.cache"'
    hashes = _folder("hashes of weights", weight_hash_folder(), set_cache)
    # A run works without this cache: the hashes are computed again.
    yield hashes if hashes.state == "ok" else hashes._replace(state="note")


def _folder(name: str, folder: Path, fix: str) -> Finding:
    """Check that a folder can be written to, or made in the nearest folder that exists."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        detail = f"{folder} cannot be written to: {error.strerror or error}"
        return Finding(name, "wrong", detail, fix)
    free = shutil.disk_usage(existing).free
    state: State = "ok" if free >= LOW_SPACE_BYTES else "note"
    return Finding(name, state, f"{folder}, {format_bytes(free)} free")


def _store(path: Path) -> Iterator[Finding]:
    """Check the folder of a trial store, and the store if it exists."""
    from lm_eval_bayes._util.files import resolve_path
    from lm_eval_bayes.store.locations import is_store, network_warning
    from lm_eval_bayes.store.trial_store import TrialStore

    file = resolve_path(path)
    finding = partial(Finding, str(path))
    folder = shlex.quote(str(file.parent))
    if not file.parent.is_dir():
        yield finding("wrong", f"the folder {file.parent} does not exist", f"mkdir -p {folder}")
        return
    yield _folder("its folder", file.parent, f"chmod u+w {folder}")
    try:
        exists = is_store(file)
        if exists:
            TrialStore.open(file, mode="read").close()
    except LmEvalBayesError as error:
        fix = f"lm-eval-bayes store info --check {shlex.quote(str(file))}"
        yield finding("wrong", str(error), fix)
    else:
        size = f"a trial store, {format_bytes(file.stat().st_size)}" if exists else "a new file"
        yield finding("ok", size)
    warning = network_warning(file)
    if warning is not None:
        fix = "lm-eval-bayes store merge RANK0.sqlite RANK1.sqlite -o ALL.sqlite"
        yield Finding("file system", "note", warning, fix)


# -- files ----------------------------------------------------------------------------------------


def _list_formats() -> None:
    """List the files that every command reads."""
    from lm_eval_bayes.runs.readers.column_names import ALIASES
    from lm_eval_bayes.runs.readers.formats import FORMATS

    for format in FORMATS:
        say(f"{format.name}: {format.files}")
    say()
    say("columns of a table of trials, by what they hold (or --columns KIND=NAME):")
    for kind, aliases in ALIASES.items():
        say(f"  {kind}: {', '.join(aliases)}")


def _describe(paths: Sequence[Path], as_json: bool) -> None:
    """Show what every path is taken for: its format, models, tasks, questions and trials.

    Raises
    ------
    InvalidInputError
        After the last path, if one is of no format, or broken.
    """
    from lm_eval_bayes.store.locations import store_of

    records, errors = [], []
    # As in reading, the companions of a store that a shell names for runs/* are left out.
    for path in [path for path in paths if store_of(path) is None] or paths[:1]:
        try:
            record = _described(path)
        except InvalidInputError as error:
            errors.append(error)
            records.append({"path": str(path), "error": str(error)})
            if not as_json:
                warn(f"{one_line(path)}: {error}")
            continue
        records.append(record)
        if not as_json:
            _show(record)
    if as_json:
        say_json({"files": records})
    if errors:
        raise errors[0]


def _described(path: Path) -> dict[str, Any]:
    from lm_eval_bayes.runs.reader import read_runs
    from lm_eval_bayes.runs.readers.formats import recognise

    format, recognised = recognise(path)
    saved = read_runs([path], dedupe=True)
    return {
        "path": str(path),
        "format": format.name,
        "files": [str(file) for file in recognised.files],
        "runs": [
            {
                "model": run.model,
                "task": run.task,
                "questions": run.n_questions,
                "trials": run.n_trials,
                "metric": run.counted,
            }
            for run in saved.runs
        ],
        "notes": [*saved.notes, *saved.warnings],
    }


def _show(record: dict[str, Any]) -> None:
    say(f"{one_line(record['path'])}: {record['format']}, {plural(len(record['files']), 'file')}")
    for note in record["notes"]:
        warn(f"note: {note}")
    runs = record["runs"]
    say_table("", list(runs[0]), [tuple(run.values()) for run in runs])
    say()
