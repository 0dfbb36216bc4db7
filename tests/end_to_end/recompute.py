"""Recompute every row of a finished run from its logged outcomes, and say how far off it is.

    python tests/end_to_end/recompute.py OUTPUT_PATH [--interval-tolerance 1e-5]

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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import independent_interval as interval

# What the harness itself keeps beside a task's rows.
NOT_ROWS = {"alias", "name", "sample_len", "sample_count"}


@dataclass
class Run:
    """What the command line asked for, and what was found."""

    tolerance: float
    interval_tolerance: float
    compared: int = 0
    complaints: list[str] = field(default_factory=list)
    worst: dict[str, tuple[float, str]] = field(default_factory=dict)

    def compare(self, kind: str, where: str, printed: Any, own: float, tolerance: float) -> None:
        self.compared += 1
        if not isinstance(printed, (int, float)) or isinstance(printed, bool):
            self.complaints.append(f"{where}: {printed!r} is no number; recomputed {own!r}")
            return
        if math.isnan(own) and math.isnan(printed):
            return
        difference = abs(printed - own)
        if not difference <= tolerance:
            self.complaints.append(f"{where}: printed {printed!r}, recomputed {own!r}")
        if not difference <= self.worst.get(kind, (-1.0, ""))[0]:
            self.worst[kind] = (difference, where)


@dataclass
class Question:
    """The trials of one question as they stand in the log."""

    outcomes: list[int]
    answers: list[str | None]
    grading_errors: int


class Bank:
    """Questions with one set of settings: what a row is computed from."""

    def __init__(self, questions: Sequence[Question], settings: dict[str, Any]) -> None:
        self.questions = questions
        self.settings = settings
        self.weights = [float(w) for w in settings["weights"]]
        self.counts = [
            [q.outcomes.count(category) for category in range(len(self.weights))] for q in questions
        ]

    # -- Bayes@N [Hariri 2026, Alg. 1] in exact fractions, rounded once at the end ----

    def posterior(self, *, as_average: bool = False) -> tuple[float, float]:
        weights = [Fraction(w) for w in self.weights]
        mean, variance = Fraction(0), Fraction(0)
        for row in self.counts:
            trials = sum(row)
            size = trials + len(row)
            m = sum(w * (n + 1) for w, n in zip(weights, row, strict=True)) / Fraction(size)
            square = sum(w * w * (n + 1) for w, n in zip(weights, row, strict=True)) / Fraction(
                size
            )
            v = (square - m * m) / (size + 1)
            if as_average:
                mean += sum(w * n for w, n in zip(weights, row, strict=True)) / Fraction(trials)
                variance += v * Fraction(size, trials) ** 2
            else:
                mean += m
                variance += v
        count = len(self.counts)
        return float(mean / count), math.sqrt(variance) / count

    def bounds(self) -> tuple[float, float]:
        method, level = self.settings["interval"], self.settings["level"]
        floor, top = min(self.weights), max(self.weights)
        mu, sigma = self.posterior()
        if method == "normal":
            return interval.normal(mu, sigma, level, floor, top)
        if method == "beta":
            return interval.moment_matched(mu, sigma, level, floor, top)
        if len(self.weights) > 2:
            return interval.drawn(self.counts, self.weights, level)
        up = self.weights[1] > self.weights[0]
        counts = [(row[1], row[0]) if up else (row[0], row[1]) for row in self.counts]
        ends = (interval.shortest if method == "hdi" else interval.exact)(counts, level)
        return floor + (top - floor) * ends[0], floor + (top - floor) * ends[1]

    # -- the Pass@k family: a random k-subset without repetition ------------------------

    def at_least(self, j: int, k: int) -> float:
        """The chance, averaged over questions, that at least j of k trials are right."""
        total = Fraction(0)
        for wrong, right in self.counts:
            ways = sum(
                math.comb(right, i) * math.comb(wrong, k - i) for i in range(j, min(k, right) + 1)
            )
            total += Fraction(ways, math.comb(right + wrong, k))
        return float(total / len(self.counts))

    def g_pass(self, k: int, tau: str) -> float:
        return self.at_least(max(1, math.ceil(Fraction(tau) * k)), k)

    def mg_pass(self, k: int) -> float:
        return 2 / k * math.fsum(self.at_least(i, k) for i in range((k + 1) // 2 + 1, k + 1))

    def majority(self, k: int) -> float:
        votes = (majority_credit(q.outcomes, q.answers, k) for q in self.questions)
        return float(sum(votes, Fraction(0)) / len(self.questions))

    def rows(self) -> Iterator[tuple[str, str, float]]:
        """Yield (kind, name, value) of every row that a run with these settings has."""
        n = self.settings["n"]
        fewest = min(sum(row) for row in self.counts)
        mu, sigma = self.posterior()
        low, high = self.bounds()
        yield "bayes", f"bayes@{n}", mu
        yield "bayes sd", f"bayes@{n}_stderr", sigma
        yield "interval", f"bayes@{n}_low", low
        yield "interval", f"bayes@{n}_high", high
        average, spread = self.posterior(as_average=True)
        yield "avg", f"avg@{n}", average
        yield "avg sd", f"avg@{n}_stderr", spread
        if len(self.weights) == 2:
            tau = repr(self.settings["tau"])
            for k in self.settings["k"]:
                there = k <= fewest  # a run that lost trials has no estimate at this k
                yield "pass@k", f"pass@{k}", self.at_least(1, k) if there else math.nan
                if k == 1:
                    continue
                yield "pass^k", f"pass^{k}", self.at_least(k, k) if there else math.nan
                name = f"g-pass@{k}_{self.settings['tau']:g}"
                yield "g-pass@k", name, self.g_pass(k, tau) if there else math.nan
                yield "mg-pass@k", f"mg-pass@{k}", self.mg_pass(k) if there else math.nan
            k = self.settings["maj_k"]
            yield "maj@k", f"maj@{k}", self.majority(k) if k <= fewest else math.nan
        yield "errors", "grading_errors", float(sum(q.grading_errors for q in self.questions))

    def tolerance(self, run: Run, kind: str) -> float:
        if kind != "interval" or self.settings["interval"] in ("normal", "beta"):
            return run.tolerance
        if len(self.weights) > 2:
            return 0.15 * self.posterior()[1]  # two Monte-Carlo answers, 8000 draws and theirs
        if self.settings["interval"] == "hdi":
            # Near its optimum the shortest interval slides without getting longer, so its ends
            # are known less well than its length and its mass: see `compare_shortest`.
            return 0.01 * self.posterior()[1]
        return run.interval_tolerance

    def compare_shortest(self, where: str, low: Any, high: Any, run: Run) -> None:
        """Compare the length and the mass of a printed highest-density interval."""
        if self.settings["interval"] != "hdi" or len(self.weights) > 2:
            return
        floor, top = min(self.weights), max(self.weights)
        own = self.bounds()
        run.compare("hdi length", where, high - low, own[1] - own[0], run.interval_tolerance)
        if self.weights[1] > self.weights[0]:
            mass = interval.mean_distribution([(row[1], row[0]) for row in self.counts])
            held = mass((high - floor) / (top - floor)) - mass((low - floor) / (top - floor))
            run.compare("hdi mass", where, held, self.settings["level"], 1e-4)


def majority_credit(outcomes: Sequence[int], answers: Sequence[str | None], k: int) -> Fraction:
    """Expected credit of a plurality vote over a random k-subset of one question's trials.

    All right answers say the same thing and are one candidate. A trial without an answer abstains;
    candidates that tie for the first place share the credit. Counted, not enumerated: `ways[v, t]`
    is the number of ways in which the wrong candidates cast v votes, none more than the right one's
    r, and t of them exactly r.
    """
    right = sum(1 for c in outcomes if c)
    wrong = Counter(a for c, a in zip(outcomes, answers, strict=True) if not c)
    silent = wrong.pop(None, 0)
    credit = Fraction(0)
    for r in range(1, min(right, k) + 1):
        ways = Counter({(0, 0): 1})
        for size in wrong.values():
            more: Counter[tuple[int, int]] = Counter()
            for (votes, ties), count in ways.items():
                for cast in range(min(size, r, k - r - votes) + 1):
                    more[votes + cast, ties + (cast == r)] += count * math.comb(size, cast)
            ways = more
        for (votes, ties), count in ways.items():
            rest = k - r - votes
            credit += Fraction(count * math.comb(right, r) * math.comb(silent, rest), 1 + ties)
    return credit / math.comb(len(outcomes), k)


# -- the files of a run -----------------------------------------------------------------------


def read_questions(path: Path) -> dict[str, list[tuple[dict[str, Any], Question]]]:
    """Read one samples file: filter -> its questions, each with its whole log line."""
    found: dict[str, list[tuple[dict[str, Any], Question]]] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            errors = int(entry["grading_errors"])
            question = Question(entry["outcomes"], entry["answers"], errors)
            found.setdefault(entry["filter"], []).append((entry, question))
    return found


def check_log_line(entry: dict[str, Any], settings: dict[str, Any], where: str, run: Run) -> None:
    """The log of a question must be whole: one outcome, answer and length for every response."""
    responses = list(chain.from_iterable(entry["resps"]))
    lengths = [len(str(text)) for text in responses]
    if entry["lengths"] != lengths:
        run.complaints.append(f"{where}: `lengths` {entry['lengths']} are not those of `resps`")
    for key in ("outcomes", "answers"):
        if len(entry[key]) != len(responses):
            run.complaints.append(
                f"{where}: {len(entry[key])} {key} for {len(responses)} responses"
            )
    if len(responses) != settings["n"]:
        run.complaints.append(f"{where}: {len(responses)} responses, but N = {settings['n']}")
    if not all(0 <= c < len(settings["weights"]) for c in entry["outcomes"]):
        run.complaints.append(f"{where}: outcomes outside the categories: {entry['outcomes']}")


def check_task(task: str, results: dict[str, Any], samples: Path, run: Run) -> dict[str, Bank]:
    settings = results["configs"][task]["metadata"]["bayes"]
    printed = dict(results["results"][task])
    banks: dict[str, Bank] = {}
    expected: set[str] = set()
    for name, entries in read_questions(samples).items():
        ids = [entry["doc_id"] for entry, _ in entries]
        if len(set(ids)) != len(ids):
            run.complaints.append(f"{task},{name}: a question stands in the log twice")
        bank = banks[name] = Bank([q for _, q in entries], settings)
        for kind, row, own in bank.rows():
            expected.add(f"{row},{name}")
            where = f"{task}: {row},{name}"
            value = printed.get(f"{row},{name}", "missing")
            run.compare(kind, where, value, own, bank.tolerance(run, kind))
        ends = [printed.get(f"bayes@{settings['n']}_{end},{name}") for end in ("low", "high")]
        if all(isinstance(end, float) for end in ends):
            bank.compare_shortest(f"{task}: interval,{name}", *ends, run)
        for entry, question in entries:
            where = f"{task}: question {entry['doc_id']},{name}"
            check_log_line(entry, settings, where, run)
            single = Bank([question], settings)
            for kind, row, own in single.rows():
                if row in entry:
                    limit = single.tolerance(run, kind)
                    run.compare(f"{kind}, one question", f"{where}: {row}", entry[row], own, limit)
    check_unknown(task, printed, expected, run)
    return banks


def check_unknown(task: str, printed: dict[str, Any], expected: set[str], run: Run) -> None:
    for key, value in printed.items():
        row = key.split(",")[0]
        no_stderr = row.endswith("_stderr") and value in ("N/A", None, "")
        if key not in expected and row not in NOT_ROWS and not no_stderr:
            run.complaints.append(f"{task}: unknown row {key} = {value!r}")


def check_group(
    group: str, members: list[dict[str, Bank]], results: dict[str, Any], run: Run
) -> None:
    """Check a group of equal-size tasks: its rows are those of all its questions together."""
    printed = dict(results["results"][group])
    expected: set[str] = set()
    for name in members[0]:
        banks = [banks[name] for banks in members if name in banks]
        union = Bank(list(chain.from_iterable(b.questions for b in banks)), banks[0].settings)
        if len(banks) != len(members) or len({len(b.questions) for b in banks}) > 1:
            run.complaints.append(f"{group}: its tasks differ in size; this script cannot judge it")
            return
        for kind, row, own in union.rows():
            key = f"{row},{name}"
            if re.fullmatch(r"(bayes|avg)@\d+(_stderr)?", row) and key in printed:
                expected.add(key)
                run.compare(f"{kind}, group", f"{group}: {key}", printed[key], own, run.tolerance)
    check_unknown(group, printed, expected, run)


def check_results(path: Path, run: Run) -> int:
    """Check one results file; return how many tasks of ours it holds."""
    results = json.loads(path.read_text(encoding="utf-8"))
    stamp = path.stem.removeprefix("results_")
    checked: dict[str, dict[str, Bank]] = {}
    for task, config in results["configs"].items():
        if "bayes" not in ((config or {}).get("metadata") or {}):
            continue
        samples = path.with_name(f"samples_{task}_{stamp}.jsonl")
        if not samples.exists():
            run.complaints.append(
                f"{task}: no {samples.name}; was the run made with --log_samples?"
            )
            continue
        checked[task] = check_task(task, results, samples, run)
    for group, tasks in (results.get("group_subtasks") or {}).items():
        members = [checked[t] for t in tasks if t in checked]
        if members and group in results["results"]:
            check_group(group, members, results, run)
    return len(checked)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="the folder given to --output_path")
    parser.add_argument("--tolerance", type=float, default=1e-9)
    parser.add_argument(
        "--interval-tolerance", type=float, default=1e-5, help="for the methods exact and hdi"
    )
    args = parser.parse_args(argv)
    run = Run(args.tolerance, args.interval_tolerance)
    files = sorted(args.output.rglob("results_*.json"))
    tasks = sum(check_results(path, run) for path in files)
    for kind, (difference, where) in sorted(run.worst.items()):
        print(f"{kind:28} worst difference {difference:.1e}  ({where})")
    for complaint in run.complaints:
        print(f"MISMATCH {complaint}", file=sys.stderr)
    if tasks == 0:
        print(f"{args.output}: nothing to check in {len(files)} results files", file=sys.stderr)
        return 2 if not run.complaints else 1
    print(f"{run.compared} values of {tasks} tasks recomputed, {len(run.complaints)} complaints")
    return 1 if run.complaints else 0


if __name__ == "__main__":
    raise SystemExit(main())
