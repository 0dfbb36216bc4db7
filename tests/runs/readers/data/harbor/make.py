"""Make the job of Harbor in this folder with the records of Harbor 0.25.0 (pip install harbor).

No trial is run: that needs containers. The results of trials are filled in here and written by the
models and under the names that Harbor uses; settings are left out. What Harbor's own statistics and
pass@k are is printed, for the tests.
"""

import json
import sys
import typing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import UUID

import typing_extensions

if sys.version_info < (3, 12):  # Harbor needs Python 3.12, its models do not
    typing.TypedDict = typing_extensions.TypedDict
    typing.override = typing_extensions.override

from harbor.models.agent.context import AgentContext
from harbor.models.job.result import JobResult, JobStats
from harbor.models.task.id import LocalTaskId
from harbor.models.trial.config import TaskConfig, TrialConfig
from harbor.models.trial.result import AgentInfo, ExceptionInfo, ModelInfo, TimingInfo, TrialResult
from harbor.models.verifier.result import VerifierResult
from harbor.utils.pass_at_k import compute_pass_at_k_by_evals

HERE = Path(__file__).parent
JOB = UUID("6f3a4f0e-1d52-4f0b-9d0f-2a4c1f6c0a01")
START = datetime(2026, 1, 5, 12, 0, tzinfo=timezone.utc)
#: By model and task the letters of the trials: y and n passed or not, t ran out of time and passed,
#: u ran out of time and failed, e ended in an error before the tests ran.
PLANS = {
    "strong": {"fix-git": "yyty", "hello-world": "yyyy", "solve-maze": "nyuy", "chess": "enyy"},
    "weak": {"fix-git": "nyny", "hello-world": "yyny", "solve-maze": "nnnn", "chess": "eenn"},
}


def trial(model, task, number, letter):
    seconds = 60 * number + len(task)
    started = START + timedelta(seconds=seconds)
    ended = started + timedelta(seconds=30)
    name = f"{task}__{model[0]}{number}abcde"
    folder = Path("tasks", task)
    exception = None
    if letter in "tue":
        kind = "ApiConnectionError" if letter == "e" else "AgentTimeoutError"
        exception = ExceptionInfo(
            exception_type=kind,
            exception_message="it took too long" if letter != "e" else "no connection",
            exception_traceback="",
            occurred_at=ended,
        )
    return TrialResult(
        id=UUID(int=1000 * (model == "weak") + 100 * len(task) + number),
        task_name=task,
        trial_name=name,
        trial_uri=f"file:///jobs/letters/{name}",
        task_id=LocalTaskId(path=folder),
        source="letters",
        task_checksum="0" * 8,
        config=TrialConfig(
            task=TaskConfig(path=folder, source="letters"),
            trial_name=name,
            trials_dir=Path("jobs/letters"),
            job_id=JOB,
        ),
        agent_info=AgentInfo(
            name="terminus-2", version="2.0.0", model_info=ModelInfo(name=model, provider="mock")
        ),
        agent_result=AgentContext(n_input_tokens=100, n_output_tokens=10, cost_usd=0.25),
        verifier_result=None
        if letter == "e"
        else VerifierResult(rewards={"reward": float(letter in "yt")}),
        exception_info=exception,
        started_at=started,
        finished_at=ended,
        agent_execution=TimingInfo(started_at=started, finished_at=started + timedelta(seconds=20)),
    )


folder = HERE / "letters"
trials = [
    trial(model, task, number, letter)
    for model, plan in PLANS.items()
    for task, letters in plan.items()
    for number, letter in enumerate(letters)
]
for result in trials:
    path = folder / result.trial_name / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.loads(result.model_dump_json())
    kept = ("task", "trial_name", "trials_dir", "job_id")
    content["config"] = {key: content["config"][key] for key in kept}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
job = JobResult(
    id=JOB,
    started_at=START,
    updated_at=START,
    finished_at=START + timedelta(hours=1),
    n_total_trials=len(trials) + 1,
    stats=JobStats.from_trial_results(trials, n_total_trials=len(trials) + 1),
)
exclude = {"trial_results"}
text = job.model_dump_json(indent=4, exclude=exclude)
(folder / "result.json").write_text(text + "\n", encoding="utf-8")
print(json.dumps(compute_pass_at_k_by_evals(trials)))
for name, stats in job.stats.evals.items():
    rewards = {reward: len(names) for reward, names in stats.reward_stats["reward"].items()}
    print(name, stats.n_trials, stats.n_errors, rewards)
