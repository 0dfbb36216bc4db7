"""Make the reports of SWE-bench in this folder: in an environment with swebench 5.0.2, run this.

The tests of instances run in containers, and are not run here: their logs are written below. What
`get_eval_report` says of a log is the report of an instance, and `make_run_report` writes that of
a run. The counts that it prints are in the reports.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

from swebench.harness.constants import END_TEST_OUTPUT, START_TEST_OUTPUT, TESTS_TIMEOUT
from swebench.harness.grading import get_eval_report
from swebench.harness.reporting import make_run_report
from swebench.types import TestSpec

HERE = Path(__file__).parent
IDS = ("django__django-1", "django__django-2", "sympy__sympy-3", "sympy__sympy-4", "flask__flask-5")
#: Per run: resolved, unresolved, time-out, error, no patch, or not submitted.
RUNS = {
    "org/weak-1.5": ("RUTE-", "RNUR-", "RURU-"),
    "org/strong": ("RRUR-", "RRUE-", "RRRR-"),
}


def run(model, run_id, letters):
    predictions = {}
    for id, letter in zip(IDS, letters, strict=True):
        if letter == "-":
            continue
        patch = "" if letter == "N" else "diff --git a/x b/x"
        named = {"instance_id": id, "model_name_or_path": model, "model_patch": patch}
        predictions[id] = named
        if letter == "N":
            continue
        folder = Path("logs", "run_evaluation", run_id, model.replace("/", "__"), id)
        folder.mkdir(parents=True)
        status = "PASSED" if letter == "R" else "FAILED"
        output = TESTS_TIMEOUT if letter == "T" else f"{status} tests.py::test_new"
        log = folder / "test_output.txt"
        log.write_text(f"{START_TEST_OUTPUT}\n{output}\n{END_TEST_OUTPUT}\n")
        if letter == "E":
            continue
        spec = TestSpec(
            *(id, "", [], id.partition("__")[0], "1", ["tests.py::test_new"], []),
            log_parser="parse_log_pytest",
            eval_type="pass_and_fail",
        )
        report = get_eval_report(spec, named, str(log), include_tests_status=True)
        (folder / "report.json").write_text(json.dumps(report, indent=4))
    make_run_report(predictions, [{"instance_id": id} for id in IDS], run_id)


work = Path(tempfile.mkdtemp())
os.chdir(work)
for model, runs in RUNS.items():
    for number, letters in enumerate(runs, 1):
        run(model, f"run_{number}", letters)
for report in work.glob("*.json"):
    shutil.copy(report, HERE)
kept = Path("logs", "run_evaluation", "run_1")
for folder in (work / kept).glob("*/*"):
    target = HERE / kept / folder.relative_to(work / kept)
    target.mkdir(parents=True, exist_ok=True)
    if (folder / "report.json").exists():
        shutil.copy(folder / "report.json", target)
    else:
        (target / "run_instance.log").write_text("no report was written\n")
