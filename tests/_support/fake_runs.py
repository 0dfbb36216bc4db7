"""A fake run of three models, and the paper's Tables 4 and 5 once more, one trial at a time.

Nothing of the package is used: :func:`category_of` is what the package is compared with.

The run has 3 models, 12 questions and 8 trials each, with every signal. About one value in
thirty is missing, and the numbers are coarse, so that many lie exactly on a threshold.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

MODELS = ("careful", "hasty", "stuck")
N_QUESTIONS, N_TRIALS = 12, 8

SIGNALS = (
    "is_correct",
    "has_box",
    "token_ratio",
    "repeated_pattern",
    "text_loop",
    "prompt_bpt",
    "completion_bpt",
    "verifier_a",
    "verifier_b",
    "verifier_c",
)

#: How often each model is right, boxes its answer, and runs into the limit.
_HABITS = {"careful": (0.7, 0.9, 0.05), "hasty": (0.4, 0.5, 0.1), "stuck": (0.15, 0.6, 0.4)}


def fake_runs(seed=20250504, missing=0.03):
    """Return {model: [columns of question 0, ...]}; a column has 8 numbers, None is missing."""
    rng = np.random.default_rng(seed)
    prompts = rng.integers(8, 24, N_QUESTIONS) / 8
    return {model: _run(rng, prompts, *_HABITS[model], missing) for model in MODELS}


def _run(rng, prompts, right, boxed, stuck, missing):
    questions = []
    for prompt in prompts:
        trials = [_trial(rng, float(prompt), right, boxed, stuck, missing) for _ in range(N_TRIALS)]
        questions.append({name: [trial[name] for trial in trials] for name in SIGNALS})
    return questions


def _trial(rng, prompt, right, boxed, stuck, missing):
    correct, cut = rng.random() < right, rng.random() < stuck
    a = rng.choice([0.6, 0.7, 0.9] if correct ^ (rng.random() < 0.2) else [0.1, 0.3, 0.55])
    # C of one half exactly, a tie of B and C, and a lead of C below one half all occur
    c = 0.5 if a <= 0.3 and rng.random() < 0.25 else (1 - a) * rng.choice([0.0, 0.25, 0.5, 0.6])
    trial = {
        "is_correct": int(correct),
        "has_box": int(rng.random() < boxed),
        "token_ratio": 1.0 if cut else int(rng.integers(1, 16)) / 16,
        "repeated_pattern": int(cut),
        "text_loop": int(cut and rng.random() < 0.7),
        "prompt_bpt": prompt,
        "completion_bpt": int(rng.integers(1, 13) + 3 * (not correct)) / 8,
        "verifier_a": float(a),
        "verifier_b": float(1 - a - c),
        "verifier_c": float(c),
    }
    unjudged = rng.random() < missing
    return {
        # a verifier gives all three of its numbers or none
        name: None if (unjudged if name[:8] == "verifier" else rng.random() < missing) else value
        for name, value in trial.items()
    }


def trials_of(runs):
    """Return all trials of all models, {signal: number or None} each."""
    return [
        {name: columns[name][trial] for name in columns}
        for questions in runs.values()
        for columns in questions
        for trial in range(N_TRIALS)
    ]


def percentile(values, percent):
    """Sort, and go linearly from one neighbour to the next; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    position = percent * (len(ordered) - 1) / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def cuts_of(trials):
    """Return the thresholds of Table 4 over some trials."""

    def values_of(signal, correct=None):
        return [
            trial[signal]
            for trial in trials
            if trial.get(signal) is not None and correct in (None, trial["is_correct"])
        ]

    return {
        "tau_high": percentile(values_of("completion_bpt"), 40),
        "tau_low_wrong": percentile(values_of("completion_bpt", 0), 60),
        "tau_prompt": percentile(values_of("prompt_bpt"), 90),
        "ratio_p33": percentile(values_of("token_ratio"), 33),
        "ratio_p66": percentile(values_of("token_ratio"), 66),
        "corr_p33": percentile(values_of("completion_bpt", 1), 33),
        "corr_p66": percentile(values_of("completion_bpt", 1), 66),
    }


#: The schemata, with the signals besides repeated_pattern and verifier_c that they look at.
LOOKS_AT = {
    "exact_match": ("is_correct",),
    "format_aware": ("is_correct", "has_box"),
    "conf_calibrated": ("is_correct", "completion_bpt"),
    "ood_robustness": ("is_correct", "prompt_bpt"),
    "strict_compliance": ("is_correct", "has_box"),
    "conf_wrong_penalty": ("is_correct", "completion_bpt"),
    "verifier_only": ("verifier_a", "verifier_b"),
    "format_confidence": ("is_correct", "has_box", "completion_bpt"),
    "length_robust": ("is_correct",),
    "verifier_probe": ("is_correct", "verifier_a"),
    "efficiency_adjusted": ("is_correct", "token_ratio"),
    "concision_high_conf": ("is_correct", "token_ratio", "completion_bpt"),
}


def category_of(schema, trial, cuts):
    """Return the category of a trial, −1 where what is missing makes a difference.

    Every missing value is replaced by everything it might have been. A verifier's C that is
    missing makes no trial invalid: it has not been judged.
    """
    trial = {"verifier_c": None, **trial}
    gaps = [
        name
        for name in ("repeated_pattern", "verifier_c", *LOOKS_AT[schema])
        if trial.get(name) is None
    ]
    result = {
        _known_category(schema, {**trial, **dict(zip(gaps, values, strict=True))}, cuts)
        for values in itertools.product(*(_possible(name, cuts) for name in gaps))
    }
    return result.pop() if len(result) == 1 else -1


def _possible(signal, cuts):
    if signal == "completion_bpt":
        return _around(cuts["tau_high"], cuts["tau_low_wrong"], cuts["corr_p33"], cuts["corr_p66"])
    if signal == "token_ratio":
        return _around(cuts["ratio_p33"], cuts["ratio_p66"])
    if signal == "prompt_bpt":
        return _around(cuts["tau_prompt"])
    return (0.0, 0.49) if signal == "verifier_c" else (0.0, 1.0)


def _around(*cuts):
    ordered = sorted(cuts)
    between = [(a + b) / 2 for a, b in itertools.pairwise(ordered)]
    return (ordered[0] - 1, *ordered, *between, ordered[-1] + 1)


def _known_category(schema, trial, cuts):  # noqa: C901  the twelve schemata, written out
    """Table 5, for a trial of which everything is known."""
    if trial["repeated_pattern"] == 1 or trial["verifier_c"] >= 0.50:
        return 0
    correct, boxed, bpt = (trial.get(n) for n in ("is_correct", "has_box", "completion_bpt"))
    if schema in ("exact_match", "length_robust"):
        return 2 if correct else 1
    if schema == "format_aware":
        if correct:
            return 4 if boxed else 3
        return 2 if boxed else 1
    if schema == "conf_calibrated":
        if not correct:
            return 2 if bpt <= cuts["tau_low_wrong"] else 1
        if bpt <= cuts["corr_p33"]:
            return 5
        return 4 if bpt <= cuts["corr_p66"] else 3
    if schema == "ood_robustness":
        ood = trial["prompt_bpt"] >= cuts["tau_prompt"]
        if correct:
            return 3 if ood else 4
        return 1 if ood else 2
    if schema == "strict_compliance":
        return 2 if correct and boxed else 1
    if schema == "conf_wrong_penalty":
        if correct:
            return 3
        return 1 if bpt <= cuts["tau_low_wrong"] else 2
    if schema == "verifier_only":
        if trial["verifier_a"] >= 0.6:
            return 3
        return 1 if trial["verifier_c"] > trial["verifier_b"] else 2
    if schema == "format_confidence":
        if not correct and not boxed:
            return 1
        sure = bpt <= cuts["tau_high"]
        if not correct:
            return 3 if sure else 2
        if not boxed:
            return 5 if sure else 4
        return 7 if sure else 6
    if schema == "verifier_probe":
        agreed = trial["verifier_a"] >= 0.6
        if correct:
            return 4 if agreed else 3
        return 1 if agreed else 2
    ratio = trial["token_ratio"]
    if schema == "efficiency_adjusted":
        length = 0 if ratio <= cuts["ratio_p33"] else 1 if ratio <= cuts["ratio_p66"] else 2
        return (4 if correct else 1) + length
    if schema == "concision_high_conf":
        if not correct:
            return 1
        if ratio > cuts["ratio_p66"]:
            return 2
        if ratio > cuts["ratio_p33"]:
            return 3
        return 5 if bpt <= cuts["tau_high"] else 4
    raise KeyError(schema)


def with_columns(table, columns):
    """Return a table of signals with more columns, or other ones in place of some."""
    return type(table)(table.question, {**table.columns, **columns}, table.n_questions)
