"""Graders of contest answers on graded cases: the table of docs/tasks.md.

    python grading.py                                   # the cases beside this script
    python grading.py CASES.jsonl … --write             # other files too, into the page
    python grading.py --matharena matharena/src         # with a checkout of eth-sri/matharena

A case is a line of JSON: kind (aime or math), gold, response, and right, the verdict of a reader.
Every other grader is the tool's own code, called as the tool calls it; a row is left out where its
code is not installed. Those of the harness and of MathArena need antlr4-python3-runtime 4.11, and
MathArena's also loguru and regex.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "docs" / "tasks.md"
OWN_CASES = Path(__file__).with_name("grading_cases.jsonl")
MARK = "<!-- made by grading.py -->"
#: Seconds after which a grader's answer counts as wrong.
TIMEOUT = 10

Grader = Callable[[str, str, str], bool]


def ours() -> Grader:
    from lm_eval_bayes.harness.grading.grade import grade

    return lambda response, gold, kind: grade(response, gold, kind=kind).correct


def math_verify() -> Grader:
    from math_verify import parse, verify

    return lambda response, gold, kind: verify(parse(rf"\boxed{{{gold}}}"), parse(response))


def matharena() -> Grader:
    from loguru import logger
    from matharena.parser import check_answers, extract_answer, parse_answer

    logger.remove()

    def grade(response: str, gold: str, kind: str) -> bool:
        several = "," in gold
        answer, _ = extract_answer(response, strict_parsing=False, parse=True, list_answer=several)
        return check_answers(answer, parse_answer(gold, list_answer=several)[0])

    return grade


def harness_aime() -> Grader:
    from lm_eval.tasks.aime.utils import process_results

    return lambda response, gold, kind: bool(
        process_results({"answer": gold}, [response])["exact_match"]
    )


def harness_hendrycks() -> Grader:
    from lm_eval.tasks.hendrycks_math.utils import process_results

    return lambda response, gold, kind: bool(
        process_results({"solution": rf"\boxed{{{gold}}}"}, [response])["exact_match"]
    )


def harness_minerva() -> Grader:
    from lm_eval.tasks.minerva_math.utils import normalize_final_answer, process_results

    def grade(response: str, gold: str, kind: str) -> bool:
        doc = {"solution": rf"\boxed{{{gold}}}", "answer": normalize_final_answer(gold)}
        return bool(process_results(doc, [response])["exact_match"])

    return grade


GRADERS: dict[str, Callable[[], Grader]] = {
    "lm-eval-bayes": ours,
    "math-verify": math_verify,
    "MathArena": matharena,
    "the harness's `aime`": harness_aime,
    "the harness's `hendrycks_math`": harness_hendrycks,
    "the harness's `minerva_math`": harness_minerva,
}


def _too_slow(*_: object) -> None:
    raise TimeoutError


def errors(grader: Grader, cases: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the false positives and the false negatives of a grader."""
    false_positives = false_negatives = 0
    for case in cases:
        signal.signal(signal.SIGALRM, _too_slow)
        signal.alarm(TIMEOUT)
        try:
            correct = grader(case["response"], case["gold"], case["kind"])
        except Exception:  # whatever a grader raises, its tool counts the answer as wrong
            correct = False
        finally:
            signal.alarm(0)
        false_positives += correct and not case["right"]
        false_negatives += case["right"] and not correct
    return false_positives, false_negatives


def table(paths: list[Path]) -> str:
    """Return a row for each grader, with false positives and false negatives on each file."""
    files = [[json.loads(line) for line in path.read_text("utf-8").splitlines()] for path in paths]
    heads = [f"{path.stem}, {len(cases)} cases" for path, cases in zip(paths, files, strict=True)]
    lines = ["| grader | " + " | ".join(heads) + " |", "|---|" + "---|" * len(paths)]
    for name, load in GRADERS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of how their sources are written
                grader = load()
        except (ImportError, AssertionError) as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        counts = (errors(grader, cases) for cases in files)
        lines.append("| ".join((f"| {name} ", *(f"{fp}, {fn} " for fp, fn in counts))) + "|")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", type=Path, help="files of cases")
    parser.add_argument("--matharena", type=Path, help="the folder that holds its package")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    if options.matharena:
        sys.path.insert(0, str(options.matharena))
    rows = table([*options.cases, OWN_CASES])
    print(rows)
    if options.write:
        before, _, after = PAGE.read_text(encoding="utf-8").split(MARK)
        PAGE.write_text(f"{before}{MARK}\n\n{rows}\n\n{MARK}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
