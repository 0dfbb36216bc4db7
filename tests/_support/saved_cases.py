"""One model's trials, saved in every way in which a user may have them: real runs, copied.

A model that tosses coins answers the demo task's questions eight times: in one run, and in two
slices of four trials, as the jobs of an array make them. A weaker and a stronger model answer
the same questions.
"""

from __future__ import annotations

import json
import runpy
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from _support.harness_command import few_tasks

TASK = "demo_arithmetic_bayes"
#: Questions that are asked, and trials of each.
QUESTIONS, N = 16, 8
MODELS = {"model": "beta=2:3", "weaker": "beta=1:9", "stronger": "beta=8:2"}
JOBS = {"job0": "0:4", "job1": "4:8"}


@dataclass(frozen=True)
class SavedCase:
    """Files that hold one model's trials, and what every command should make of them.

    Attributes
    ----------
    root : Path
        The folder that holds all of `runs`.
    runs : tuple of Path
        What a command is given.
    others : tuple of Path
        Runs of the weaker and of the stronger model on the same questions.
    single : Path or None
        The one path that stands for `runs` where a command takes one path for a model; None
        where no path does, since no command looks for stores in a folder.
    like : str
        The case whose plain files hold the same trials.
    questions : int
        How many questions were answered.
    options : tuple of str
        Further options of every command.
    mentions : tuple of str
        What the warnings and notes name; there are none where this is empty.
    refused : bool
        Whether the files are refused, since every trial is in two of them.
    """

    root: Path
    runs: tuple[Path, ...]
    others: tuple[Path, ...]
    single: Path | None
    like: str = "one run"
    questions: int = QUESTIONS
    options: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    refused: bool = False


def run_harness(*arguments: object) -> None:
    """Run `python -m lm_eval_bayes run` in this process."""
    with few_tasks(), pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("default")
        patch.setattr(sys, "argv", ["lm_eval_bayes", "run", *map(str, arguments)])
        runpy.run_module("lm_eval_bayes", run_name="__main__", alter_sys=True)


def sample_runs(folder: Path) -> Path:
    """Run the models; every run leaves an output folder and a trial store of the same name."""

    def sample(name: str, model: str, n: int, **settings: str) -> None:
        settings = {"backend": "biased_coin", "store": str(folder / f"{name}.sqlite"), **settings}
        run_harness(
            *("--model", "trials", "--tasks", TASK, "--metadata", json.dumps({"bayes_n": n})),
            *("--model_args", ",".join([model, *(f"{k}={v}" for k, v in settings.items())])),
            *("--output_path", folder / name, "--log_samples", "--limit", QUESTIONS),
        )
        _ask_all(folder / name, QUESTIONS)

    for name, model in MODELS.items():
        sample(name, model, N)
    for name, trials in JOBS.items():
        sample(name, MODELS["model"], N // len(JOBS), trials=trials)
    return folder


def samples_in(folder: Path) -> Path:
    """Return the only log of samples in a folder."""
    (path,) = folder.rglob("samples_*.jsonl")
    return path


def results_in(folder: Path) -> Path:
    """Return the only file of results in a folder."""
    (path,) = folder.rglob("results_*.json")
    return path


def _ask_all(folder: Path, questions: int) -> None:
    """Have a file of results say that the task has no more questions than these.

    Otherwise a note on every run says how many of the task's questions were asked.
    """
    results = results_in(folder)
    content = json.loads(results.read_text(encoding="utf-8"))
    content["n-samples"][TASK] = {"original": questions, "effective": questions}
    results.write_text(json.dumps(content), encoding="utf-8")


def _copy(sampled: Path, name: str, target: Path) -> Path:
    return Path(shutil.copytree(sampled / name, target))


def _copy_store(sampled: Path, root: Path) -> Path:
    """Copy a store with its write-ahead log, which lasts as long as a connection is open."""
    for file in sampled.glob("model.sqlite*"):
        shutil.copy(file, root / file.name.replace("model", "run"))
    return root / "run.sqlite"


def _others(sampled: Path) -> tuple[Path, ...]:
    return sampled / "weaker", sampled / "stronger"


def _one_run(sampled: Path, root: Path) -> SavedCase:
    run = _copy(sampled, "model", root / "run")
    return SavedCase(root, (run,), _others(sampled), run)


def _one_question_less(sampled: Path, root: Path) -> SavedCase:
    """Copy the runs as they would be if the last question had never been asked."""
    runs = [_copy(sampled, name, root / name) for name in MODELS]
    for folder in runs:
        log = samples_in(folder)
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
        _ask_all(folder, QUESTIONS - 1)
    return SavedCase(root, (runs[0],), tuple(runs[1:]), runs[0], questions=QUESTIONS - 1)


def _slices_in_one_folder(sampled: Path, root: Path) -> SavedCase:
    run = root / "run"
    run.mkdir()
    for job in JOBS:
        for file in (samples_in(sampled / job), results_in(sampled / job)):
            shutil.copy(file, run)
    mentions = tuple(samples_in(sampled / job).name for job in JOBS)
    return SavedCase(root, (run,), _others(sampled), run, mentions=mentions)


def _slices_in_two_folders(sampled: Path, root: Path) -> SavedCase:
    runs = tuple(_copy(sampled, job, root / job) for job in JOBS)
    return SavedCase(root, runs, _others(sampled), root, mentions=tuple(JOBS))


def _trial_store(sampled: Path, root: Path) -> SavedCase:
    store = _copy_store(sampled, root)
    return SavedCase(root, (store,), _others(sampled), store)


def _store_and_companions(sampled: Path, root: Path) -> SavedCase:
    """Name all that lies in a store's folder, as a shell does for `runs/*`."""
    store = _copy_store(sampled, root)
    (root / "run.sqlite.processes.0a1b2c3d.json").write_text("{}", encoding="utf-8")
    (root / "run.sqlite-journal").touch()
    files = tuple(sorted(root.iterdir()))
    assert len(files) > 2
    return SavedCase(root, files, _others(sampled), store)


def _folder_and_store(sampled: Path, root: Path) -> SavedCase:
    run = _copy(sampled, "model", root / "run")
    store = _copy_store(sampled, root)
    return SavedCase(root, (run, store), _others(sampled), None, refused=True)


def _folder_and_store_deduplicated(sampled: Path, root: Path) -> SavedCase:
    case = _folder_and_store(sampled, root)
    mentions = (str(N * QUESTIONS), *map(str, case.runs))
    return replace(case, options=("--dedupe",), mentions=mentions, refused=False)


def _last_line_cut_off(sampled: Path, root: Path) -> SavedCase:
    case = _one_question_less(sampled, root)
    run = _copy(sampled, "model", root / "run")
    log = samples_in(run)
    log.write_bytes(log.read_bytes()[:-40])
    mentions = (log.name, str(QUESTIONS), str(QUESTIONS - 1))
    return replace(case, runs=(run,), single=run, like="one question less", mentions=mentions)


def _run_logged_twice(sampled: Path, root: Path) -> SavedCase:
    """Copy a run's files under the names that a thousand years later they would have got."""
    run = _copy(sampled, "model", root / "run")
    log = samples_in(run)
    for file in (log, results_in(run)):
        shutil.copy(file, file.with_name(file.name.replace("_20", "_30")))
    return SavedCase(root, (run,), _others(sampled), run, mentions=(log.name,))


def _samples_copied(sampled: Path, root: Path) -> SavedCase:
    """Copy the log alone, as a file manager names copies."""
    run = _copy(sampled, "model", root / "run")
    log = samples_in(run)
    duplicate = Path(shutil.copy(log, log.with_name(f"{log.stem} (1).jsonl")))
    return SavedCase(root, (run,), _others(sampled), run, mentions=(duplicate.name,))


def _slices_without_results(sampled: Path, root: Path) -> SavedCase:
    """Copy the logs of two slices without their results, into folders named as the model is."""
    for job in JOBS:
        folder = root / job / f"biased_coin {MODELS['model']}"
        folder.mkdir(parents=True)
        shutil.copy(samples_in(sampled / job), folder)
    runs = tuple(root / job for job in JOBS)
    mentions = tuple(str(samples_in(run)) for run in runs)
    return SavedCase(root, runs, _others(sampled), root, mentions=mentions)


def _copy_of_another_name(sampled: Path, root: Path) -> SavedCase:
    """Copy the log alone under a name that does not begin as those of logs do."""
    run = _copy(sampled, "model", root / "run")
    log = samples_in(run)
    duplicate = Path(shutil.copy(log, log.with_name(f"Copy of {log.name}")))
    return SavedCase(root, (run,), _others(sampled), run, mentions=(duplicate.name,))


def _with_and_without_wrapper(sampled: Path, root: Path) -> SavedCase:
    """Copy the results of one of two slices as those of the backend without our wrapper."""
    case = _slices_in_two_folders(sampled, root)
    results = results_in(case.runs[0])
    content = json.loads(results.read_text(encoding="utf-8"))
    arguments = content["config"]["model_args"]
    content["config"]["model"] = arguments.pop("backend")
    del arguments["store"]
    results.write_text(json.dumps(content), encoding="utf-8")
    return case


def _folder_copied(sampled: Path, root: Path) -> SavedCase:
    runs = tuple(_copy(sampled, "model", root / name) for name in ("run", "run (1)"))
    return SavedCase(root, runs, _others(sampled), root, refused=True)


def _two_filters(sampled: Path, root: Path) -> SavedCase:
    """Log a second filter behind the first; it leaves nothing of any answer."""
    run = _copy(sampled, "model", root / "run")
    log = samples_in(run)
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    strict = {"filter": "strict", "outcomes": [0] * N, "answers": [None] * N}
    rows += [{**row, **strict} for row in rows]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return SavedCase(root, (run,), _others(sampled), run, mentions=("none", "strict"))


def _folder_renamed(sampled: Path, root: Path) -> SavedCase:
    run = _copy(sampled, "model", root / "org__another-model")
    (folder,) = run.iterdir()
    folder.rename(run / "org__a-third-model")
    return SavedCase(root, (run,), _others(sampled), run)


#: Plain files, with which the cases are compared.
PLAIN: dict[str, Callable[[Path, Path], SavedCase]] = {
    "one run": _one_run,
    "one question less": _one_question_less,
}
#: Functions of the folder that `sample_runs` returns and of an empty one.
CASES: dict[str, Callable[[Path, Path], SavedCase]] = {
    "slices in one folder": _slices_in_one_folder,
    "slices in two folders": _slices_in_two_folders,
    "trial store": _trial_store,
    "trial store and its companions": _store_and_companions,
    "folder and store": _folder_and_store,
    "folder and store, deduplicated": _folder_and_store_deduplicated,
    "last line cut off": _last_line_cut_off,
    "run logged twice": _run_logged_twice,
    "samples copied": _samples_copied,
    "slices without results": _slices_without_results,
    "copy of another name": _copy_of_another_name,
    "slices with and without --model trials": _with_and_without_wrapper,
    "folder copied": _folder_copied,
    "two filters": _two_filters,
    "folder renamed": _folder_renamed,
}
