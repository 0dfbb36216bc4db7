"""What each command refuses: the option or argument of the error, and the rule that it breaks."""

from __future__ import annotations

import pytest
from _support.command_line import command_error, refusal

#: The words of a command in the folder of saved runs, the argument of its error, and the rule.
REFUSED = [
    # of all commands
    ("sumary", None, "usage"),
    ("summary", "runs", "usage"),
    ("summary a --scop x", "--scop", "usage"),
    ("noise a --seed 1.5", "--seed", "usage"),
    ("doctor --timeout nan", "--timeout", "range"),
    ("run --allocate tasks", "--allocate", "usage"),
    # the intervals, and what is read
    ("summary a --level 95", "--level", "range"),
    ("summary a --seed -3", "--seed", "range"),
    ("summary a --k 9", "--k", "range"),
    ("summary a --k two", "--k", "format"),
    ("summary a --task gsm8k", "RUN", "choice"),
    ("summary one.npz --metric acc", "--metric", "conflict"),
    ("summary one.npz --filter x", "--filter", "conflict"),
    ("summary one.npz --regrade", "--regrade", "conflict"),
    ("summary missing", "RUN", "path"),
    ("summary a --by topic", "--by", "missing"),
    ("summary broken", "RUN", "damaged"),
    # earlier runs as prior evidence
    ("summary a --prior missing --prior-strength auto", "--prior", "path"),
    ("summary a --prior c-elsewhere --prior-strength auto", "--prior", "mismatch"),
    ("summary a --prior a --prior-strength auto", "--prior", "duplicate"),
    ("summary a --prior x=b --prior-strength auto", "--prior", "choice"),
    ("rank a b --prior three.npz --prior-strength auto", "--prior", "mismatch"),
    ("summary nowhere --prior nowhere --prior-strength 7", "--prior-strength", "range"),
    ("summary a --prior-strength 0.5", "--prior-strength", "conflict"),
    ("summary a --prior b", "--prior-strength", "conflict"),
    # comparisons and the gate
    ("compare a b --rope nan", "--rope", "range"),
    ("gate a b --margin -1", "--margin", "range"),
    ("compare a b --questions -1", "--questions", "range"),
    ("compare a b --k 9 --scope population", "--k", "range"),
    ("compare three.npz", "A", "missing"),
    ("compare three.npz -a x", "-a", "choice"),
    ("compare a three.npz", "B", "missing"),
    ("compare a b-hmmt", "B", "mismatch"),
    ("gate a b --on pass@4", "--on", "choice"),
    ("gate a b --on pass^2 --scope population", "--on", "unsupported"),
    ("gate a b --floor nan", "--floor", "range"),
    ("gate a --on question --floor .5 --margin 0", "A", "missing"),
    ("gate a b --on question", "--on", "conflict"),
    # leaderboards
    ("rank a c-elsewhere", "RUN", "mismatch"),
    ("study rank three.npz --paper --shared", "--paper", "conflict"),
    ("study rank three.npz --paper --method borda", "--paper", "conflict"),
    # plans, noise and convergence
    ("noise a --difference 1.5", "--difference", "range"),
    ("noise a --power 1", "--power", "range"),
    ("plan a --width 0", "--width", "range"),
    ("plan a --width .1 --max-trials 0", "--max-trials", "range"),
    ("plan a --apart", "RUN", "empty"),
    ("study convergence three.npz --score g-pass@4", "--score", "choice"),
    ("study convergence three.npz --score pass@9", "--score", "range"),
    ("study convergence one.npz --score bayes", "RUN", "empty"),
    ("study convergence counts.csv", "RUN", "missing"),
    ("study convergence scores.csv", "RUN", "unsupported"),
    # anchors
    ("study anchors three.npz --target nobody", "--target", "choice"),
    ("study anchors three.npz --anchor nobody", "--anchor", "choice"),
    ("study anchors three.npz --keep 0.9:0.1", "--keep", "format"),
    ("study anchors three.npz --pseudo-count -1", "--pseudo-count", "range"),
    ("study anchors one.npz", "RUN", "empty"),
    # pages and rubrics
    ("report a -o notes.txt", "--output", "path"),
    ("report a -o empty --overwrite", "--output", "path"),
    ("report a -o - --json", "--json", "conflict"),
    ("report a --text-bytes -1", "--text-bytes", "range"),
    ("compare a nothing-here", "A or B", "path"),
    ("compare nothing-here", "A", "path"),
    ("study rubric boxed --schema mine", "--schema", "choice"),
    ("study rubric boxed --schema ood_robustness", "--schema", "missing"),
    ("study rubric boxed --weights exact_match", "--weights", "missing"),
    ("study rubric boxed --weights exact_match=0,1", "--weights", "shape"),
    ("study rubric boxed --weights exact_match=0,1/0,1", "--weights", "format"),
    ("study rubric boxed --weights exact_match=1,1,1", "--weights", "duplicate"),
    ("study rubric boxed --weights exact_match=0,0,1 --schema format_aware", "--weights", "choice"),
    ("study rubric boxed --thresholds absent.json", "--thresholds", "path"),
    ("study rubric boxed --thresholds empty", "--thresholds", "path"),
    ("study rubric boxed --thresholds a.json --freeze b.json", "--freeze", "conflict"),
    ("study rubric boxed --freeze empty", "--freeze", "path"),
    ("study rubric boxed --freeze notes.txt", "--freeze", "path"),
    ("study rubric a", "RUN", "missing"),
    ("study rubric scores.csv", "RUN", "unsupported"),
    # simulations
    ("study simulate --models 0", "--models", "range"),
    ("study simulate --trials 100001", "--trials", "range"),
    ("study simulate --models 40", "--gap", "range"),
    ("study simulate --means .4,x", "--means", "format"),
    ("study simulate --means .4,1.2", "--means", "range"),
    ("study simulate --means .4,.5 --models 2", "--models", "conflict"),
    ("study simulate --beta nan:1", "--beta", "format"),
    ("study simulate -o coins.parquet", "--output", "format"),
    ("study simulate --html demo.pdf", "--html", "format"),
    ("study simulate --html x.html -o x.html", "--output", "format"),
    # exports
    ("export table a -o board.xlsx", "--output", "choice"),
    ("export table a -o notes.txt/board.csv", "--output", "path"),
    ("export hub a --model-id org/..", "--model-id", "format"),
    ("export hub a b --model-id a/b", "RUN", "mismatch"),
    ("export hub a --model-id a/b", "--dataset", "missing"),
    ("export hub b b-hmmt --model-id a/b --dataset c/d", "--dataset", "conflict"),
    ("export hub a --model-id a/b --dataset c/d --value pass@99", "--value", "choice"),
    ("export hub a --model-id a/b --source-name x", "--source-name", "conflict"),
    ("export every-eval-ever a", "--output", "usage"),
    ("export every-eval-ever a -o new", "--model-id", "missing"),
    ("export every-eval-ever a -o new --model-id b", "--model-id", "format"),
    ("export every-eval-ever a b -o new --model-id a/b", "--model-id", "format"),
    ("export every-eval-ever a b -o new --developer a", "--developer", "mismatch"),
    # judges
    ("study verify a --verifier judge --base-url http://h --device cpu", "--device", "conflict"),
    ("study verify a --verifier judge --batch-size 0", "--batch-size", "range"),
    ("study verify a --verifier judge --limit 0", "--limit", "range"),
    ("study verify a --verifier judge --max-length -1", "--max-length", "range"),
    ("study verify a b --verifier judge --out absent", "--out", "conflict"),
    # stores
    ("store merge a.sqlite ./a.sqlite -o a.sqlite", "--output", "duplicate"),
    ("store merge a.sqlite -o notes.txt/all", "--output", "path"),
    ("store export a.sqlite --format samples -o -", "--output", "conflict"),
    ("store export a.sqlite --json -o -", "--json", "conflict"),
]


def names_in(folder):
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize(("words", "argument", "rule"), REFUSED)
def test_what_is_refused_names_its_argument_and_writes_nothing(
    files, monkeypatch, words, argument, rule
):
    monkeypatch.chdir(files)
    before = names_in(files)
    assert refusal(*words.split()) == (argument, rule)
    assert names_in(files) == before


@pytest.mark.parametrize("name", ["empty", "notes.txt"])
def test_what_is_no_run_is_refused(files, name):
    assert refusal("summary", files / name)[0] == "RUN"


@pytest.mark.parametrize(
    "words",
    [
        "info absent.sqlite",
        "info notes.txt",
        "merge absent.sqlite -o new/all.sqlite",
        "export absent.sqlite -o new/a.jsonl",
        "prune absent.sqlite --trials-from 1",
    ],
)
def test_what_is_no_store_is_refused_and_no_file_is_made(files, monkeypatch, words):
    monkeypatch.chdir(files)
    before = names_in(files)
    name = words.split()[1]
    assert name in str(command_error("store", *words.split()))
    assert names_in(files) == before


def test_the_value_of_a_refused_option_is_in_the_error(files):
    error = command_error("compare", files / "a", files / "b", "--questions", -1)
    assert (error.argument, error.rule, error.value) == ("--questions", "range", -1)


def test_a_name_in_an_error_is_escaped(tmp_path):
    path = tmp_path / "no\x1b[31m\nte.txt"
    path.write_text("hello")
    refusal("store", "info", path)
