"""Mutated files of every format end in a result, or in an error that is meant for the user.

A mutation cuts, doubles or flips bytes, removes, doubles or exchanges lines, changes the encoding,
or replaces values by those of other types, sizes and depths. None may end in a traceback, take
long, or leave a file behind.
"""

from __future__ import annotations

import gzip
import json
import shutil
import signal
from contextlib import contextmanager

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from _support.command_line import called
from _support.mutations import mutate
from _support.tool_logs import DATA

from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.runs.question_texts import question_texts
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.formats import FORMATS, recognise
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.questions import Cluster
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

#: Seconds in which a case must end on a busy computer too; alone none takes a tenth of it.
LONGEST = 60
#: All cases, and those in which a command writes a file as well.
CASES, EVERY = 5_000, 20

ROWS = [
    {"model": model, "question_id": f"q{i}", "epoch": j, "correct": (i * j + shift) % 3 > 0}
    | {"tokens": 100 * i + j, "cost": 0.25 * j, "subject": f"s{i % 3}", "response": f"so {j}"}
    for shift, model in enumerate(("a-1", "b"))
    for i in range(8)
    for j in range(4)
]


def _table(file):
    names = list(ROWS[0])
    lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in ROWS)]
    text = "\n".join(lines) + "\n"
    if file.suffix == ".tsv":
        file.write_text(text.replace(",", "\t"))
    elif file.suffix == ".gz":
        file.write_bytes(gzip.compress(text.encode()))
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif file.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), file)
    elif file.suffix == ".arrow":
        pyarrow.feather.write_feather(pyarrow.Table.from_pylist(ROWS), file)
    else:
        file.write_text(text)


def _counts(file):
    rows = [{"id": f"q{i}", "model": "ab"[i % 2], "c": i % 5, "n": 4} for i in range(12)]
    if file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [",".join(map(str, row.values())) for row in rows]
        file.write_text("\n".join(["id,model,c,n", *lines]) + "\n")


def _matrix(file):
    R = np.random.default_rng(1).integers(0, 2, (2, 6, 4))
    if file.suffix == ".npz":
        ids, models = [f"q{i}" for i in range(6)], ["a", "b"]
        np.savez(file, R=R, models=models, question_ids=ids, weights=[0.0, 1.0], task="t")
    else:
        lines = ["id,trial_1,trial_2,trial_3,trial_4"]
        lines += [f"q{i},{','.join(map(str, row))}" for i, row in enumerate(R[0].tolist())]
        file.write_text("\n".join(lines) + "\n")


def _store(file):
    with TrialStore.open(file) as store:
        key = TrialKey(
            model=store.describe_model({"backend": "vllm", "pretrained": "org/model"}),
            prompt=store.describe_prompts(["What is 6 times 7?"])[0],
            sampling=store.describe_sampling({"temperature": 0.6}),
        )
        store.add(Trial(key, i, f"It is {i}.", seed=i, created=1000.0) for i in range(4))
        store.add_prompt_signals(key.model, key.prompt, {"bits": 0.5})
        graded = tuple(GradedTrial(key, i, i % 2, str(i)) for i in range(4))
        question = GradedQuestion(0, "aa", graded, Cluster("contest", "AIME I"))
        store.add_outcomes([GradedTask("aime", "1.0", "none", 2, (question,))])


#: By format the folder of its saved logs with a file to change, or a function that writes one.
LOGS = {
    "lm-evaluation-harness": [
        ("lm_eval_0.4.9", "samples_*.jsonl", "."),
        ("lm_eval_0.4.9", "results_*.json", "."),
        ("lm_eval_0.4.2", "*_toy_gen.jsonl", "."),
    ],
    "inspect_ai": [("inspect_ai", "weak.eval", None), ("inspect_ai", "weak.json", None)],
    "verifiers": [
        ("verifiers/sums--org--weak/run1", "results.jsonl", "."),
        ("verifiers/sums--org--weak/run1", "metadata.json", "."),
    ],
    "verifiers, traces": [("verifiers_traces/weak", "traces.jsonl", None)],
    "Every Eval Ever": [
        ("every_eval_ever", "*_samples.jsonl", None),
        ("every_eval_ever", "*[0-9a-f].json", "."),
    ],
    "SWE-bench": [
        ("swe_bench", "org__weak-1.5.run_1.json", None),
        ("swe_bench/logs", "**/django__django-1/report.json", "."),
    ],
    "promptfoo": [("promptfoo", "*.json", None), ("promptfoo", "*.jsonl", None)],
    "tau2-bench, tau-bench": [
        ("tau2", "weak.json", None),
        ("tau2/folder", "results.json", "."),
        ("tau_bench", "gpt-4o-airline.json", None),
    ],
    "Harbor, terminal-bench": [
        ("harbor/letters", "chess__w0abcde/result.json", "."),
        ("harbor/letters", "chess__w0abcde/result.json", None),
        ("terminal_bench/ob1_1", "results.json", "."),
        ("terminal_bench/ob1_1", "run_metadata.json", "."),
    ],
    "evalscope": [("evalscope/weak", "reviews/weak/general_mcq_letters.jsonl", ".")],
    "lighteval": [("lighteval", "details/weak/*/details_sums*.parquet", None)],
    "NeMo-Skills": [("nemo_skills", "**/output-rs*.jsonl", None)],
    "MathArena": [("matharena/outputs", "**/weak/1.json.zst", None)],
    "counts": [(_counts, "counts.csv", None), (_counts, "counts.jsonl", None)],
    "table of trials": [
        ("matharena", "published.parquet", None),
        *(
            (_table, f"board{ending}", None)
            for ending in (".csv", ".tsv", ".jsonl", ".csv.gz", ".parquet", ".arrow")
        ),
    ],
    "matrix of outcomes": [(_matrix, "matrix.csv", None), (_matrix, "matrix.npz", None)],
    "trial store": [(_store, "trials.sqlite", None)],
}
SAMPLES = [(name, *sample) for name, samples in LOGS.items() for sample in samples]


def copied(source, pattern, read, folder):
    """Return the file to change, and what is read, in a folder of its own."""
    folder.mkdir()
    if callable(source):
        source(folder / pattern)
    else:
        shutil.copytree(DATA / source, folder, dirs_exist_ok=True)
    file = min(folder.glob(pattern))
    return file, file if read is None else folder / read


@contextmanager
def at_most(seconds):
    """Fail where the block takes longer."""

    def stop(*_):
        raise TimeoutError(f"more than {seconds} s")

    earlier = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


def read_or_refuse(path):
    """Read a file; whether there was a result."""
    try:
        runs = read_runs([path], dedupe=True).runs
    except LmEvalBayesError:
        return False
    for run in runs:
        assert np.isfinite(run.outcomes.weights).all()
        assert run.n_questions > 0
        for number in range(min(2, run.n_questions)):
            try:
                texts = question_texts(run, number).responses
            except LmEvalBayesError:  # a table whose column of texts is damaged
                assert path.suffix in (".parquet", ".arrow")
            else:
                assert len(texts) in (0, run.outcomes.n_trials[number])
    return True


def write_or_refuse(path, folder):
    """Export a file's runs: a whole file, or none and one sentence."""
    target = folder / "board.json"
    code, _, error = called("export", "table", path, "-o", target)
    assert code in (0, 2), error
    assert (code == 0) == target.exists()
    if code == 0:
        assert json.loads(target.read_text(encoding="utf-8"))["leaderboards"]
        target.unlink()
    else:
        assert "error: " in error
    assert list(folder.iterdir()) == []


def mutated_cases(sample, n, tmp_path):
    """Read mutations of a file; return how many were read."""
    name, source, pattern, read = sample
    file, path = copied(source, pattern, read, tmp_path / "logs")
    assert recognise(path)[0].name == name
    assert read_or_refuse(path)
    original = file.read_bytes()
    before = sorted(tmp_path.joinpath("logs").rglob("*"))
    output = tmp_path / "output"
    output.mkdir()
    n_read = 0
    for seed in range(n):
        file.write_bytes(original)
        mutate(file, seed)
        try:
            with at_most(LONGEST):
                n_read += read_or_refuse(path)
                if seed % EVERY == 0:
                    write_or_refuse(path, output)
        except BaseException as error:
            error.add_note(f"{name}: {file.name}, seed {seed}")
            raise
        assert sorted(tmp_path.joinpath("logs").rglob("*")) == before
    return n_read


IDS = [f"{name}: {pattern}" for name, _, pattern, _ in SAMPLES]


def test_every_format_is_here():
    assert set(LOGS) == {format.name for format in FORMATS}


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_some_mutated_files_are_read_or_refused(sample, tmp_path):
    mutated_cases(sample, 6, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_mutated_files_are_read_or_refused(sample, tmp_path):
    n = -(-CASES // len(SAMPLES))
    n_read = mutated_cases(sample, n, tmp_path)
    # a broken part of a folder may be left out, with a warning
    assert 0 < n_read < n + (sample[-1] is not None)
