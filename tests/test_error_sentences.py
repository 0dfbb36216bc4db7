"""The sentences of errors, as a user reads them: the only test that quotes them.

Other tests assert an error's class, argument, rule and value (`_support.errors`).
"""

from __future__ import annotations

import json
from importlib import import_module

import pytest

from lm_eval_bayes import AnchorMatrix, Outcomes, compare, hbayes_at_n, pass_at_k
from lm_eval_bayes._util.addresses import check_address
from lm_eval_bayes._util.hashing import sampling_hash
from lm_eval_bayes.analysis.comparison import compare_runs
from lm_eval_bayes.analysis.leaderboard import leaderboard
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError
from lm_eval_bayes.rubric.rules import Condition
from lm_eval_bayes.rubric.schemata import SCHEMATA
from lm_eval_bayes.rubric.thresholds import Thresholds
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.store.trial_store import TrialStore

FILES = {
    "words.csv": "question,score\na,maybe\n",
    "scores.csv": "question,score\na,4\n",
    "twice.csv": "question,trial,score\na,0,1\na,0,0\n",
    "counts.jsonl": json.dumps({"id": 1, "c": 3, "n": 2}) + "\n",
    "empty.csv": "",
    "a.csv": "question,score\nx,1\ny,0\n",
    "b.csv": "question,score\nu,1\nv,0\n",
}


def _outcomes(rows, **options):
    return Outcomes.from_matrix(rows, **options)


def _models(module):
    """Import a module of models, and with it lm_eval, where a sentence is that of one."""
    return import_module(f"lm_eval_bayes.harness.models.{module}")


#: What is called, the rule's id, and the sentence.
SENTENCES = [
    (
        lambda: pass_at_k(_outcomes([[0, 1, 1]]), 4),
        "range",
        "`k` must satisfy 1 <= k <= N (N=3); got 4",
    ),
    (
        lambda: _outcomes([[0, 2]]),
        "range",
        "`R` must hold only 0 and 1 when `weights` is left out; give `weights`, one per category; "
        "got 2 (question 0, trial 1)",
    ),
    (
        lambda: _outcomes([["0", "1"]]),
        "type",
        "`R` must be a rectangular array of numbers; got dtype <U1",
    ),
    (
        lambda: Outcomes.from_counts([[1, 2], [3, 4]], weights=[0, 0.5, 1]),
        "shape",
        "`counts` must have one column for each of the 3 weights; got 2 columns",
    ),
    (
        lambda: _outcomes([[0], [1]], question_ids=["a", "a"]),
        "duplicate",
        "`question_ids` must be distinct; got 'a' again (question 1)",
    ),
    (
        lambda: pass_at_k(Outcomes.from_counts([[1, 2, 3]]), 1),
        "unsupported",
        "`outcomes` must be binary for the pass family; decide which categories count as correct, "
        "for example Outcomes.from_matrix(R >= 2); got 3 categories",
    ),
    (
        lambda: compare(
            _outcomes([[1], [0]], question_ids=["x", "y"]),
            _outcomes([[1], [0]], question_ids=["x", "z"]),
        ),
        "mismatch",
        '`b` must have the questions of `a`; align="intersection" compares the common ones; '
        "got only in a: 'y'; only in b: 'z'",
    ),
    (
        lambda: hbayes_at_n([[0, 1]]),
        "type",
        "`outcomes` must be an Outcomes, as from Outcomes.from_matrix or Outcomes.from_counts; "
        "got 'list'",
    ),
    (
        lambda: AnchorMatrix.from_outcomes({"a": Outcomes.from_counts([[0, 0]])}),
        "empty",
        "`models['a']` must have at least one trial on every query; got none on query 0",
    ),
    (
        lambda: Condition.read("__import__('os')"),
        "format",
        "`when` must hold names, `and`, `or`, `not`, brackets and comparisons with numbers only; "
        "got \"__import__('os')\"",
    ),
    (
        lambda: SCHEMATA["exact_match"].with_weights([0, 1]),
        "shape",
        "`weights` must have 3 entries for exact_match, one per category (invalid; wrong; "
        "correct); got [0, 1]",
    ),
    (
        lambda: Thresholds.from_json("[]", "frozen.json"),
        "format",
        '`frozen.json` must be a file of thresholds, with "format": "lm-eval-bayes-thresholds"; '
        "got '[]'",
    ),
    (
        lambda: read_runs("words.csv"),
        "format",
        "`RUN` must be scores from 0 to 1 in words.csv, or words such as true and false (other "
        "scales: --bounds LOW:HIGH); got 'maybe' in row 1",
    ),
    (
        lambda: read_runs("scores.csv"),
        "range",
        "`RUN` must be scores from 0 to 1 in scores.csv, or words such as true and false (other "
        "scales: --bounds LOW:HIGH); got 4 in row 1",
    ),
    (
        lambda: read_runs("words.csv", columns={"question": "nothing"}),
        "missing-column",
        "`columns` must name a column of the table (question, score); got 'question=nothing'",
    ),
    (
        lambda: read_runs("twice.csv"),
        "duplicate",
        "`RUN` must hold every trial of a model and a question once (twice.csv); got one trial of "
        "question a in rows 1 and 2, with another score",
    ),
    (
        lambda: read_runs("counts.jsonl"),
        "range",
        "`RUN` must count c right ones of n trials, whole numbers with 0 <= c <= n, and at most "
        "5,000,000 trials in a file (counts.jsonl, row 1); got c=3, n=2",
    ),
    (
        lambda: read_runs("empty.csv"),
        "damaged",
        "`RUN` must have a complete CSV file in empty.csv; got an empty file",
    ),
    (
        lambda: read_runs("nowhere"),
        "path",
        "`RUN` must be a run, and this path does not exist; got 'nowhere'",
    ),
    (
        lambda: read_runs("scores.csv", bounds=(0, 5), metric="acc"),
        "conflict",
        "`metric` must be left out: what was read holds score; got 'acc'",
    ),
    (
        lambda: read_runs("scores.csv", bounds=(0, 5), unscored="skip"),
        "choice",
        "`unscored` must be left-out or wrong; got 'skip'",
    ),
    (
        lambda: compare_runs(read_runs("a.csv").runs, read_runs("b.csv").runs),
        "mismatch",
        "`B` must have answered the same questions of outcomes; got only a has x, y; only b "
        "has u, v",
    ),
    (
        lambda: leaderboard([]),
        "empty",
        "`RUN` must be at least one; got none",
    ),
    (
        lambda: sampling_hash({"seed": 5}),
        "unknown-key",
        "`sampling` must leave out the seed of each trial; got 5",
    ),
    (
        lambda: TrialStore.open("words.csv"),
        "path",
        "{folder}/words.csv is not a trial store",
    ),
    (
        lambda: _models("biased_coin.model").BiasedCoinLM(p=1.2),
        "range",
        "`p` must be a number in [0, 1]; got 1.2",
    ),
    (
        lambda: _models("trials").trial_range("16:8"),
        "format",
        "`trials` must be a:b with whole numbers a < b, such as trials=8:16; got '16:8'",
    ),
    (
        lambda: check_address("http://me:password@here/v1", "https://host/v1"),
        "secret",
        "`base_url` must contain no user name or password, which would end in logs (set "
        "OPENAI_API_KEY); got 'some'",
    ),
]


@pytest.mark.parametrize(("call", "rule", "sentence"), SENTENCES, ids=[s for *_, s in SENTENCES])
def test_the_sentence(call, rule, sentence, tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LmEvalBayesError) as caught:
        call()
    assert (str(caught.value), caught.value.rule) == (
        sentence.replace("{folder}", str(tmp_path)),
        rule,
    )


def test_a_long_value_is_shortened_and_one_that_cannot_be_shown_is_named():
    long = InvalidInputError.of("x", "type", "be short", "a" * 500)
    assert str(long) == f"`x` must be short; got '{'a' * 116}..."
    huge = InvalidInputError.of("x", "range", "be small", 10**5000)
    assert str(huge) == "`x` must be small; got a value of type int that cannot be shown"
