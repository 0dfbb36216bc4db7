"""The example of a community leaderboard against submissions that are broken or hostile.

Every entry of HOSTILE writes one submission into a copy of the example. The page is built once with
all of them, and must be what it is without them, but for the list of what was left out.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from urllib.parse import unquote

import pytest
from _support.community_board import EXAMPLE, build, copy_of_the_example

IDS = (EXAMPLE / "questions.txt").read_text(encoding="utf-8").split()
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names that Linux allows")


def about(folder, text=None):
    """Write a submission.yaml that is in order, or another."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "".join(c for c in folder.name if c.isascii() and c.isalnum())[:50]
    text = f"model: evil-{name}\nowner: intruder\n" if text is None else text
    data = text if isinstance(text, bytes) else text.encode()
    (folder / "submission.yaml").write_bytes(data)


def counts(folder, c=4, n=4, ids=IDS, name="counts.csv"):
    """Write outcomes that are in order, or others."""
    rows = "".join(f"{id},{c},{n}\n" for id in ids)
    (folder / name).write_text(f"id,c,n\n{rows}", encoding="utf-8")


def described(text):
    """Return a writer of good outcomes under this submission.yaml."""

    def write(folder):
        about(folder, text)
        counts(folder)

    return write


def named(model):
    return described(f"model: {json.dumps(model)}\nowner: intruder\n")


def file(name, content):
    """Return a writer of one file of outcomes beside a good submission.yaml."""

    def write(folder):
        about(folder)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def table(*rows):
    return "\n".join(["id,c,n", *rows]) + "\n"


def counted(c, n):
    return file("counts.csv", table(*(f"{id},{c},{n}" for id in IDS)))


def record(score="1", trial='"0"', question='"aime-2025-II-01"'):
    text = f'{{"evaluation": {{"score": {score}}}, "metadata": {{"trial": {trial}}}, '
    return file("a_samples.jsonl", f'{text}"sample_id": {question}}}\n')


def in_order(folder):
    """A submission that is in order: only its name or its model is not."""
    about(folder)
    counts(folder)


def undescribed(folder):
    folder.mkdir()
    counts(folder)


def with_link(target):
    def write(folder):
        about(folder)
        (folder / "counts.csv").symlink_to(target)

    return write


def is_link(folder):
    folder.symlink_to(folder.parent / "gpt-4o")


def is_pipe(folder):
    about(folder)
    os.mkfifo(folder / "counts.csv")


def many_files(folder):
    in_order(folder)
    for i in range(60):
        counts(folder, name=f"counts-{i}.csv")


def sparse(folder):
    about(folder)
    with (folder / "trials.csv").open("wb") as stream:
        stream.truncate(10**11)


def gz_bomb(folder):
    about(folder)
    with gzip.open(folder / "trials.csv.gz", "wb") as stream:
        for _ in range(20):
            stream.write(b"0" * 10**6)


def harness_log(*, weights):
    """A log of the harness whose configuration gives right trials another score."""

    def write(folder):
        about(folder)
        bayes = {"weights": weights}
        config = {"task": "t", "metadata": {"bayes": bayes}, "output_type": "generate_until"}
        results = {"results": {"t": {}}, "configs": {"t": config}, "model_name": "m"}
        (folder / "results_2025-01-01T00-00-00.000000.json").write_text(json.dumps(results))
        lines = [
            {"doc_id": i, "doc_hash": id, "outcomes": [1] * 4, "resps": [[""] * 4]}
            for i, id in enumerate(IDS)
        ]
        text = "\n".join(map(json.dumps, lines))
        (folder / "samples_t_2025-01-01T00-00-00.000000.jsonl").write_text(text)

    return write


LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n"
    for a, b in zip("abcdefghi", "bcdefghij", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{b}: &{b} {{<<: [{','.join([f'*{a}'] * 10)}]}}\n"
    for a, b in zip("abcdefghi", "bcdefghij", strict=True)
)
DEEP = "[" * 200_000

#: The name of the folder, what writes it, and a part of the sentence that must name it.
HOSTILE = {
    # numbers
    "trial-1e400": (record(trial="1e400"), "a whole number of up to 9 digits as `trial`"),
    "score-nan": (record(score="NaN"), "score 0 or 1"),
    "counts-nan": (counted("nan", "nan"), ""),
    "counts-beyond-int64": (counted(10**30, 10**30), ""),
    "weights-of-a-hundred": (harness_log(weights=[0, 100]), ""),
    # contents
    "not-utf8-records": (
        file("a_samples.jsonl", b"\xff\xfe\x00{}"),
        "a_samples.jsonl must be UTF-8",
    ),
    "deep-records": (file("a_samples.jsonl", DEEP), "is no record"),
    "other-questions": (file("counts.csv", table("elsewhere,1,4")), "16 questions are missing"),
    "command-question": (
        file("counts.csv", table(*(f"{id},4,4" for id in [*IDS, "::error::x"]))),
        "such as ::error::x",
    ),
    "no-outcomes": (about, ""),
    "no-about": (undescribed, "submission.yaml is missing"),
    "two-models": (
        file(
            "counts.csv", "model,id,c,n\n" + "".join(f"{m},{id},4,4\n" for m in "ab" for id in IDS)
        ),
        "there are 2 runs",
    ),
    # files
    "link-to-passwd": (with_link("/etc/passwd"), "counts.csv is a link"),
    "link-as-folder": (is_link, "not a file or a link"),
    "many-files": (many_files, "at most 50 files"),
    "pipe": (is_pipe, "no regular file"),
    "sparse-100-gb": (sparse, "at most 5,000,000 bytes"),
    "gz-bomb": (gz_bomb, "got trials.csv.gz"),
    "code": (file("conftest.py", "open('pwned', 'w')"), "got conftest.py"),
    "file-named-newline": (file("a\n::error::b.csv", table("q,1,4")), "the names in it"),
    # names of folders
    "a\n::error file=x::folder": (in_order, "the folder's name"),
    "a\r\x1b[31m\u202efolder": (in_order, "the folder's name"),
    "a..b": (in_order, "the folder's name"),
    "-rf": (in_order, "the folder's name"),
    "$(touch pwned)": (in_order, "the folder's name"),
    "<script>alert(1)<script>": (in_order, "the folder's name"),
    "gpt-4\u043e": (in_order, "the folder's name"),
    "bytes-\udcff": (in_order, "the folder's name"),
    # submission.yaml
    "yaml-code": (described("model: !!python/object/apply:os.system ['touch pwned']\n"), "`model`"),
    "yaml-laughs": (described(f"{LAUGHS}model: *j\nowner: intruder\n"), "`model`"),
    "yaml-merges": (described(f"{MERGES}model: *j\nowner: intruder\n"), "`model`"),
    "yaml-deep": (described("[" * 9_000), "no YAML"),
    "yaml-long": (described("model: evil\n" + "# more\n" * 5_000), "at most 10,000 bytes"),
    "yaml-owner-path": (described("model: evil-path\nowner: ../../MathArena\n"), "`owner`"),
    "yaml-script-link": (
        described("model: evil-s\nowner: intruder\nlink: 'javascript:alert(1)'\n"),
        "`link`",
    ),
    "yaml-sender-lines": (
        described('model: evil-x\nowner: intruder\nsubmitted_by: "a\\n::error::b"\n'),
        "`submitted_by`",
    ),
    # names of models
    "AAA-owner": (named("gpt-4o"), "belongs to the folder gpt-4o of MathArena"),
    "model-case": (named("GPT-4O"), "too like gpt-4o"),
    "model-zero": (named("gpt-40"), "too like gpt-4o"),
    "model-parentheses": (named("o3-mini-high"), "too like o3-mini (high)"),
    "model-cyrillic": (named("gpt-4\u043e"), "`model`"),
    "model-control": (named("a\x1b[31m"), "`model`"),
    "model-html": (named("<b>x</b>|"), "`model`"),
    "model-slow": (named("a" + "(" * 90 + "!"), "`model`"),
    "twins-1": (named("evil twin"), "the folders twins-1 and twins-2 claim one model"),
    "twins-2": (named("Evil-Twin"), "the folders twins-1 and twins-2 claim one model"),
}


def files_of(folder):
    """Return every path below a folder with its size, but for the page."""
    return {
        path: path.lstat().st_size
        for path in folder.rglob("*")
        if path.parent != folder / "leaderboard" / "page" and not path.is_dir()
    }


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """The page without the hostile submissions, and what came of it with all of them."""
    folder = tmp_path_factory.mktemp("hostile") / "leaderboard"
    copy_of_the_example(folder)
    assert build(folder)[0] == 0
    genuine = {path.name: path.read_bytes() for path in (folder / "page").iterdir()}
    for name, (write, _) in HOSTILE.items():
        write(folder / "submissions" / name)
    before = files_of(folder.parent)
    code, out, err = build(folder)
    assert code == 0, err
    assert files_of(folder.parent) == before
    return folder, genuine, out, err


@pytest.mark.slow
def test_the_page_keeps_every_number_and_rank(attacked):
    folder, genuine, out, _ = attacked
    assert out == f"page/README.md: 6 models, {len(HOSTILE)} submissions left out\n"
    page = {path.name: path.read_bytes() for path in (folder / "page").iterdir()}
    assert set(page) == set(genuine)
    for name in ("leaderboard.csv", "leaderboard.json"):
        assert page[name] == genuine[name]
    kept, _, foot = page["README.md"].decode().partition("\n## Left out\n")
    assert kept == genuine["README.md"].decode()
    assert len(foot.strip().splitlines()) == len(HOSTILE)
    assert foot.isascii()
    assert "<script>" not in foot.replace("\\<script\\>", "")


@pytest.mark.slow
def test_every_one_is_named_in_one_line_of_plain_text(attacked):
    folder, _, _, err = attacked
    lines = err.splitlines()
    assert len(lines) == len(HOSTILE)
    for line in lines:
        assert line.startswith("left out: ")
        assert line.isascii()
        assert line.isprintable()
        assert "::" not in line
        assert "##[" not in line
        assert len(line) <= 300
        assert str(folder.parent) not in line
    # names have no ": ", reasons begin after it
    reasons = dict(unquote(line[10:], errors="surrogatepass").split(": ", 1) for line in lines)
    assert set(reasons) == set(HOSTILE)
    for name, (_, part) in HOSTILE.items():
        assert part in reasons[name], (name, reasons[name])


@pytest.mark.slow
def test_nothing_ran_and_no_owner_changed(attacked):
    folder, _, _, _ = attacked
    assert not list(folder.parent.rglob("pwned"))
    assert (folder / "owners.yaml").read_bytes() == (EXAMPLE / "owners.yaml").read_bytes()


@pytest.mark.slow
def test_a_check_refuses_every_one_and_no_genuine_one(attacked):
    folder, _, _, _ = attacked
    code, out, _ = build(folder, "--check", "submissions/gpt-4o", PR_AUTHOR="MathArena")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "counts: gpt-4o"
    assert len(lines) == 1 + len(HOSTILE)
    assert all(line.startswith("left out before, ") for line in lines[1:])
    assert not any("::" in line for line in lines)
    code, out, _ = build(folder, "--check", *(f"submissions/{name}" for name in HOSTILE))
    assert code == 1
    lines = out.splitlines()
    assert len(lines) == len(HOSTILE)
    assert all(line.startswith("refused: ") and "::" not in line for line in lines)
    assert build(folder, "--check")[0] == 1


@pytest.mark.slow
def test_the_same_log_with_the_usual_scores_counts(tmp_path):
    folder = tmp_path / "leaderboard"
    copy_of_the_example(folder)
    harness_log(weights=[0, 1])(folder / "submissions" / "log")
    code, out, _ = build(folder, "--check", "submissions/log/")
    assert (code, out) == (0, "counts: log\n")
