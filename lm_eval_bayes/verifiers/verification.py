"""A verifier goes through saved runs: what is known is kept, what is equal is judged once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes.rubric.verifier import LABELS, Calibration, Verdict, VerifierInput
from lm_eval_bayes.runs.verdicts import TrialVerdict, Verdicts, VerdictsHeader, read_verdicts
from lm_eval_bayes.runs.verdicts_file import VerdictsFile
from lm_eval_bayes.runs.verifier_inputs import TrialCase
from lm_eval_bayes.verifiers.batching import (
    Judged,
    baseline_scores,
    check_room,
    judged,
    verdict_on,
)
from lm_eval_bayes.verifiers.protocol import Judge, Scores, Unjudged


@dataclass(frozen=True)
class Plan:
    """The trials of one file of samples, and where the verdicts on them go.

    Attributes
    ----------
    model, task : str
        What the run calls them.
    samples : str
        The name of the file of samples.
    target : Path
        The file of verdicts.
    trials : tuple of TrialCase
        What is to be judged.
    """

    model: str
    task: str
    samples: str
    target: Path
    trials: tuple[TrialCase, ...]


@dataclass(frozen=True)
class Tally:
    """What came of the trials of one file.

    Attributes
    ----------
    plan : Plan
        The trials.
    kept : int
        Trials that an earlier run had judged.
    baseline : tuple of float
        The scores without content.
    labels : mapping of str to int
        How many trials have each label as the likeliest.
    means : tuple of float, or None
        The mean probabilities of A, B, C; None where nothing could be judged.
    failures : mapping of str to int
        Why trials could not be judged, and how many.
    """

    plan: Plan
    kept: int
    baseline: Scores
    labels: Mapping[str, int]
    means: Scores | None
    failures: Mapping[str, int]

    @property
    def failed(self) -> int:
        """Trials that could not be judged."""
        return sum(self.failures.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "model": self.plan.model,
            "task": self.plan.task,
            "verdicts": str(self.plan.target),
            "trials": len(self.plan.trials),
            "kept": self.kept,
            "failed": self.failed,
            "baseline": list(self.baseline),
            "labels": dict(self.labels),
            "means": None if self.means is None else list(self.means),
            "failures": dict(self.failures),
        }


class Verification:
    """Judges the trials of several files with one judge.

    Parameters
    ----------
    judge : Judge
        Who judges.
    plans : sequence of Plan
        What.
    temperature : float
        Of the calibration.
    think_end : str
        What ended the reasoning when the plans were made; verdicts depend on it.
    batch_size : int
        Prompts in a batch.
    restart : bool
        Whether files that are there are replaced.

    Attributes
    ----------
    distinct : int
        Different cases that have to be judged.

    Raises
    ------
    LmEvalBayesError
        If a file that is there is broken or another verifier's, if a trial is not the one that
        was judged, or if a question leaves no room for an answer. No weights are read for this.
    """

    def __init__(
        self,
        judge: Judge,
        plans: Sequence[Plan],
        *,
        temperature: float,
        think_end: str,
        batch_size: int,
        restart: bool = False,
    ) -> None:
        self._judge, self._plans = judge, plans
        self._temperature, self._batch_size, self._restart = temperature, batch_size, restart
        self._verifier = {**judge.fingerprint, "temperature": temperature, "think_end": think_end}
        self._baseline: Scores | None = None
        #: By hash the scores of whatever was judged, here or in an earlier run; or why there
        #: are none, of what was tried here.
        self._known: dict[str, Scores | Unjudged] = {}
        there = [self._there(plan) for plan in plans]
        todo: dict[str, VerifierInput] = {}
        for plan, verdicts in zip(plans, there, strict=True):
            for one in plan.trials:
                if verdicts is None or not verdicts.said_of(one.doc_id, one.trial, one.text):
                    todo.setdefault(one.text, one.case)
        self.distinct = sum(text not in self._known for text in todo)
        check_room(judge, todo.values())

    def _there(self, plan: Plan) -> Verdicts | None:
        if self._restart or not plan.target.exists():
            return None
        found = read_verdicts(plan.target)
        found.check_verifier(plan.samples, self._verifier)
        said = found.trials.values()
        self._known |= {one.text: one.scores for one in said if one.scores is not None}
        return found

    def run(self, advance: Callable[[int], None] = lambda n: None) -> list[Tally]:
        """Judge whatever is not judged yet, and keep every batch as soon as it is done.

        Parameters
        ----------
        advance : callable
            Told after every batch how many different cases were judged in it.

        Raises
        ------
        VerifierError
            If the judge cannot go on; what was judged is kept.
        """
        return [self._run(plan, advance) for plan in self._plans]

    def _run(self, plan: Plan, advance: Callable[[int], None]) -> Tally:
        there = None if self._restart else _readable(plan.target)
        if there is not None and all(
            there.said_of(one.doc_id, one.trial, one.text) for one in plan.trials
        ):
            return _tally(plan, there.trials, len(plan.trials), there.header.baseline)
        baseline = there.header.baseline if there is not None else self._own_baseline()
        header = VerdictsHeader(plan.samples, self._verifier, baseline)
        with VerdictsFile(plan.target, header, self._restart) as file:
            calibration = Calibration(file.header.baseline, self._temperature)
            waiting: dict[str, list[TrialCase]] = {}
            for one in plan.trials:
                if file.said_of(one.doc_id, one.trial, one.text) is None:
                    waiting.setdefault(one.text, []).append(one)
            kept = len(plan.trials) - sum(map(len, waiting.values()))
            known = [text for text in waiting if text in self._known]
            file.add(_lines([verdict_on(t, self._known[t], calibration) for t in known], waiting))
            cases = [(t, ones[0].case) for t, ones in waiting.items() if t not in self._known]
            for batch in judged(self._judge, cases, calibration, self._batch_size):
                file.add(_lines(batch, waiting))
                self._known |= {one.key: one.scores or Unjudged(one.error or "") for one in batch}
                advance(len(batch))
            return _tally(plan, file.trials, kept, file.header.baseline)

    def _own_baseline(self) -> Scores:
        if self._baseline is None:
            self._baseline = baseline_scores(self._judge)
        return self._baseline


def _readable(path: Path) -> Verdicts | None:
    return read_verdicts(path) if path.exists() else None


def _lines(
    batch: Sequence[Judged[str]], waiting: Mapping[str, Sequence[TrialCase]]
) -> list[TrialVerdict]:
    """Return the verdict on every trial that a judged text is the answer of."""
    lines = []
    for one in batch:
        found = {} if one.verdict is None else one.verdict.to_dict()
        lines += [
            TrialVerdict(
                trial.doc_id, trial.trial, one.key, **found, scores=one.scores, error=one.error
            )
            for trial in waiting[one.key]
        ]
    return lines


def _tally(
    plan: Plan, said: Mapping[tuple[int, int], TrialVerdict], kept: int, baseline: Scores
) -> Tally:
    labels = dict.fromkeys(LABELS, 0)
    failures: dict[str, int] = {}
    verdicts: list[Verdict] = []
    for trial in plan.trials:
        one = said[trial.doc_id, trial.trial]
        if one.a is None or one.b is None or one.c is None:
            failures[one.error or ""] = failures.get(one.error or "", 0) + 1
            continue
        verdicts.append(Verdict(one.a, one.b, one.c))
        labels[verdicts[-1].label] += 1
    means = None
    if verdicts:
        n = len(verdicts)
        sums = (sum(v.a for v in verdicts), sum(v.b for v in verdicts), sum(v.c for v in verdicts))
        means = (sums[0] / n, sums[1] / n, sums[2] / n)
    return Tally(plan, kept, baseline, labels, means, failures)
