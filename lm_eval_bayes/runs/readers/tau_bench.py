"""Results of tau2-bench (and tau3) and of tau-bench: JSON files, and folders of them.

A task of a domain is a question, a simulation of it a trial. A trial succeeds where its reward is
1, to within 10^-6, as for the pass^k of both tools.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import hash_text
from lm_eval_bayes._util.text import one_line, plural
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.logged_texts import TrialText
from lm_eval_bayes.runs.provenance import generation, mapping
from lm_eval_bayes.runs.readers.conversations import written
from lm_eval_bayes.runs.readers.file_access import files_beside, sniff_files
from lm_eval_bayes.runs.readers.json_files import (
    beginning,
    broken,
    chosen_metric,
    clusters_of,
    given_score,
    json_text,
    load_json,
    name_of,
    nothing_to_count,
    text_of,
    timestamp,
    total,
)
from lm_eval_bayes.runs.readers.protocol import (
    FileContents,
    Query,
    Sniffed,
)
from lm_eval_bayes.runs.readers.tool_settings import call_settings
from lm_eval_bayes.runs.readers.trial_columns import TrialColumns, numbers_in_run, partial_runs
from lm_eval_bayes.runs.readers.trial_texts import SpooledRecords, one_text
from lm_eval_bayes.runs.task_run import Provenance

#: How results of tau2-bench and of tau-bench begin.
_TAU2 = re.compile(
    rb'\s*\{\s*("timestamp"\s*:\s*(null|"[^"]*")\s*,\s*)?"info"\s*:\s*\{\s*"git_commit"\s*:'
)
_TAU1 = re.compile(rb'\s*\[\s*\{\s*"task_id"\s*:\s*\d+\s*,\s*"reward"\s*:\s*[\d.e+-]+\s*,\s*"info"')

#: The name of a file that tau-bench wrote: strategy, model, temperature, tasks, simulated user.
_TAU1_NAME = re.compile(
    r"(?P<agent>tool-calling|act|react|few-shot)-(?P<model>.+)-(?P<temperature>\d+(\.\d+)?)"
    r"_range_-?\d+--?\d+_user-(?P<user>.+)_\d{10}"
)

#: How far from 1 the reward of a success may be.
_SLACK = 1e-6
#: Ends of a simulation at which one of the two said that it is over.
_SAID = ("user_stop", "agent_stop")
#: The end of a simulation that never ran.
_NEVER_RAN = "infrastructure_error"
#: The end of one whose texts were longer than the model's context.
_TOO_LONG = "context_window_exceeded"

#: Both tools report pass^k for every k up to the number of trials; of more, powers of two.
_MOST_KS = 8


def sniff(path: Path) -> Sniffed | None:
    """Return a file of results, or those in a folder."""
    return sniff_files(path, _is_results, "*.json")


def _is_results(file: Path) -> bool:
    if file.suffix != ".json":
        return False
    start = beginning(file)
    return _TAU2.match(start) is not None or _TAU1.match(start) is not None


@dataclass
class _Results:
    """What both tools have in common; the columns of the simulations are filled one by one."""

    tool: str
    model: str
    domain: str
    run: str
    settings: dict[str, Any]
    provenance: Provenance
    columns: TrialColumns = field(default_factory=lambda: TrialColumns(trial=[], text=[]))
    rewards: list[float | None] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: tuple[str, ...] = ()


def read(file: Path, query: Query) -> FileContents:
    """Read results.

    Raises
    ------
    NothingToCountError
        If no simulation has a reward.
    InvalidInputError
        If the file is broken, or the query names a metric or a field that it does not have.
    """
    content = load_json(file, query)
    texts = SpooledRecords(file, records=partial(_texts, file, query.argument))
    if isinstance(content, list):
        results = _tau1(content, file, query)
    elif isinstance(content, dict):
        results = _tau2(content, file, query)
    else:
        raise broken(file, query, "neither an object nor a list")
    task = results.domain or query.task or "tau-bench"
    if query.task not in (None, task):
        return FileContents((), (task,))
    if all(reward is None for reward in results.rewards):
        got = f"{len(results.rewards):,} without"
        raise nothing_to_count(file, query, "rewards of simulations", got)
    metric, _ = chosen_metric(("success", "reward"), query, file, "metric")
    columns, notes = results.columns, results.notes
    columns.model, columns.task, columns.texts = results.model, task, texts
    most = max(Counter(columns.question).values(), default=0)
    provenance = replace(results.provenance, ks=tuple(range(1, min(most, _MOST_KS) + 1)))
    columns.score = results.rewards
    if metric == "success":
        columns.score = [
            None if r is None else float(abs(r - 1) <= _SLACK) for r in results.rewards
        ]
        n_partial = sum(
            r is not None and r != score
            for r, score in zip(results.rewards, columns.score, strict=True)
        )
        if n_partial:
            notes.append(
                f"{plural(n_partial, 'reward')} other than 0 and 1 were counted as right or wrong, "
                f"as in the pass^k of {results.tool}: right from 1 to within 1e-6 "
                "(--metric reward counts rewards)"
            )
    runs = partial_runs(
        columns,
        file,
        query,
        metric=metric,
        notes=notes,
        provenance=provenance,
        settings=results.settings,
    )
    return FileContents(runs, (task,), warnings=results.warnings)


def _texts(file: Path, argument: str) -> Iterator[Sequence[TrialText]]:
    """Yield the conversation of every simulation."""
    query = Query(argument=argument)
    content = load_json(file, query)
    if isinstance(content, list):
        conversations = [row.get("traj") for row in _checked(content, file, query)]
    else:
        simulations = _simulations(mapping(content), file, query)
        conversations = [simulation.get("messages") for simulation in simulations]
    return (one_text(written(conversation)) for conversation in conversations)


# -- tau2-bench --------------------------------------------------------------------------------


def _tau2(content: Mapping[str, Any], file: Path, query: Query) -> _Results:
    info = mapping(content.get("info"))
    agent, user = mapping(info.get("agent_info")), mapping(info.get("user_info"))
    simulations = _simulations(content, file, query)
    started = name_of(content.get("timestamp"))
    run = [started or name_of(simulations[0].get("id")), name_of(agent.get("llm"))]
    domain = name_of(mapping(info.get("environment_info")).get("domain_name"))
    sent = call_settings(agent.get("llm_args"))
    setup = {"agent": name_of(agent.get("implementation")), "user": name_of(user.get("llm"))}
    policy = text_of(mapping(info.get("environment_info")).get("policy"))
    versions = {"git_commit": name_of(info.get("git_commit"))}
    versions["policy"] = hash_text(policy).rpartition(":")[2] if policy else ""
    results = _Results(
        tool="tau2",
        model=name_of(agent.get("llm")) or name_of(agent.get("implementation")),
        domain=domain,
        run=" ".join([*run, domain]),
        settings=generation(sent) | setup,
        provenance=Provenance(
            generation_kwargs=sent,
            date=timestamp(started),
            versions={name: version for name, version in versions.items() if version},
            dataset=domain,
            setup=setup,
        ),
    )
    tasks = _tasks(content)
    results.warnings = _missing(simulations, tasks, info.get("num_trials"), file)
    if not results.model:
        results.notes.append(f"{file.name} does not name its agent: the model has the file's name")
    _fill(results, simulations, tasks, file, query)
    return results


def _simulations(content: Mapping[str, Any], file: Path, query: Query) -> list[Mapping[str, Any]]:
    """Return the simulations in the file, in the folder beside it, or in its index."""
    listed = content.get("simulations")
    folder = file.parent / "simulations"
    if not listed and folder.is_dir():
        listed = [load_json(path, query) for path in files_beside(folder / "any", "*.json")]
    listed = listed or content.get("simulation_index") or listed
    if listed == []:
        got = "none, as of a run that ended before its first task"
        raise nothing_to_count(file, query, "simulations", got)
    if not isinstance(listed, list):
        raise broken(file, query, "no list of simulations")
    return _checked(listed, file, query)


def _checked(listed: Sequence[Any], file: Path, query: Query) -> list[Mapping[str, Any]]:
    """Return the simulations in a list, each of which must be an object that names its task.

    Raises
    ------
    InvalidInputError
        If there is none, or one names no task, or numbers its trial by anything but a number from
        0 on.
    """
    for number, simulation in enumerate(listed, 1):
        trial = mapping(simulation).get("trial")
        is_numbered = trial is None or (type(trial) is int and trial >= 0)
        if not name_of(mapping(simulation).get("task_id")) or not is_numbered:
            rule = f"hold simulations with a `task_id`, and a `trial` from 0 on ({file})"
            got = f"{one_line(json_text(simulation), 60)} as simulation {number:,}"
            raise InvalidInputError.of(query.argument, "damaged", rule, got)
    if not listed:
        raise broken(file, query, "no simulation")
    return list(listed)


def _tasks(content: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    listed = content.get("tasks")
    tasks = [mapping(task) for task in listed] if isinstance(listed, list) else []
    return {name_of(task.get("id")): task for task in tasks}


def _missing(
    simulations: Sequence[Mapping[str, Any]],
    tasks: Mapping[str, Mapping[str, Any]],
    n_trials: object,
    file: Path,
) -> tuple[str, ...]:
    """Return a warning where a file has fewer simulations than it says that there are to be."""
    if type(n_trials) is not int or not 0 < n_trials < 2**20 or not tasks:
        return ()
    made = Counter(name_of(simulation.get("task_id")) for simulation in simulations)
    n_made = sum(min(made[id], n_trials) for id in tasks)
    if n_made == len(tasks) * n_trials:
        return ()
    planned = f"{len(tasks) * n_trials:,} planned simulations"
    n_without = sum(not made[id] for id in tasks)
    without = f"; {plural(n_without, 'task')} of {len(tasks):,} without any" if n_without else ""
    return (f"{file} holds {n_made:,} of {planned}: those that it holds count{without}",)


def _fill(
    results: _Results,
    simulations: Sequence[Mapping[str, Any]],
    tasks: Mapping[str, Mapping[str, Any]],
    file: Path,
    query: Query,
) -> None:
    columns, reasons = results.columns, Counter[str]()
    columns.question = [name_of(simulation.get("task_id")) for simulation in simulations]
    labels = [simulation.get("trial") for simulation in simulations]
    columns.trial = numbers_in_run(results.run, labels, columns.question)
    texts = {id: _text(task) for id, task in tasks.items()}
    columns.text = [texts.get(id, "") for id in columns.question]
    columns.measured = {
        "cost": [simulation.get("agent_cost") for simulation in simulations],
        "time": [simulation.get("duration") for simulation in simulations],
        "tokens": [_tokens(simulation.get("messages")) for simulation in simulations],
    }
    clusters = clusters_of(tasks.values(), query, f"the tasks in {file.name}")
    if clusters is not None:
        by_task = dict(zip(tasks, clusters, strict=True))
        columns.cluster = [by_task.get(id, "") for id in columns.question]
    for simulation in simulations:
        info, reason = simulation.get("reward_info"), name_of(simulation.get("termination_reason"))
        given = info.get("reward") if isinstance(info, Mapping) else simulation.get("reward")
        what = f"reward of task {one_line(name_of(simulation.get('task_id')), 40)}"
        reward = None if reason == _NEVER_RAN else given_score(given, what, file, query)
        results.rewards.append(reward)
        reasons[reason] += 1
    if reasons[_NEVER_RAN] and query.unscored == "left-out":
        ended = f"{plural(reasons[_NEVER_RAN], 'trial')} ended in an infrastructure error"
        results.notes.append(f"{ended}, and did not count, as in the metrics of tau2 1.0.1")
    others = {r: n for r, n in reasons.items() if r and r not in (*_SAID, _NEVER_RAN)}
    if others:
        listed = ", ".join(f"{one_line(r, 30)} {n:,}" for r, n in sorted(others.items()))
        ended = f"{plural(sum(others.values()), 'trial')} ended early ({listed})"
        note = f"{ended}, and counted by the reward, as in the metrics of tau2 1.0.1"
        if _TOO_LONG in others:
            note += f"; later versions of tau2 leave out {_TOO_LONG}"
        results.notes.append(note)


def _text(task: Mapping[str, Any]) -> str:
    """Return what the simulated user is asked to do."""
    instructions = mapping(task.get("user_scenario")).get("instructions")
    if isinstance(instructions, Mapping):
        instructions = instructions.get("reason_for_call")
    return text_of(instructions)


def _tokens(messages: object) -> float | None:
    """Return the tokens that the agent wrote; None where they were not counted."""
    if not isinstance(messages, list):
        return None
    return total(
        mapping(message.get("usage")).get("completion_tokens")
        for message in messages
        if isinstance(message, Mapping) and message.get("role") == "assistant"
    )


# -- tau-bench ---------------------------------------------------------------------------------


def _tau1(content: Sequence[Any], file: Path, query: Query) -> _Results:
    rows = _checked(content, file, query)
    if query.cluster is not None:
        rule = "be left out: results of tau-bench have no fields of tasks"
        raise InvalidInputError.of("cluster", "conflict", rule, query.cluster)
    named = _TAU1_NAME.fullmatch(file.stem)
    outcomes = [(r.get("task_id"), r.get("trial"), r.get("reward")) for r in rows]
    costs = [mapping(row.get("info")).get("user_cost") for row in rows]
    settings: dict[str, Any] = {}
    setup: dict[str, Any] = {}
    if named:
        settings = {"temperature": float(named["temperature"])}
        setup = {"agent": named["agent"], "user": named["user"]}
    results = _Results(
        tool="tau-bench",
        model=named["model"] if named else file.stem,
        domain=_domain(rows, file),
        run=hash_text(json.dumps([outcomes, costs], default=str)),
        settings=settings | setup,
        provenance=Provenance(generation_kwargs=settings, setup=setup or None),
    )
    columns = results.columns
    columns.question = [name_of(row.get("task_id")) for row in rows]
    labels = [row.get("trial") for row in rows]
    columns.trial = numbers_in_run(results.run, labels, columns.question)
    columns.text = [""] * len(rows)
    results.rewards = [
        given_score(row.get("reward"), f"reward of task {name_of(row['task_id'])}", file, query)
        for row in rows
    ]
    n_errors = sum(bool(mapping(row.get("info")).get("error")) for row in rows)
    if n_errors:
        ended = f"{plural(n_errors, 'trial')} ended in an error"
        results.notes.append(f"{ended}, and counted by the reward 0, as in tau-bench's own metrics")
    return results


def _domain(rows: Sequence[Mapping[str, Any]], file: Path) -> str:
    """Return the domain by the first words of the agent's policy, else by the file's name."""
    said = []
    for row in rows[:50]:
        messages = row.get("traj")
        first = mapping(messages[0]) if isinstance(messages, list) and messages else {}
        if first.get("role") == "system" and isinstance(first.get("content"), str):
            said.append(first["content"][:100])
    for text in (*said[:1], file.name):
        for domain in ("airline", "retail"):
            if domain in text.lower():
                return f"tau-bench {domain}"
    return ""
