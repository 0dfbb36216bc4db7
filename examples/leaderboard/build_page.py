"""Merge all submissions of a community leaderboard into one ranking page.

A submission is a folder with a `submission.yaml` (model, owner, link, submitted_by) and the
outcomes: a table, the samples of the harness, or what
`lm-eval-bayes export every-eval-ever --instances` wrote. What cannot be read is left out and
named, so that one broken submission does not take the page down.

    python build_page.py                          # write the page, and owners.yaml
    python build_page.py --check                  # write nothing; exit code 1 if any is left out
    python build_page.py --check submissions/mine # exit code 1 if this one is left out

With the variable PR_AUTHOR, `--check FOLDER` also refuses a folder that belongs to somebody else.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

# not `submissions`: that folder is other people's, and an __init__.py in it would run
from read_submissions import Owner, Submission, collect, plain, read_owners, same_user

from lm_eval_bayes.analysis.leaderboard import leaderboard
from lm_eval_bayes.export.files import write_files
from lm_eval_bayes.export.tables import markdown_cell, table_text
from lm_eval_bayes.stats.intervals import IntervalSpec

RECORD = """\
# The model of every folder and the GitHub user who may change it. build_page.py adds a folder when
# it first counts, and changes no entry. Edit or delete one by hand to hand a model over.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("leaderboard.yaml"))
    parser.add_argument("--check", action="store_true", help="only look; exit code 1 if any fails")
    parser.add_argument("folders", nargs="*", help="with --check: only these submissions")
    args = parser.parse_args()
    if args.folders and not args.check:
        parser.error("FOLDER must come with --check")
    config = yaml.safe_load(args.config.read_text(encoding="utf-8"))
    for key in ("title", "submissions", "page", "questions", "owners"):
        if not isinstance(config.get(key), str):
            parser.error(f"`{key}` in {args.config.name} must be a text; got {config.get(key)!r}")
    # paths are relative from here on: no message can tell where the leaderboard lies
    os.chdir(args.config.resolve().parent)
    owners = read_owners(Path(config["owners"]))
    taken, left_out = collect(config, owners)
    if args.folders:
        names = [folder.rstrip("/").split("/")[-1] for folder in args.folders]
        return check_named(names, taken, left_out, owners)
    for folder, why in left_out.items():
        print(plain(f"left out: {folder}: {why}"), file=sys.stderr)
    if args.check:
        print(f"{len(taken)} submissions count, {len(left_out)} do not")
        return 1 if left_out or not taken else 0
    if not taken:
        print("there is no submission that counts; the page stays as it is", file=sys.stderr)
        return 1
    board = leaderboard(
        [submission.run for submission in taken],
        IntervalSpec(config.get("level", 0.95), config.get("scope", "benchmark")),
        ties=config.get("ties", "simultaneous"),
    )
    folder = Path(config["page"])
    texts = {
        folder / "README.md": page(config, board, taken, left_out),
        folder / "leaderboard.csv": table_text([board], ".csv"),
        folder / "leaderboard.json": table_text([board], ".json"),
    }
    recorded = owners | {s.folder: s.owner for s in taken if s.folder not in owners}
    if recorded != owners:
        texts[Path(config["owners"])] = RECORD + yaml.safe_dump(
            {name: vars(owner) for name, owner in recorded.items()}
        )
    write_files({path: text.encode() for path, text in texts.items()}, overwrite=True)
    print(f"{folder / 'README.md'}: {len(taken)} models, {len(left_out)} submissions left out")
    return 0


def check_named(
    names: list[str],
    taken: list[Submission],
    left_out: Mapping[str, str],
    owners: Mapping[str, Owner],
) -> int:
    """Say of the named submissions whether they count; return the exit code."""
    author, counting = os.environ.get("PR_AUTHOR"), {s.folder: s for s in taken}
    refused = False
    for name in dict.fromkeys(names):
        owner = owners.get(name) or (counting[name].owner if name in counting else None)
        if author is not None and owner is not None and not same_user(owner.owner, author):
            why = f"it belongs to {owner.owner}; the pull request is from {author}"
        elif name in counting:
            print(plain(f"counts: {name}"))
            continue
        elif name in left_out:
            why = left_out[name]
        elif name in owners:
            print(plain(f"withdrawn: {name}"))
            continue
        else:
            why = "there is no such folder, or its name begins with a point"
        refused = True
        print(plain(f"refused: {name}: {why}"))
    for name, why in left_out.items():
        if name not in names:
            print(plain(f"left out before, not part of this check: {name}: {why}"))
    return 1 if refused else 0


# -- the page -------------------------------------------------------------------------------------


def page(config: Mapping, board, taken: list[Submission], left_out: Mapping[str, str]) -> str:
    """Write the page. Everything that came with a submission is escaped."""
    senders = [
        f"| {markdown_cell(row.run.model)} | {markdown_cell(row.submitted_by)} | "
        f"{markdown_cell(row.owner.owner)} | {f'<{row.link}>' if row.link else ''} | "
        f"`{row.folder}` |"
        for row in taken
    ]
    head = ["| Model | Sent by | Owner | Link | Folder |", f"|{' :--- |' * 5}"]
    parts = [
        f"# {markdown_cell(config['title'])}",
        markdown_cell(config.get("about", "").strip()),
        table_text([board], ".md").split("\n\n", 1)[1].strip(),
        "## P(row scores more than column)",
        pairs(board),
        "## Submissions",
        "\n".join([*head, *senders]),
    ]
    if left_out:
        reasons = [f"- {markdown_cell(plain(f'{f}: {why}'))}" for f, why in left_out.items()]
        parts += ["## Left out", "\n".join(reasons)]
    return "\n\n".join(part for part in parts if part) + "\n"


def pairs(board) -> str:
    """Return the table of P(A > B)."""
    names = [markdown_cell(name) for name in board.models]
    lines = [f"| | {' | '.join(names)} |", f"| :--- |{' ---: |' * len(names)}"]
    for i, name in enumerate(names):
        cells = [
            "" if i == j else f"{p:.2f}" for j, p in enumerate(board.ranking.p_greater[i].tolist())
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
