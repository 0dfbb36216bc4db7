"""Programs are graded several at a time, each in a process of its own."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from _support.errors import refused
from _support.toy import ScriptedLM, all_rows, evaluate, toy_config

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.grading import worker_pool
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(sys.platform != "linux", reason="other platforms grade one by one"),
]


def grade(response):
    if response == "error":
        raise ValueError("no such function")
    if response == "exit":
        sys.exit(2)
    if response == "end":
        os._exit(3)
    if response == "configuration":
        raise TaskConfigError("no such metric", "choice", "bayes_metric")
    return {"pid": os.getpid(), "length": len(response)}


def test_an_error_belongs_to_its_response():
    failing = ["error", "exit", "end", "end"]
    replies = worker_pool.replies(grade, [*failing, "ab", "abc"])
    assert [kind for kind, _ in replies] == ["error"] * 4 + ["result"] * 2
    assert [value["length"] for _, value in replies[len(failing) :]] == [2, 3]
    with refused("bayes_metric", "choice", error=TaskConfigError):
        worker_pool.replies(grade, ["ab", "configuration"])


def test_a_process_that_a_program_leaves_behind_is_not_waited_for(tmp_path):
    def leave(response):
        left = os.fork()
        if left == 0:
            time.sleep(600)
            os._exit(0)
        (tmp_path / "pid").write_text(str(left))
        os._exit(3)

    ((kind, _),) = worker_pool.replies(leave, ["a"])
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)  # it still sleeps
    assert kind == "error"


def test_a_task_that_runs_code_is_graded_in_other_processes():
    def run(doc, results):
        return {"exact_match": eval(results[0]) == int(doc["answer"]), "answer": str(os.getpid())}

    script = {"1 + 1 =": ["2", "1 + 1", "1 / 0", "3"], "2 + 2 =": ["5"], "3 + 3 =": ["6"]}
    config = toy_config(process_results=run, unsafe_code=True)
    results = evaluate(
        ScriptedLM(script), RepeatedSamplingTask(config=config), confirm_run_unsafe_code=True
    )
    samples = results["samples"]["toy"]
    assert [sample["outcomes"] for sample in samples] == [[1, 1, 0, 0], [0] * 4, [1] * 4]
    assert samples[0]["grading_error_notes"] == {2: "ZeroDivisionError: division by zero"}
    assert all_rows(results)["grading_error_share,none"] == 1 / 12
    assert str(os.getpid()) not in {answer for s in samples for answer in s["answers"]}
