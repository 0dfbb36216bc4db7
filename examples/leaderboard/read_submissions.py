"""Read and check the submissions of a community leaderboard.

A submission is a stranger's: it is read as data, within limits, and whatever is wrong with it
leaves it out and nothing else. A model belongs to the folder that `owners.yaml` records for it.
"""

from __future__ import annotations

import json
import os
import re
import stat
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
import yaml

from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.outcomes import Outcomes

#: Plain text only: a compressed or binary file can unpack to any size.
SUFFIXES = (".csv", ".tsv", ".jsonl", ".json")
#: What a submission may have at most, where leaderboard.yaml says nothing else.
MOST_FILES, MOST_BYTES, MOST_TRIALS = 50, 20_000_000, 1_000
MOST_DESCRIBED = 10_000
LONGEST_LINK, LONGEST_REASON = 300, 300

FOLDER = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
FILE = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9._=+,@-]{0,199}")
#: ASCII alone: letters of other scripts look like Latin ones.
MODEL = re.compile(r"[A-Za-z0-9](?: ?[A-Za-z0-9._/()+:@-]){0,99}")
USER = re.compile(r"[A-Za-z0-9-]{1,39}")
LINK = re.compile(r"https://[A-Za-z0-9][A-Za-z0-9._~:/?#@!$&'*+,;=%-]*")


class LeftOut(Exception):
    """Why a submission does not count."""


@dataclass(frozen=True)
class Owner:
    """The model of a folder, and the GitHub user who may change it."""

    model: str
    owner: str


@dataclass(frozen=True)
class Submission:
    """A submission that can be read."""

    folder: str
    run: TaskRun
    owner: Owner
    link: str
    submitted_by: str


def plain(text: str) -> str:
    """Return a line of printable ASCII that a CI log does not read as a command."""
    safe = " !\"$&'()*+,/:;<=>?@[\\]^`{|}"
    line = quote(text.encode("utf-8", "surrogatepass"), safe=safe).replace("::", "%3A%3A")
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 3] + "..."


def collect(config: Mapping, owners: Mapping[str, Owner]) -> tuple[list[Submission], dict]:
    """Read all submissions; return those that count, and why the others do not."""
    folder = Path(config["submissions"])
    if folder.is_symlink():
        raise SystemExit(f"`submissions` must be a folder; {plain(str(folder))} is a link")
    questions = Path(config["questions"]).read_text(encoding="utf-8").split()
    taken: list[Submission] = []
    left_out: dict[str, str] = {}
    for name in sorted(name for name in os.listdir(folder) if not name.startswith(".")):
        try:
            submission = read_submission(folder / name, config, questions)
            check_owner(submission, owners)
            taken.append(submission)
        except (LeftOut, LmEvalBayesError) as error:
            left_out[name] = str(error)
        except Exception as error:
            # a stranger's file may break a reader in a way that nobody thought of
            left_out[name] = f"its files cannot be read ({type(error).__name__})"
    return without_new_doubles(taken, owners, left_out), left_out


# -- owners ---------------------------------------------------------------------------------------


def read_owners(path: Path) -> dict[str, Owner]:
    """Read owners.yaml: the model and the owner of every folder that has counted."""
    if not path.exists():
        return {}
    try:
        recorded = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        return {str(f): Owner(str(of["model"]), str(of["owner"])) for f, of in recorded.items()}
    except (yaml.YAMLError, ValueError, AttributeError, TypeError, KeyError):
        rule = "hold a `model` and an `owner` for every folder"
        raise SystemExit(f"{path.name} must {rule}; it is no YAML, or one is missing") from None


def appearance(model: str) -> str:
    """Return what names that are easily taken for one another have in common."""
    return re.sub(r"[ _()-]", "", model.lower()).translate(str.maketrans("01i", "oll"))


def same_user(one: str, other: str) -> bool:
    """Return whether two names of GitHub users are one user's: case does not count."""
    return one.lower() == other.lower()


def check_owner(submission: Submission, owners: Mapping[str, Owner]) -> None:
    """Refuse a recorded folder's new model or owner, and a new folder with a recorded model."""
    sent, recorded = submission.owner, owners.get(submission.folder)
    if recorded is not None:
        if sent.model != recorded.model or not same_user(sent.owner, recorded.owner):
            raise LeftOut(
                f"submission.yaml must name the model {recorded.model} and the owner "
                f"{recorded.owner}, as owners.yaml does; got {sent.model} of {sent.owner}"
            )
        return
    for folder, other in owners.items():
        if appearance(other.model) == appearance(sent.model):
            like = "" if other.model == sent.model else f"is too like {other.model}, which "
            raise LeftOut(
                f"the model {sent.model} {like}belongs to the folder {folder} of {other.owner}"
            )


def without_new_doubles(
    taken: list[Submission], owners: Mapping[str, Owner], left_out: dict[str, str]
) -> list[Submission]:
    """Leave out new folders that claim one model: the order of the alphabet decides nothing."""
    claims: dict[str, list[str]] = {}
    for submission in taken:
        claims.setdefault(appearance(submission.owner.model), []).append(submission.folder)
    doubles = {f: all_ for all_ in claims.values() if len(all_) > 1 for f in all_}
    counting = []
    for submission in taken:
        if submission.folder in owners or submission.folder not in doubles:
            counting.append(submission)
        else:
            claimed = " and ".join(doubles[submission.folder])
            left_out[submission.folder] = (
                f"the folders {claimed} claim one model, {submission.owner.model}, and owners.yaml "
                "records neither of them"
            )
    return counting


# -- one submission -------------------------------------------------------------------------------


def read_submission(path: Path, config: Mapping, questions: list[str]) -> Submission:
    """Read one folder."""
    files = checked_files(path, config.get("most_bytes", MOST_BYTES))
    about = described(path / "submission.yaml")
    owner = Owner(about["model"], about["owner"])
    outcomes = [file for file in files if file != path / "submission.yaml"]
    records = [file for file in outcomes if file.name.endswith("_samples.jsonl")]
    if records:
        run = every_eval_ever_run(records)
    else:
        logged = [file for file in outcomes if file.name.startswith("samples_")]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            saved = read_runs(logged or outcomes, argument=path.name)
        if len(saved.runs) != 1:
            raise LeftOut(f"it must be one model on one task; there are {len(saved.runs)} runs")
        run = saved.runs[0]
    check_outcomes(run, config, questions)
    link, sender = about.get("link", ""), about.get("submitted_by", "")
    return Submission(path.name, bare_run(run, owner.model, config, questions), owner, link, sender)


def checked_files(path: Path, most_bytes: int) -> list[Path]:
    """Return a submission's files before any is read; refuse links, odd names and floods."""
    if not FOLDER.fullmatch(path.name):
        raise LeftOut(
            "the folder's name must be 1 to 100 of the characters A-Z a-z 0-9 . _ -, begin with a "
            "letter or a digit, and have no two points in a row"
        )
    if path.is_symlink() or not path.is_dir():
        raise LeftOut("a submission must be a folder, not a file or a link")
    files: list[Path] = []
    total = 0
    for folder, folders, names in os.walk(path):
        for name in [*folders, *names]:
            file = Path(folder) / name
            if not FILE.fullmatch(name):
                raise LeftOut(f"the names in it must be of A-Z a-z 0-9 . _ = + , @ -; got {name}")
            found = file.lstat()
            if stat.S_ISLNK(found.st_mode):
                raise LeftOut(f"{name} is a link")
            files.append(file)
            if len(files) > MOST_FILES:
                raise LeftOut(f"it must have at most {MOST_FILES} files and folders; it has more")
            if stat.S_ISDIR(found.st_mode):
                continue
            if not stat.S_ISREG(found.st_mode):
                raise LeftOut(f"{name} is no regular file")
            if file != path / "submission.yaml" and file.suffix not in SUFFIXES:
                raise LeftOut(f"its files must be {', '.join(SUFFIXES)}; got {name}")
            total += found.st_size
            if total > most_bytes:
                raise LeftOut(f"it must have at most {most_bytes:,} bytes; it has more")
    return sorted(file for file in files if file.is_file())


def described(path: Path) -> dict[str, str]:
    """Read submission.yaml. Every value is a text, and no alias is followed."""
    try:
        if path.stat().st_size > MOST_DESCRIBED:
            raise LeftOut(f"submission.yaml must have at most {MOST_DESCRIBED:,} bytes")
        about = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        raise LeftOut("submission.yaml is missing, or no YAML in UTF-8") from None
    if not isinstance(about, dict):
        raise LeftOut("submission.yaml must hold names and values")
    for key, rule, form in (
        (
            "model",
            "begin with a letter or a digit, and be up to 100 of A-Z a-z 0-9 ._/()+:@-",
            MODEL,
        ),
        ("owner", "be the name of a GitHub user", USER),
        ("link", f"be an https address of at most {LONGEST_LINK} characters", LINK),
        ("submitted_by", "be one line of at most 100 characters", re.compile(".{1,100}")),
    ):
        value = about.get(key)
        if value is None and key in ("link", "submitted_by"):
            continue
        text = isinstance(value, str) and len(value) <= LONGEST_LINK and value.isprintable()
        if not text or not form.fullmatch(value) or (key == "model" and len(value) > 100):
            got = "nothing" if value is None else value if isinstance(value, str) else "no text"
            raise LeftOut(f"`{key}` in submission.yaml must {rule}; got {got[:100]}")
    return about


def check_outcomes(run: TaskRun, config: Mapping, questions: list[str]) -> None:
    """Refuse other scores than 0 and 1, other questions, and too few or too many trials."""
    if not run.binary or run.outcomes.weights.tolist() != [0.0, 1.0]:
        raise LeftOut("every trial must have the outcome 0 or 1; there are other scores")
    wrong = set(run.question_ids) ^ set(questions)
    if wrong:
        many = "1 question is" if len(wrong) == 1 else f"{len(wrong)} questions are"
        raise LeftOut(f"{many} missing or not of this leaderboard, such as {min(wrong)[:80]}")
    fewest, most = run.outcomes.trials_range
    least, highest = config.get("min_trials", 1), config.get("most_trials", MOST_TRIALS)
    if not least <= fewest <= most <= highest:
        raise LeftOut(
            f"every question must have {least} to {highest:,} trials; one has "
            f"{fewest if fewest < least else most:,}"
        )


def bare_run(run: TaskRun, model: str, config: Mapping, questions: list[str]) -> TaskRun:
    """Return the outcomes alone, in the order of the questions, under the checked names."""
    place = {question: i for i, question in enumerate(run.question_ids)}
    order = [place[question] for question in questions]
    if run.trials is not None:
        trials = [np.asarray(run.trials[i]) for i in order]
        return TaskRun.from_trials(model, config["title"], trials, questions)
    counts = run.outcomes.counts[order]
    outcomes = Outcomes.from_counts(counts, question_ids=tuple(questions))
    return TaskRun(model=model, task=config["title"], sources=(), outcomes=outcomes)


def every_eval_ever_run(records: list[Path]) -> TaskRun:
    """Read instance-level records of Every Eval Ever: a trial a line, its number in `metadata`."""
    trials: dict[str, dict[int, int]] = {}
    for path in records:
        try:
            text = path.read_text(encoding="utf-8")
        except ValueError:
            raise LeftOut(f"{path.name} must be UTF-8; it is not") from None
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                score, trial = record["evaluation"]["score"], str(record["metadata"]["trial"])
                question = record["sample_id"]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise LeftOut(f"line {number} of {path.name} is no record of a trial") from None
            if not isinstance(score, (int, float)) or score not in (0, 1):
                raise LeftOut(f"line {number} of {path.name} must have the score 0 or 1")
            if not re.fullmatch("[0-9]{1,9}", trial) or not isinstance(question, str):
                raise LeftOut(
                    f"line {number} of {path.name} must have a text as `sample_id` and a whole "
                    "number of up to 9 digits as `trial` in `metadata`"
                )
            if int(trial) in trials.setdefault(question, {}):
                raise LeftOut(f"trial {trial} of question {question[:80]} is there twice")
            trials[question][int(trial)] = int(score)
    in_order = [[of[trial] for trial in sorted(of)] for of in trials.values()]
    return TaskRun.from_trials("", "", in_order, list(trials))
