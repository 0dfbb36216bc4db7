"""Every row of a results table, recomputed from the trials behind it. No library is needed.

Used by ``recompute.py``; imports nothing of the package it checks: the formulas are written down a
second time, from the papers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import independent_interval as interval
import independent_learned_prior as learned_prior
from independent_scores import Score


@dataclass
class Run:
    """What was found, and how far off a row may be."""

    tolerance: float = 1e-9
    interval_tolerance: float = 0.05  # in sds, for the method exact
    # for hbayes, in standard deviations: one kind of questions is recomputed, two are learned
    learned_tolerance: float = 0.12
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


#: Rows that are shares of the trials, and what a question counts of them.
SHARES = {
    "cut_off_share": "cut_off",
    "empty_share": "empty",
    "grading_error_share": "grading_errors",
}


@dataclass
class Question:
    """The trials of one question as they stand in the log."""

    outcomes: list[int]
    answers: list[str | None]
    grading_errors: int
    cut_off: int = 0
    empty: int = 0


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
        if as_average and not all(map(sum, self.counts)):
            return math.nan, math.nan  # a question without trials has no average
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
        up = self.weights[1] > self.weights[0]
        counts = [(row[1], row[0]) if up else (row[0], row[1]) for row in self.counts]
        ends = interval.exact(counts, level)
        return floor + (top - floor) * ends[0], floor + (top - floor) * ends[1]

    # -- hbayes@N: the posterior under a prior that the questions share -----------------

    @cached_property
    def learned(self) -> dict[str, Score]:
        """The score that each kind of row is about."""
        found = learned_prior.learned(self.counts, self.weights)
        return {"hbayes": found.benchmark, "population": found.population}

    def learned_names(self) -> dict[str, str]:
        name = f"hbayes@{self.settings['n']}"
        return {"hbayes": name, "population": f"{name}_population"}

    def learned_rows(self) -> Iterator[tuple[str, str, float]]:
        for kind, name in self.learned_names().items():
            score = self.learned[kind]
            low, high = score.ends(str(self.settings["interval"]), self.settings["level"])
            yield kind, name, score.mu
            yield f"{kind} sd", f"{name}_stderr", score.sigma
            yield f"{kind} interval", f"{name}_low", low
            yield f"{kind} interval", f"{name}_high", high

    def learned_limit(self, run: Run, kind: str, what: str) -> float:
        """How far a value may be from ours: the tolerance is in sigma."""
        score = self.learned[kind]
        moments = run.learned_tolerance * score.sigma
        if what in ("", "sd"):
            return moments
        # what chance adds where the law is drawn
        chance = (
            score.slack(self.settings["level"]) if self.settings["interval"] == "exact" else 0.0
        )
        return 3 * moments + chance

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
        yield from self.learned_rows()
        yield from self.plain_rows()

    def plain_rows(self) -> Iterator[tuple[str, str, float]]:
        """Yield every row but those of the learned prior."""
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
        if n not in self.settings["k"]:
            yield "pass@k", f"pass@{n}", self.at_least(1, n) if n <= fewest else math.nan
        for k in sorted({self.settings["maj_k"], n}):
            yield "maj@k", f"maj@{k}", self.majority(k) if k <= fewest else math.nan
        trials = sum(len(question.outcomes) for question in self.questions)
        for name, what in SHARES.items():
            if n_of := sum(getattr(q, what) for q in self.questions):
                yield "share", name, n_of / trials

    def printed(self) -> list[str]:
        """The rows that the harness's table has, in their order."""
        n, rows = self.settings["n"], {name for _, name, _ in self.plain_rows()}
        ends = ("", "_stderr", "_low", "_high")
        names = [f"{stem}@{n}{end}" for stem in ("hbayes", "bayes") for end in ends]
        names += [f"avg@{n}", f"avg@{n}_stderr", f"pass@{n}", f"maj@{n}"]
        return [*names, *(share for share in SHARES if share in rows)]

    def tolerance(self, run: Run, kind: str) -> float:
        scope, _, what = kind.partition(" ")
        if scope in self.learned_names():
            return self.learned_limit(run, scope, what)
        if kind != "interval" or self.settings["interval"] in ("normal", "beta"):
            return run.tolerance
        return run.interval_tolerance * self.posterior()[1]


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
