"""Verification of saved runs: earlier verdicts are kept, equal answers are judged once.

The judge is a server, or a model on this computer.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.addresses import check_address
from lm_eval_bayes._util.plain import NOT_IN_JSON, Record
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.verifier_prompt import LABELS, Calibration, Verdict
from lm_eval_bayes.runs.verdicts import (
    TrialVerdict,
    Verdicts,
    VerdictsHeader,
    read_verdicts,
)
from lm_eval_bayes.verifiers.judge import (
    Judge,
    Scores,
    Unjudged,
    baseline_scores,
    check_room,
    judge_batches,
)
from lm_eval_bayes.verifiers.judged_trials import (
    JudgedFile,
    TrialCase,
    VerdictsFile,
    check_verifier,
)


@dataclass(frozen=True)
class Tally(Record):
    """A summary of the verdicts on one file.

    Attributes
    ----------
    plan : JudgedFile
        The trials.
    kept : int
        Number of trials that an earlier run judged.
    baseline : tuple of float
        The scores without content.
    labels : mapping of str to int
        How many trials have each label as the likeliest.
    means : tuple of float, or None
        The mean probabilities of A, B, C; None if no trial could be judged.
    failures : mapping of str to int
        Number of trials that could not be judged, by reason.
    """

    plan: JudgedFile = field(metadata=NOT_IN_JSON)
    kept: int
    baseline: Scores
    labels: Mapping[str, int]
    means: Scores | None
    failures: Mapping[str, int]

    @property
    def failed(self) -> int:
        """Number of trials that could not be judged."""
        return sum(self.failures.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with the names and the number of trials of the plan."""
        return {
            "model": self.plan.model,
            "task": self.plan.task,
            "verdicts": str(self.plan.target),
            "trials": len(self.plan.trials),
            "failed": self.failed,
            **super().to_dict(),
        }


class Verification:
    """Judges the trials of several files with one judge.

    Parameters
    ----------
    judge : Judge
        The judge.
    plans : sequence of JudgedFile
        The files.
    batch_size : int
        Prompts in a batch.
    restart : bool
        Whether existing files are replaced.

    Attributes
    ----------
    distinct : int
        Number of different inputs that have to be judged.

    Raises
    ------
    LmEvalBayesError
        If an existing file is broken or of another verifier, if a trial is not the one that
        was judged, or if a question leaves no room for an answer. No weights are loaded for this.
    """

    def __init__(
        self,
        judge: Judge,
        plans: Sequence[JudgedFile],
        *,
        batch_size: int,
        restart: bool = False,
    ) -> None:
        self._judge = judge
        self._batch_size, self._restart = batch_size, restart
        self._verifier = judge.fingerprint
        #: Scores by the hash of the text, of this run and of earlier ones; or why this run has
        #: none.
        self._scores: dict[str, Scores | Unjudged] = {}
        unjudged: dict[str, TrialCase] = {}
        self._plans = [(plan, self._earlier_verdicts(plan)) for plan in plans]
        for plan, verdicts in self._plans:
            for trial in plan.trials:
                if verdicts is None or not _is_judged(verdicts, trial):
                    unjudged.setdefault(trial.text, trial)
        self.distinct = sum(text not in self._scores for text in unjudged)
        check_room(judge, (trial.read() for trial in unjudged.values()))

    def _earlier_verdicts(self, plan: JudgedFile) -> Verdicts | None:
        if self._restart or not plan.target.exists():
            return None
        verdicts = read_verdicts(plan.target)
        check_verifier(verdicts, plan.samples.name, self._verifier)
        trials = verdicts.trials.values()
        self._scores |= {trial.text: trial.scores for trial in trials if trial.scores is not None}
        return verdicts

    def run(self, advance: Callable[[int], None] = lambda n: None) -> list[Tally]:
        """Judge the trials without verdicts, and save every batch as soon as it is done.

        Parameters
        ----------
        advance : callable
            Called after every batch with the number of different inputs in it.

        Raises
        ------
        VerifierError
            If the judge cannot continue; the verdicts so far are saved.
        """
        return [self._run(plan, earlier, advance) for plan, earlier in self._plans]

    def _run(
        self, plan: JudgedFile, earlier: Verdicts | None, advance: Callable[[int], None]
    ) -> Tally:
        if earlier is not None and all(_is_judged(earlier, trial) for trial in plan.trials):
            return _tally(plan, earlier.trials, len(plan.trials), earlier.header.baseline)
        baseline = earlier.header.baseline if earlier is not None else self._own_baseline
        header = VerdictsHeader(plan.samples.name, self._verifier, baseline)
        with VerdictsFile(plan.target, header, self._restart) as file:
            calibration = Calibration(file.header.baseline)
            waiting: dict[str, list[TrialCase]] = {}
            for trial in plan.trials:
                if not _is_judged(file, trial):
                    waiting.setdefault(trial.text, []).append(trial)
            earlier_trials = len(plan.trials) - sum(map(len, waiting.values()))
            scored = [(text, self._scores[text]) for text in waiting if text in self._scores]
            file.add(_verdicts(scored, waiting, calibration))
            inputs = (
                (text, trials[0].read())
                for text, trials in waiting.items()
                if text not in self._scores
            )
            for batch in judge_batches(self._judge, inputs, self._batch_size):
                file.add(_verdicts(batch, waiting, calibration))
                self._scores |= dict(batch)
                advance(len(batch))
            return _tally(plan, file.trials, earlier_trials, file.header.baseline)

    @cached_property
    def _own_baseline(self) -> Scores:
        return baseline_scores(self._judge)


def _is_judged(verdicts: Verdicts | VerdictsFile, trial: TrialCase) -> bool:
    return verdicts.verdict_of(trial.doc_id, trial.trial, trial.text) is not None


def _verdicts(
    batch: Sequence[tuple[str, Scores | Unjudged]],
    waiting: Mapping[str, Sequence[TrialCase]],
    calibration: Calibration,
) -> Iterator[TrialVerdict]:
    """Yield the verdicts on all trials whose texts were judged."""
    for text, scores in batch:
        result: dict[str, Any]
        if isinstance(scores, Unjudged):
            result = {"error": scores.reason}
        else:
            result = {"scores": scores, **calibration.verdict(scores).to_dict()}
        for trial in waiting[text]:
            yield TrialVerdict(trial.doc_id, trial.trial, text, **result)


def _tally(
    plan: JudgedFile, verdicts: Mapping[tuple[int, int], TrialVerdict], kept: int, baseline: Scores
) -> Tally:
    failures: Counter[str] = Counter()
    judged: list[Verdict] = []
    for trial in plan.trials:
        verdict = verdicts[trial.doc_id, trial.trial]
        if verdict.a is None or verdict.b is None or verdict.c is None:
            failures[verdict.error or ""] += 1
        else:
            judged.append(Verdict(verdict.a, verdict.b, verdict.c))
    labels = dict.fromkeys(LABELS, 0) | Counter(verdict.label for verdict in judged)
    means = None
    if judged:
        a, b, c = (sum(getattr(verdict, name) for verdict in judged) for name in "abc")
        means = (a / len(judged), b / len(judged), c / len(judged))
    return Tally(plan, kept, baseline, labels, means, dict(failures))


def judge_maker(
    verifier: str,
    hash_weights: Callable[[str], str | None],
    *,
    base_url: str | None = None,
    revision: str | None = None,
    device: str | None = None,
    max_length: int | None = None,
    batch_size: int = 8,
) -> Callable[[], Judge]:
    """Check the settings of a judge and return the function that creates it.

    Parameters
    ----------
    verifier : str
        The model: a folder, a name on the hub, or the server's name for it.
    hash_weights : callable
        Returns the hash of the weights in a folder; a model on the hub has its commit.
    base_url : str or None
        The address of a server, whose key is read from OPENAI_API_KEY.
    revision, device : str or None
        Of a local model, see `local_judge.LocalJudge`.
    max_length : int or None
        The maximal length of a prompt.
    batch_size : int
        Prompts in a batch.

    Raises
    ------
    InvalidInputError
        If a setting breaks its rule, or does not belong to a server.
    VerifierError
        By the function, if packages are missing or the model cannot be a verifier.
    """
    if not verifier.strip():
        rule = "be a folder or the name of a model"
        raise InvalidInputError.of("--verifier", "empty", rule, verifier)
    if base_url is None:

        def local() -> Judge:
            from lm_eval_bayes.verifiers.local_judge import LocalJudge

            is_folder = Path(verifier).expanduser().exists()
            return LocalJudge(
                verifier,
                revision=revision,
                weights=hash_weights(verifier) if is_folder else None,
                device=device,
                max_length=max_length,
            )

        return local
    check_address(base_url)
    for name, value in {"--device": device, "--revision": revision}.items():
        if value is not None:
            raise InvalidInputError.of(name, "conflict", "be left out with --base-url", value)
    address = base_url

    def of_server() -> Judge:
        from lm_eval_bayes.verifiers.server_judge import ServerJudge

        key = os.environ.get("OPENAI_API_KEY") or None
        return ServerJudge(verifier, address, key, max_length=max_length, batch_size=batch_size)

    return of_server
