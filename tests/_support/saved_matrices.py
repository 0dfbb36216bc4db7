"""Calling the program in this process, and small runs as files that a command reads."""

from __future__ import annotations

import numpy as np

from _support.saved_runs import question, write_run

#: A name that would colour a terminal, be taken as markup, and break a line.
HOSTILE = "mod\x1b[31m[bold]x[/bold]\n\u202e:smiley:"


def outcomes(seed, lift=0.0, m=12, n=8):
    """Return an outcome matrix of questions from hard to easy."""
    rng = np.random.default_rng(seed)
    chance = np.clip(np.linspace(0.05, 0.85, m) + lift, 0.0, 1.0)
    return (rng.random((m, n)) < chance[:, None]).astype(int)


def saved(folder, model, matrix, task="contest_bayes", first=0, **more):
    """Write a run of the harness with these outcomes; return its folder."""
    trials = [
        [{"text": f"It is {r}.", "outcome": int(r), **more} for r in row] for row in matrix.tolist()
    ]
    questions = [question(item, first + number) for number, item in enumerate(trials)]
    return write_run(folder, model, questions, task)
