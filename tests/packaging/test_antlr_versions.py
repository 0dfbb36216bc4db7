"""Grades with the oldest and the newest parser runtime that math-verify reads LaTeX with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _support.paths import REPOSITORY, SHARED

pytestmark = pytest.mark.slow

GRADES = """
import json, sys
from importlib.metadata import version
from lm_eval_bayes.harness.grading.grade import grade

def main():
    cases = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
    grades = [grade(case["response"], case["gold"], kind=case["kind"]).correct for case in cases]
    print(json.dumps([version("antlr4-python3-runtime"), grades]))

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("version", ["4.9.3", "4.13.2"])
def test_grades_do_not_depend_on_the_parser_runtime(tmp_path: Path, version: str) -> None:
    cases = SHARED / "cases" / "grading_holds.jsonl"
    if not cases.exists():
        pytest.skip(f"the graded cases are not there: {cases.name}")
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=1800)
    runtime = tmp_path / "runtime"
    install = [environment / "bin" / "pip", "install", "--quiet", "--target", runtime]
    subprocess.run([*install, f"antlr4-python3-runtime=={version}"], check=True, timeout=1800)
    script = tmp_path / "grades.py"
    script.write_text(GRADES, encoding="utf-8")
    path = os.pathsep.join(map(str, (runtime, REPOSITORY)))
    done = subprocess.run(
        [sys.executable, script, cases],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    used, grades = json.loads(done.stdout)
    assert used == version
    right = [json.loads(line)["right"] for line in cases.read_text(encoding="utf-8").splitlines()]
    assert grades == right
