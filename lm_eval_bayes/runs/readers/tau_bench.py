"""Results of tau2-bench (and tau3) and of tau-bench: JSON files, and folders of them.

A task of a domain is a question, a simulation of it a trial. A trial succeeds where its reward is
1, to within 10^-6, as for the pass^k of both tools. A simulation that never ran does not count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes.runs.log_fields import lookup, mapping, mappings
from lm_eval_bayes.runs.readers.json_files import (
    broken,
    load_json,
    name_of,
    score_of,
    text_of,
    timestamp,
    total,
)
from lm_eval_bayes.runs.readers.protocol import FileContents, Query, files_beside
from lm_eval_bayes.runs.readers.tool_log import ToolLog, Trial, call_settings, matches
from lm_eval_bayes.runs.task_run import Provenance

#: How results of tau2-bench and of tau-bench begin.
_BEGINNING = re.compile(
    rb'\s*\{\s*("timestamp"\s*:\s*(null|"[^"]*")\s*,\s*)?"info"\s*:\s*\{\s*"git_commit"\s*:'
    rb'|\s*\[\s*\{\s*"task_id"\s*:\s*\d+\s*,\s*"reward"\s*:\s*[\d.e+-]+\s*,\s*"info"'
)

#: The name of a file that tau-bench wrote: strategy, model, temperature, tasks, simulated user.
_NAME = re.compile(
    r"(?P<agent>tool-calling|act|react|few-shot)-(?P<model>.+)-(?P<temperature>\d+(\.\d+)?)"
    r"_range_-?\d+--?\d+_user-(?P<user>.+)_\d{10}"
)

#: Ends of a simulation at which one of the two said that it is over; that of one that never ran.
_SAID, _NEVER_RAN = ("", "user_stop", "agent_stop"), "infrastructure_error"

#: Both tools report pass^k for every k up to the number of trials; of more, powers of two.
_KS = tuple(range(1, 9))


#: Whether a file is one of results.
is_mine = matches(_BEGINNING)


def read(file: Path, query: Query) -> FileContents:
    """Read results."""
    warnings: list[str] = []
    log = ToolLog(file, query, records=lambda query: _trials(file, warnings))
    log.warnings += warnings
    is_tau2 = any(trial.provenance.versions for trial in log.trials)
    return log.contents("tau2" if is_tau2 else "tau-bench")


def _trials(file: Path, warnings: list[str]) -> Iterator[Trial]:
    content = load_json(file)
    is_tau1 = isinstance(content, list)
    return _of_tau1(content, file) if is_tau1 else _of_tau2(mapping(content), file, warnings)


def _scores(reward: Any) -> dict[str, Any]:
    real = score_of(reward)
    return {"success": reward if real is None else float(abs(real - 1) <= 1e-6), "reward": reward}


def _of_tau2(content: Mapping[str, Any], file: Path, warnings: list[str]) -> Iterator[Trial]:
    info, tasks = mapping(content, "info"), mappings(content.get("tasks"))
    agent, user = mapping(info, "agent_info"), mapping(info, "user_info")
    domain = name_of(lookup(info, "environment_info", "domain_name"))
    simulations = mappings(content.get("simulations"))
    if not simulations and (file.parent / "simulations").is_dir():
        files = files_beside(file.parent / "simulations" / "any", "*.json")
        simulations = [_simulation(path) for path in files]
    simulations = simulations or mappings(content.get("simulation_index"))
    n_trials = info.get("num_trials")
    n_planned = len(tasks) * n_trials if type(n_trials) is int and n_trials < 2**20 else 0
    if 0 < len(simulations) < n_planned:
        warnings.append(f"{file} holds {len(simulations):,} of {n_planned:,} planned simulations")
    started = name_of(content.get("timestamp"))
    first = started or name_of(simulations[0].get("id")) if simulations else ""
    common = Trial(
        model=name_of(agent.get("llm")) or name_of(agent.get("implementation")),
        task=domain,
        run=" ".join([first, name_of(agent.get("llm")), domain]),
        provenance=Provenance(
            generation_kwargs=call_settings(agent.get("llm_args")),
            date=timestamp(started),
            versions={"git_commit": name_of(info.get("git_commit"))},
            dataset=domain,
            setup={"agent": name_of(agent.get("implementation")), "user": name_of(user.get("llm"))},
            ks=_KS,
        ),
    )
    by_id = {name_of(task.get("id")): task for task in tasks}
    for simulation in simulations:
        id, reason = (name_of(simulation.get(key)) for key in ("task_id", "termination_reason"))
        about = mapping(simulation, "reward_info") or simulation
        messages = mappings(simulation.get("messages"))
        replies = (m for m in messages if m.get("role") == "assistant")
        yield replace(
            common,
            question=id,
            label=simulation.get("trial"),
            key=name_of(simulation.get("id")),
            scores={} if reason == _NEVER_RAN else _scores(about.get("reward")),
            error="" if reason in _SAID else reason,
            text=_text(by_id.get(id, {})),
            document=by_id.get(id, {}),
            reply=simulation.get("messages"),
            cost=simulation.get("agent_cost"),
            time=simulation.get("duration"),
            tokens=total(lookup(m, "usage", "completion_tokens") for m in replies),
        )


def _simulation(file: Path) -> Mapping[str, Any]:
    """Return the simulation in a file, whose errors name it."""
    simulation = mapping(load_json(file))
    reward = (mapping(simulation, "reward_info") or simulation).get("reward")
    if not name_of(simulation.get("task_id")) or (reward is not None and score_of(reward) is None):
        raise broken(file, "no task_id, or a reward that is no finite number")
    return simulation


def _text(task: Mapping[str, Any]) -> str:
    """Return what the simulated user is asked to do."""
    instructions = lookup(task, "user_scenario", "instructions")
    return text_of(instructions) or text_of(lookup(instructions, "reason_for_call"))


def _of_tau1(content: object, file: Path) -> Iterator[Trial]:
    rows = mappings(content)
    infos = [mapping(row, "info") for row in rows]
    outcomes = [(r.get("task_id"), r.get("trial"), r.get("reward")) for r in rows]
    run = hash_text(json.dumps([outcomes, [i.get("user_cost") for i in infos]], default=str))
    named = _NAME.fullmatch(file.stem)
    about = named.groupdict() if named else {}
    policy = mappings(rows[0].get("traj"))[:1]
    words = f"{text_of(policy[0].get('content'))[:100] if policy else ''} {file.name}".lower()
    domain = next((f"tau-bench {name}" for name in ("airline", "retail") if name in words), "")
    sent = {"temperature": float(named["temperature"])} if named else {}
    setup = {key: named[key] for key in ("agent", "user")} if named else None
    provenance = Provenance(ks=_KS, generation_kwargs=sent, setup=setup)
    for row, info in zip(rows, infos, strict=True):
        yield Trial(
            model=about.get("model", ""),
            task=domain,
            run=run,
            question=name_of(row.get("task_id")),
            label=row.get("trial"),
            scores=_scores(row.get("reward")),
            error="an error" if info.get("error") else "",
            reply=row.get("traj"),
            provenance=provenance,
        )
