"""Grading again of the texts that are logged, against the right answers beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lm_eval_bayes.runs.query import Regrade
from lm_eval_bayes.runs.readers.protocol import NothingToCountError
from lm_eval_bayes.runs.task_run import REGRADED
from lm_eval_bayes.runs.trials import PartialRun, objects


def regraded_runs(
    runs: Sequence[PartialRun], regrade: Regrade, skipped: list[NothingToCountError]
) -> list[PartialRun]:
    """Return runs whose trials have the grades of their texts; one without a text has none.

    Runs that log no texts, or not one right answer of every question, are left out; why is added
    to `skipped`.
    """
    graded = []
    for run in runs:
        try:
            graded.append(_regraded(run, regrade))
        except NothingToCountError as error:
            skipped.append(error)
    return graded


def _regraded(run: PartialRun, regrade: Regrade) -> PartialRun:
    trials = run.trials
    if trials.logged is None or (trials.logged.log < 0).all():
        rule = f"be left out: no generated texts of task {run.task} are logged"
        raise NothingToCountError.of("regrade", "conflict", rule, run.source)
    category = np.full(trials.category.size, -1, dtype=np.int64)
    answer = objects([None] * category.size)
    marker = run.provenance.metadata.get("think_end_token")
    ends = np.searchsorted(trials.question, np.arange(len(run.questions) + 1))
    for question, begin, end in zip(run.questions, ends[:-1], ends[1:], strict=True):
        texts = trials.logged[begin:end].read()
        responses = {begin + i: t.text for i, t in enumerate(texts) if t.text is not None}
        targets = {text.right_answers for text in texts if text.right_answers}
        if not responses:
            continue
        if len(targets) != 1 or len(target := targets.pop()) != 1 or not target[0].strip():
            rule = f"be left out: not one right answer to every question of {run.task} is logged"
            got = f"question {question.id} of {run.source}"
            raise NothingToCountError.of("regrade", "conflict", rule, got)
        end_token = marker if isinstance(marker, str) else None
        grades = regrade(list(responses.values()), target[0], end_token)
        for row, (is_right, extracted) in zip(responses, grades, strict=True):
            category[row], answer[row] = int(is_right), extracted
    notes = list(run.notes)
    is_other = trials.is_graded & (trials.category != category)
    remark = objects([None] * category.size)
    if run.weights == (0.0, 1.0) and not run.scored:
        remark[is_other] = "got another grade than before"
    if len(run.weights) > 2:
        unused = f"the task's own {len(run.weights)} categories were not used"
        notes.append(f"graded again as right or wrong: {unused}")
    trials = replace(trials, category=category, score=None, answer=answer, remark=remark)
    trials = replace(trials, signals={})
    run = replace(run, trials=trials, ordered=True, metric=REGRADED, weights=(0.0, 1.0))
    return replace(run, notes=tuple(notes), threshold=None)
