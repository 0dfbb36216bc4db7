"""Merge all submissions of a community leaderboard into one ranking page.

A submission is a folder with a `submission.yaml` (model, link, submitted_by) and the outcomes:
whatever `lm-eval-bayes` reads as a run (output of the harness, a matrix, counts), or what
`lm-eval-bayes export every-eval-ever --instances` wrote. What cannot be read is left out and
named, so that one broken submission does not take the page down.

    python build_page.py                       # write the page
    python build_page.py --check               # write nothing; exit code 1 if any is left out
    python build_page.py --config other.yaml
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from lm_eval_bayes.analysis.leaderboard import leaderboard
from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.export.files import write_files
from lm_eval_bayes.export.tables import markdown_cell, table_text
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.intervals import IntervalSpec

#: A submission is somebody else's: no more files and bytes than this, and no links.
MOST_FILES, MOST_BYTES = 50, 200_000_000
LONGEST_NAME = 100


class LeftOut(Exception):
    """Why a submission does not count."""


@dataclass(frozen=True)
class Submission:
    """A submission that counts."""

    folder: str
    run: TaskRun
    link: str
    submitted_by: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("leaderboard.yaml"))
    parser.add_argument("--check", action="store_true", help="only look; exit code 1 if any fails")
    args = parser.parse_args()
    config = yaml.safe_load(args.config.read_text(encoding="utf-8"))
    root = args.config.resolve().parent
    taken, left_out = collect(root / config["submissions"], config, root)
    for folder, why in left_out.items():
        print(f"left out: {folder}: {why}", file=sys.stderr)
    if args.check:
        print(f"{len(taken)} submissions count, {len(left_out)} do not")
        return 1 if left_out or not taken else 0
    if not taken:
        print("there is no submission that counts; the page stays as it is", file=sys.stderr)
        return 1
    board = leaderboard(
        [submission.run for submission in taken],
        IntervalSpec(config.get("level", 0.95), config.get("scope", "benchmark")),
        ties=config.get("ties", "simultaneous"),
    )
    folder = root / config["page"]
    texts = {
        "README.md": page(config, board, taken, left_out),
        "leaderboard.csv": table_text([board], "csv"),
        "leaderboard.json": table_text([board], "json"),
    }
    files = {folder / name: text.encode("utf-8", "replace") for name, text in texts.items()}
    write_files(files, overwrite=True)
    print(f"{folder / 'README.md'}: {len(taken)} models, {len(left_out)} submissions left out")
    return 0


# -- reading --------------------------------------------------------------------------------------


def collect(folder: Path, config: dict, root: Path) -> tuple[list[Submission], dict[str, str]]:
    """Read all submissions; return those that count, and why the others do not."""
    taken: list[Submission] = []
    left_out: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        try:
            submission = read_submission(path, config)
            if submission.run.model in {other.run.model for other in taken}:
                raise LeftOut(f"there is a submission of {submission.run.model} already")
            taken.append(submission)
        except (LeftOut, LmEvalBayesError) as error:
            left_out[path.name] = str(error)
    questions = questions_of(taken, config, root)
    for submission in list(taken):
        wrong = set(submission.run.question_ids) ^ questions
        if wrong:
            taken.remove(submission)
            many = "1 question is" if len(wrong) == 1 else f"{len(wrong)} questions are"
            left_out[submission.folder] = (
                f"{many} missing or not of this leaderboard, such as {min(wrong)}"
            )
    return taken, left_out


def questions_of(taken: list[Submission], config: dict, root: Path) -> set[str]:
    """Return the ids of the questions: those of the file, or those that most answered."""
    if config.get("questions"):
        return set((root / config["questions"]).read_text(encoding="utf-8").split())
    counted = Counter(frozenset(submission.run.question_ids) for submission in taken)
    return set(counted.most_common(1)[0][0]) if counted else set()


def read_submission(path: Path, config: dict) -> Submission:
    """Read one folder."""
    files = checked_files(path)
    about = described(path / "submission.yaml")
    name = about.get("model")
    if not isinstance(name, str) or not 0 < len(name.strip()) <= LONGEST_NAME:
        raise LeftOut(f"submission.yaml must name the model in up to {LONGEST_NAME} characters")
    records = [file for file in files if file.name.endswith("_samples.jsonl")]
    if records:
        run = every_eval_ever_run(records)
    else:
        outcomes = [f for f in files if f.name != "submission.yaml"]
        logged = [f for f in outcomes if f.name.startswith("samples_")]
        saved = read_runs(logged or outcomes, argument=path.name)
        if len(saved.runs) != 1:
            raise LeftOut(f"it must be one model on one task; there are {len(saved.runs)} runs")
        run = saved.runs[0]
    least = run.outcomes.trials_range[0]
    if least < config.get("min_trials", 1):
        raise LeftOut(f"every question needs {config['min_trials']} trials; one has {least}")
    link = about.get("link")
    return Submission(
        path.name,
        # the owner of the leaderboard says what the task is called, the sender what the model is
        replace(run, model=name.strip(), task=config["title"]),
        link if is_safe_link(link) else "",
        str(about.get("submitted_by") or "")[:LONGEST_NAME],
    )


def is_safe_link(link: object) -> bool:
    """Return whether a link may stand on the page: https, and nothing that ends it early."""
    if not isinstance(link, str) or not link.startswith("https://") or len(link) > 300:
        return False
    return link.isascii() and link.isprintable() and set(link).isdisjoint(' <>"()|`\\')


def checked_files(path: Path) -> list[Path]:
    """Return a submission's files; refuse links, which could lead anywhere, and floods."""
    if path.is_symlink() or not path.is_dir():
        raise LeftOut("a submission is a folder")
    files: list[Path] = []
    for folder, folders, names in os.walk(path):
        for name in [*folders, *names]:
            if (Path(folder) / name).is_symlink():
                raise LeftOut(f"{name} is a link")
        files += [Path(folder) / name for name in names]
    if len(files) > MOST_FILES or sum(file.stat().st_size for file in files) > MOST_BYTES:
        raise LeftOut(f"it has more than {MOST_FILES} files, or more than {MOST_BYTES:,} bytes")
    return sorted(files)


def described(path: Path) -> dict:
    """Read submission.yaml."""
    try:
        about = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        raise LeftOut("submission.yaml is missing, or no YAML") from None
    if not isinstance(about, dict):
        raise LeftOut("submission.yaml must hold names and values")
    return about


def every_eval_ever_run(records: list[Path]) -> TaskRun:
    """Read instance-level records of Every Eval Ever: a trial a line, its number in `metadata`."""
    trials: dict[str, dict[int, int]] = {}
    for path in records:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                record = json.loads(line)
                score, trial = record["evaluation"]["score"], int(record["metadata"]["trial"])
                question = str(record["sample_id"])
            except (ValueError, KeyError, TypeError, RecursionError):
                raise LeftOut(f"line {number} of {path.name} is no record of a trial") from None
            if score not in (0, 1):
                raise LeftOut(f"line {number} of {path.name} has the score {score!r}, not 0 or 1")
            if trial in trials.setdefault(question, {}):
                raise LeftOut(f"trial {trial} of question {question} is there twice")
            trials[question][trial] = int(score)
    in_order = [[of[trial] for trial in sorted(of)] for of in trials.values()]
    return TaskRun.from_trials("", "", in_order, list(trials))


# -- the page -------------------------------------------------------------------------------------


def page(config: dict, board, taken: list[Submission], left_out: dict[str, str]) -> str:
    """Write the page. Everything that came with a submission is escaped."""
    senders = [
        f"| {markdown_cell(row.run.model)} | {markdown_cell(row.submitted_by)} | "
        f"{f'<{row.link}>' if row.link else ''} | `{markdown_code(row.folder)}` |"
        for row in taken
    ]
    parts = [
        f"# {markdown_cell(config['title'])}",
        markdown_cell(config.get("about", "").strip()),
        table_text([board], "markdown").split("\n\n", 1)[1].strip(),
        "## P(row scores more than column)",
        pairs(board),
        "## Submissions",
        "\n".join(
            ["| Model | Sent by | Link | Folder |", "| :--- | :--- | :--- | :--- |", *senders]
        ),
    ]
    if left_out:
        reasons = [f"- `{markdown_code(f)}`: {markdown_cell(why)}" for f, why in left_out.items()]
        parts += ["## Left out", "\n".join(reasons)]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_code(text: str) -> str:
    """Return a name for between backticks in a cell."""
    return "".join(c if c.isalnum() or c in "._- " else "?" for c in text)


def pairs(board) -> str:
    """Return the table of P(A > B)."""
    names = [markdown_cell(name) for name in board.models]
    lines = [f"| | {' | '.join(names)} |", f"| :--- |{' ---: |' * len(names)}"]
    for i, name in enumerate(names):
        cells = ["" if i == j else f"{p:.2f}" for j, p in enumerate(board.p_greater[i].tolist())]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
