"""Recompute every row of a finished run from its logged outcomes, and say how far off it is.

    python tests/end_to_end/recompute.py OUTPUT_PATH

Reads the harness's results_*.json and samples_*.jsonl below OUTPUT_PATH. Standard library only, and
nothing of lm_eval_bayes: the formulas are written down a second time, from the papers. Exits with 1
if a row differs, is missing or is unknown, 2 if there is nothing to check.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from itertools import chain
from pathlib import Path
from typing import Any

from independent_rows import Bank, Question, Run

# What the harness itself keeps beside a task's rows.
NOT_ROWS = {"alias", "name", "sample_len", "sample_count"}


def read_questions(path: Path) -> dict[str, list[tuple[dict[str, Any], Question]]]:
    """Read one samples file: filter -> its questions, each with its whole log line."""
    found: dict[str, list[tuple[dict[str, Any], Question]]] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            errors = len(entry.get("grading_error_notes", {}))
            ended = entry.get("signals", {}).get("finish_reason", [])
            empty = sum(not text.strip() for text in chain.from_iterable(entry["resps"]))
            question = Question(
                entry["outcomes"], entry["answers"], errors, ended.count("length"), empty
            )
            found.setdefault(entry["filter"], []).append((entry, question))
    return found


def check_log_line(entry: dict[str, Any], settings: dict[str, Any], where: str, run: Run) -> None:
    """The log of a question must be whole: one outcome, answer and length for every response."""
    responses = list(chain.from_iterable(entry["resps"]))
    lengths = [len(str(text)) for text in responses]
    if entry["lengths"] != lengths:
        run.complaints.append(f"{where}: `lengths` {entry['lengths']} are not those of `resps`")
    for key in ("outcomes", "answers", *entry["metrics"]):
        if len(entry[key]) != len(responses):
            run.complaints.append(
                f"{where}: {len(entry[key])} {key} for {len(responses)} responses"
            )
    if len(responses) != settings["n"]:
        run.complaints.append(f"{where}: {len(responses)} responses, but N = {settings['n']}")
    if rows := [name for name in entry if re.search(r"@\d", name)]:
        run.complaints.append(f"{where}: rows of the run stand in the line: {rows}")
    for metric in entry["metrics"]:
        if set(settings["weights"]) == {0, 1} and metric == settings.get("metric"):
            values = [int(value or 0) for value in entry[metric]]
            if values != entry["outcomes"]:
                run.complaints.append(f"{where}: {metric} {values} are not the outcomes")
    if not all(0 <= c < len(settings["weights"]) for c in entry["outcomes"]):
        run.complaints.append(f"{where}: outcomes outside the categories: {entry['outcomes']}")


def check_task(task: str, results: dict[str, Any], samples: Path, run: Run) -> None:
    settings = results["configs"][task]["metadata"]["bayes"]
    rows = {
        f"{row},{name}": value
        for name, of_filter in results["posterior"][task].items()
        for row, value in of_filter.items()
    }
    expected: set[str] = set()
    table: list[str] = []
    for name, entries in read_questions(samples).items():
        ids = [entry["doc_id"] for entry, _ in entries]
        if len(set(ids)) != len(ids):
            run.complaints.append(f"{task},{name}: a question stands in the log twice")
        bank = Bank([q for _, q in entries], settings)
        for kind, row, own in bank.rows():
            expected.add(f"{row},{name}")
            where = f"{task}: {row},{name}"
            value = rows.get(f"{row},{name}", "missing")
            run.compare(kind, where, value, own, bank.tolerance(run, kind))
        for entry, _ in entries:
            check_log_line(entry, settings, f"{task}: question {entry['doc_id']},{name}", run)
        table += [f"{row},{name}" for row in bank.printed()]
    check_family(task, rows, expected, settings, run)
    check_unknown(task, rows, expected, run)
    check_table(task, results["results"][task], rows, table, run)


def check_table(
    task: str, printed: dict[str, Any], rows: dict[str, Any], table: list[str], run: Run
) -> None:
    """The harness's table has the short rows in their order, with the numbers of all rows."""
    keys = [key for key in printed if key not in NOT_ROWS and "rubric_" not in key]
    if keys != table:
        run.complaints.append(f"{task}: the table has {keys}, not {table}")
    for key in keys:
        run.compare("table", f"{task}: {key}", printed[key], rows.get(key, math.nan), 0.0)


def check_family(
    task: str, printed: dict[str, Any], expected: set[str], settings: dict[str, Any], run: Run
) -> None:
    """Check that the pass family and maj@k have posterior rows with an sd and a fitting interval.

    At N, which the table shows, there may be the estimate alone. The posterior is not recomputed
    here; an interval of 95% is 1 to 6 sd wide and holds the mean.
    """
    n = settings["n"]
    without = {f"pass@{n}"} if n not in settings["k"] else set()
    without |= {f"maj@{n}"} if n != settings["maj_k"] else set()
    for key in sorted(expected):
        row, _, filter_name = key.partition(",")
        if not re.fullmatch(r"(pass[@^]|m?g-pass@|maj@)\d+(_[\d.]+)?", row):
            continue
        if row in without:
            continue
        names = [f"h{row}{end},{filter_name}" for end in ("", "_stderr", "_low", "_high")]
        expected.update(names)
        values = [printed.get(name) for name in names]
        if not all(isinstance(value, float) for value in values):
            run.complaints.append(f"{task}: {names} must be numbers: {values}")
            continue
        mean, sd, low, high = values
        if not (0 <= low < mean < high <= 1 and sd > 0 and sd < high - low < 6 * sd):
            run.complaints.append(f"{task}: {names} do not fit each other: {values}")
        run.compared += 4


def check_unknown(task: str, printed: dict[str, Any], expected: set[str], run: Run) -> None:
    for key, value in printed.items():
        if key not in expected and "rubric_" not in key:
            run.complaints.append(f"{task}: unknown row {key} = {value!r}")


def check_scores(task: str, results: dict[str, Any], samples: Path, run: Run) -> None:
    """Recompute avg@N of scores with its standard error; hbayes@N lies between bounds and fits it.

    The values of the task's first metric are the scores; the standard error is that of the mean of
    the questions' means, with the variance within questions pooled over them.
    """
    metadata = results["configs"][task]["metadata"]
    metric, (low, high) = next(iter(metadata["lm_eval_bayes"]["bounds"].items()))
    n = metadata["bayes"]["n"]
    lines = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    for name in {line["filter"] for line in lines}:
        scores = [line[metric] for line in lines if line["filter"] == name]
        means = [math.fsum(row) / len(row) for row in scores]
        squares = math.fsum((x - m) ** 2 for m, row in zip(means, scores, strict=True) for x in row)
        variance = squares / sum(len(row) - 1 for row in scores)
        error = math.sqrt(variance * sum(1 / len(row) for row in scores)) / len(scores)
        rows, where = results["posterior"][task][name], f"{task}: avg@{n},{name}"
        run.compare("avg", where, rows[f"avg@{n}"], math.fsum(means) / len(means), run.tolerance)
        run.compare("avg sd", where, rows[f"avg@{n}_stderr"], error, run.tolerance)
        mu, ends = rows[f"hbayes@{n}"], [rows[f"hbayes@{n}_{end}"] for end in ("low", "high")]
        if not (low <= ends[0] < mu < ends[1] <= high and abs(mu - rows[f"avg@{n}"]) < 3 * error):
            run.complaints.append(f"{task}: hbayes@{n},{name} does not fit: {mu}, {ends}")
        stems = [f"hbayes@{n}{end}" for end in ("", "_stderr", "_low", "_high")]
        table = [f"{row},{name}" for row in (*stems, f"avg@{n}", f"avg@{n}_stderr")]
        check_table(
            task, results["results"][task], {f"{r},{name}": rows[r] for r in rows}, table, run
        )


def check_group(group: str, tasks: list[str], results: dict[str, Any], run: Run) -> None:
    """A group's rows are means of its tasks' rows, with equal weights or by numbers of questions.

    The tasks' trials are independent: sds add in squares. Those of hbayes@N share a prior, which is
    not recomputed: they lie among the tasks'.
    """
    sizes = [results["n-samples"][task]["effective"] for task in tasks]
    for name, rows in results["posterior"][group].items():
        own = [results["posterior"][task][name] for task in tasks]
        fits = []
        for weights in ([1.0] * len(tasks), sizes):
            shares, trial = [w / sum(weights) for w in weights], Run()
            for row, value in rows.items():
                values = [of_task[row] for of_task in own]
                where = f"{group}: {row},{name}"
                if row.endswith(("_low", "_high")):
                    continue
                if row.startswith("hbayes@"):
                    inside = row.endswith("_stderr") or min(values) <= value <= max(values)
                    trial.compare("group", where, value, value if inside else math.nan, 0.0)
                    continue
                mean = math.fsum(w * v for w, v in zip(shares, values, strict=True))
                if row.endswith("_stderr"):
                    mean = math.hypot(*(w * v for w, v in zip(shares, values, strict=True)))
                trial.compare("group", where, value, mean, run.tolerance)
            fits.append(trial)
        best = min(fits, key=lambda trial: len(trial.complaints))
        run.compared += best.compared
        run.complaints += best.complaints


def check_results(path: Path, run: Run) -> int:
    """Check one results file; return how many tasks of ours it holds."""
    results = json.loads(path.read_text(encoding="utf-8"))
    stamp = path.stem.removeprefix("results_")
    checked = 0
    for task, config in results["configs"].items():
        if "bayes" not in ((config or {}).get("metadata") or {}):
            continue
        samples = path.with_name(f"samples_{task}_{stamp}.jsonl")
        if not samples.exists():
            run.complaints.append(
                f"{task}: no {samples.name}; was the run made with --log_samples?"
            )
            continue
        scored = config["metadata"].get("lm_eval_bayes", {}).get("bounds")
        (check_scores if scored else check_task)(task, results, samples, run)
        checked += 1
    for group in results["posterior"].keys() - results["configs"].keys():
        check_group(group, results["group_subtasks"][group], results, run)
    return checked


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="the folder given to --output_path")
    args = parser.parse_args(argv)
    run = Run()
    files = sorted(args.output.rglob("results_*.json"))
    tasks = sum(check_results(path, run) for path in files)
    for kind, (difference, where) in sorted(run.worst.items()):
        print(f"{kind:36} worst difference {difference:.1e}  ({where})")
    for complaint in run.complaints:
        print(f"MISMATCH {complaint}", file=sys.stderr)
    if tasks == 0:
        print(f"{args.output}: nothing to check in {len(files)} results files", file=sys.stderr)
        return 2 if not run.complaints else 1
    print(f"{run.compared} values of {tasks} tasks recomputed, {len(run.complaints)} complaints")
    return 1 if run.complaints else 0


if __name__ == "__main__":
    raise SystemExit(main())
