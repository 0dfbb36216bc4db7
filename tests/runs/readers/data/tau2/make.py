"""Make the results of tau2-bench in this folder: with tau2 1.0.1 (commit a2c0247) on the path.

Run it as ``TAU2_DATA_DIR=.../tau2-bench/data python make.py``, with the pandas of tau2's lock file,
2.3.3 (with pandas 3 the pass^k of tau2 counts trials that never ran). The answers of both models
are scripted: nothing is asked over a network. What the tool itself computed is printed, for the
tests.
"""

import json
import shutil
from pathlib import Path

from litellm import ModelResponse
from tau2.data_model.simulation import Results, TextRunConfig
from tau2.metrics.agent_metrics import compute_metrics
from tau2.runner import run_domain
from tau2.utils import llm_utils
from tau2.utils.utils import DATA_DIR

HERE = Path(__file__).parent

#: By model and task the letters of the trials: y does what is asked, n does nothing, l asks for
#: tools in a loop until the steps are used up, e raises an error on every attempt.
PLANS = {
    "openai/strong": {
        "create_task_1": "yyyn",
        "update_task_1": "yyyy",
        "update_task_with_initialization_data": "ynly",
        "impossible_task_1": "nyye",
    },
    "openai/weak": {
        "create_task_1": "ynnn",
        "update_task_1": "yynn",
        "update_task_with_initialization_data": "nnnn",
        "impossible_task_1": "nnln",
    },
}
CALLS = {
    "create_task_1": ("create_task", {"user_id": "user_1", "title": "Important Meeting"}),
    "update_task_1": ("update_task_status", {"task_id": "task_1", "status": "completed"}),
    "update_task_with_initialization_data": (
        "update_task_status",
        {"task_id": "task_2", "status": "completed"},
    ),
    "impossible_task_1": ("transfer_to_human_agents", {"summary": "It is not possible."}),
}
SAID = (
    "The agent acknowledged the previous context. The agent confirmed the task status was updated "
    "successfully."
)
state = {"trials": {}, "task": None, "letter": None}


def answer(model, content=None, call=None):
    message = {"role": "assistant", "content": content}
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    return ModelResponse(
        model=model,
        choices=[{"index": 0, "finish_reason": "stop", "message": message}],
        usage={"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57},
    )


def completion(model, messages, **kwargs):
    if model == "openai/user":
        n_said = sum(message["role"] == "assistant" for message in messages)
        return answer(model, "###STOP###" if n_said else f"Please: {state['task']}")
    if state["letter"] == "e":
        raise ConnectionError("the connection was lost")
    done = any(message["role"] == "tool" for message in messages[-1:])
    if state["letter"] == "l":
        return answer(model, call=("get_users", {}))
    if state["letter"] == "y" and not done:
        return answer(model, call=CALLS[state["task"]])
    return answer(model, SAID)


def watched(name):
    """Note which task and which trial begins."""
    from tau2.runner import batch

    run_single_task = batch.run_single_task

    def run(config, task, *args, **kwargs):
        key = (task.id, kwargs.get("seed"))
        trials = state["trials"].setdefault((name, task.id), [])
        if key not in trials:
            trials.append(key)
        state["task"] = task.id
        state["letter"] = PLANS[name][task.id][trials.index(key)]
        return run_single_task(config, task, *args, **kwargs)

    return batch, run_single_task, run


llm_utils.completion = completion
for name, plan in PLANS.items():
    run = f"readers_{name.partition('/')[2]}"
    folder = Path(DATA_DIR, "simulations", run)
    shutil.rmtree(folder, ignore_errors=True)
    batch, original, batch.run_single_task = watched(name)
    config = TextRunConfig(
        domain="mock",
        task_ids=list(plan),
        agent="llm_agent",
        llm_agent=name,
        llm_args_agent={"temperature": 0.5},
        llm_user="openai/user",
        llm_args_user={"temperature": 0.0},
        num_trials=4,
        max_steps=12,
        max_concurrency=1,
        max_retries=1,
        retry_delay=0.0,
        save_to=run,
        log_level="ERROR",
    )
    run_domain(config)
    batch.run_single_task = original
    path = folder / "results.json" if folder.is_dir() else folder.with_suffix(".json")
    results = Results.load(path)
    metrics = compute_metrics(results)
    print(name, metrics.as_dict())
    for simulation in results.simulations:
        reward = simulation.reward_info.reward if simulation.reward_info else None
        reason = simulation.termination_reason.value
        print(" ", simulation.task_id, simulation.trial, reward, reason)
    for simulation in results.simulations:
        simulation.messages = simulation.messages[2:3]
        for message in simulation.messages:
            message.raw_data = None
        if simulation.reward_info:
            simulation.reward_info.action_checks = None
        if simulation.info:
            simulation.info.pop("error_traceback", None)
    results.info.environment_info.policy = ""
    results.info.user_info.global_simulation_guidelines = None
    path = HERE / f"{name.partition('/')[2]}.json"
    results.save(path)
    path.write_text(json.dumps(json.loads(path.read_text())) + "\n")
results.simulations = results.simulations[:4]
results.save(HERE / "folder" / "results.json", format="dir")
