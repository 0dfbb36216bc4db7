"""No secret that a run was given appears in anything that this package prints or writes.

Of the harness's own files, results_*.json and samples_*.jsonl, only what this package adds to
them counts. `_support/secret_runs.py` has the secrets and the runs.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

pytest.importorskip("lm_eval", reason="the harness is not installed")

from _support.harness_command import GatewayLM, gateway
from _support.secret_runs import (
    QUESTIONS,
    ROTATED,
    RUN_OF,
    SECRETS,
    TASK,
    TRIALS,
    Scene,
    answer,
    run_harness,
    save_runs,
    scenes,
    serving,
)
from typer.testing import CliRunner

from lm_eval_bayes._util import http
from lm_eval_bayes.cli.main import app
from lm_eval_bayes.errors import LmEvalBayesError

pytestmark = pytest.mark.filterwarnings("default")


def call(*arguments, **environment):
    """Run `lm-eval-bayes`; return its exit code and all that it printed."""
    first, *others = map(str, arguments)
    words, env = [*first.split(" "), *others], {"COLUMNS": "4000", **environment}
    result = CliRunner().invoke(app, words, prog_name="lm-eval-bayes", env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout + result.stderr


@pytest.fixture(scope="module")
def server():
    with (
        gateway(lambda prompt, trial: answer(len(GatewayLM.prompts))),
        serving() as running,
    ):
        yield running


@pytest.fixture(scope="module")
def saved(tmp_path_factory, server):
    return save_runs(tmp_path_factory.mktemp("runs"), server, SECRETS)


# -- the outputs: each returns texts by the kind of input ----------------------------------------


def files_in(folder):
    """Return names and contents of all files of a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return "\n".join(f"{path.name}\n{path.read_bytes().decode('latin-1')}" for path in paths)


def command(*words, kinds="plain store", code=0, each=0, written=""):
    """Return an output: what a command prints and writes, given all runs at once.

    Parameters
    ----------
    words : str
        The command; a word `{out}` becomes a file in a folder of its own.
    kinds : str
        What it reads: "plain" and "recorded" are logs of the harness, "store" are trial stores.
    code : int
        The exit code that is due.
    each : int
        Give it so many runs at a time instead, in one call after another.
    written : str
        The suffix of `{out}`.
    """

    def show(saved, folder):
        shown = {}
        for kind in kinds.split():
            paths = list(saved.of(kind).values())
            texts = []
            for step in range(len(paths) - each + 1) if each else (0,):
                target = folder / kind / str(step)
                target.mkdir(parents=True)
                given = [word.format(out=target / f"out{written}") for word in words]
                ended, text = call(*given, *(paths[step : step + each] if each else paths))
                assert ended == code, text
                texts += [text, files_in(target)]
            shown[kind] = "\n".join(texts)
        return shown

    return show


def store_command(*words, written=None):
    """Return an output of one of the `store` commands."""

    def show(saved, folder):
        texts = []
        for name, store in saved.stores.items():
            target = folder / name
            target.mkdir()
            given = [word.format(out=target / f"out{written or ''}") for word in words]
            ended, text = call("store", given[0], store, *given[1:])
            assert ended == 0, text
            texts += [text, files_in(target)]
        return {"store": "\n".join(texts)}

    return show


def store_bytes(saved, folder):
    """The files of the stores, and every value in their tables."""
    texts = []
    for store in saved.stores.values():
        beside = sorted(store.parent.glob(f"{store.name}*"))
        texts += [path.read_bytes().decode("latin-1") for path in beside]
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
            texts += list(connection.iterdump())
        connection.close()
    return {"store": "\n".join(texts)}


def result_rows(saved, folder):
    """What this package adds to the harness's results: its rows and its settings."""
    shown = {}
    for kind, runs in (("plain", saved.plain), ("recorded", saved.recorded)):
        added = []
        for run in runs.values():
            for path in run.rglob("results_*.json"):
                results = json.loads(path.read_text(encoding="utf-8"))
                settings = results["configs"][TASK]["metadata"]["bayes"]
                added.append([results["results"][TASK], settings, results["config"].get("trials")])
        assert len(added) == len(runs)
        shown[kind] = json.dumps(added)
    return shown


def sample_columns(saved, folder):
    """What this package adds to the harness's samples: signals, outcomes, answers."""
    shown = {}
    for kind, runs in (("plain", saved.plain), ("recorded", saved.recorded)):
        added = []
        for run in runs.values():
            for path in run.rglob("samples_*.jsonl"):
                rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
                added += [
                    {k: v for k, v in row.items() if k not in ("doc", "arguments")} for row in rows
                ]
        assert len(added) == QUESTIONS * len(runs)
        shown[kind] = json.dumps(added)
    return shown


def log_lines(saved, folder):
    """What this package logs while the harness runs."""
    return {"runs": saved.logged}


def verdicts(saved, folder):
    """`verify`, by a server whose address and environment hold keys."""
    target = folder / "verdicts"
    target.mkdir()
    address = f"{saved.address}/judge/v1/completions?key={SECRETS['url_query']}"
    runs = saved.recorded.values()
    shown = {}
    for kind, url, code in (
        ("judged", f"http://{address}", 0),
        ("refused", f"http://me:{SECRETS['url_password']}@{address}", 2),
    ):
        words = ("--verifier", "judge", "--base-url", url, "--out", target)
        ended, text = call("study verify", *words, *runs, OPENAI_API_KEY=SECRETS["api_key"])
        assert ended == code, text
        shown[kind] = text
    return {**shown, "files": files_in(target)}


def rubric(*words, written=""):
    """Return an output of `rubric`, by a schema that needs nothing but right and wrong."""

    def show(saved, folder):
        schema = folder / "plain.yaml"
        schema.write_text(SCHEMA, encoding="utf-8")
        given = ("study rubric", "--schema", str(schema), *words)
        return command(*given, kinds="plain recorded", written=written)(saved, folder)

    return show


SCHEMA = """
name: plain
categories: [wrong, right]
weights: [0, 1]
rules: [{category: right, when: correct}, {category: wrong, otherwise: true}]
"""


def errors_of_runs(saved, folder):
    """What `lm_eval --model trials` says when it refuses its arguments."""
    shown = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http, "FIRST_PAUSE_S", 0.0)
        for name, scene in BROKEN(saved.address).items():
            with pytest.raises(LmEvalBayesError) as refused:
                run_harness(scene, folder / name, folder / f"{name}.sqlite", limit=1)
            shown[name] = str(refused.value)
    return shown


def BROKEN(address):
    plain = {"model": "org/hash", "tokenizer_backend": None, "tokenized_requests": False}
    key, password = SECRETS["url_query"], SECRETS["url_password"]
    header = {"Authorization": f"Bearer {SECRETS['header']}"}
    tried_once = {**plain, "header": header, "max_retries": 1}
    return {
        "password in the address": Scene(
            "local-completions",
            {**plain, "base_url": f"http://me:{password}@{address}/v1/completions"},
        ),
        "no address": Scene(
            "local-completions", {**plain, "base_url": f"http:/{address}?key={key}"}
        ),
        "nobody answers": Scene(
            "local-completions",
            {**tried_once, "base_url": f"http://{address}/down?key={key}"},
        ),
        "the key is refused, and quoted": Scene(
            "local-completions",
            {**tried_once, "base_url": f"http://{address}/quoting?key={key}"},
        ),
        "wrong number": Scene(
            "gateway", {"api_key": SECRETS["api_key"], "trials": "4:x", "login": SECRETS["unknown"]}
        ),
    }


OUTPUTS = {
    "summary": command("summary", kinds="recorded store"),
    "summary --json": command("summary", "--json"),
    "compare": command("compare", each=2),
    "rank": command("rank", "--pairs"),
    "rank --json": command("rank", "--json"),
    "noise": command("noise"),
    "plan": command("plan", "--width", "0.2"),
    "convergence": command("study convergence", "--replicates", "20"),
    "anchors": command("study anchors"),
    "rubric": rubric(),
    "verify": verdicts,
    "report": command("report", "-o", "{out}", written=".html", kinds="plain recorded store"),
    "export table, csv": command("export", "table", "-o", "{out}", written=".csv"),
    "export table, markdown": command("export", "table", "-o", "{out}", written=".md"),
    "export hub": command(
        *("export", "hub", "--model-id", "org/model", "--dataset", "org/data", "-o", "{out}"),
        each=1,
    ),
    "export every-eval-ever": command(
        *("export", "every-eval-ever", "--developer", "org", "--instances", "-o", "{out}"), each=1
    ),
    "store info": store_command("info"),
    "store info --json": store_command("info", "--json"),
    "store export": store_command("export", "-o", "{out}", written=".jsonl"),
    "store export --format samples": store_command("export", "--format", "samples", "-o", "{out}"),
    "store merge": store_command("merge", "-o", "{out}", written=".sqlite"),
    "store info --check": store_command("info", "--check"),
    "store prune": store_command("prune", "--trials-from", "1", "--json"),
    "store's bytes": store_bytes,
    "result rows": result_rows,
    "sample columns": sample_columns,
    "log lines": log_lines,
    # what refuses, and names the models
    "error of hub": command("export", "hub", "--model-id", "org/model", code=2),
    "error of compare": command("compare", "-a", "nobody", code=2, each=2),
    "error of anchors": command("study anchors", "--target", "nobody", code=2),
    "error of summary": command("summary", "--task", "nothing", code=2),
    "errors of runs": errors_of_runs,
}


#: Those that take seconds, or hold the names that the table of the same command holds.
SLOW = {
    *("summary --json", "rank --json", "plan", "convergence", "verify", "report"),
    *(name for name in OUTPUTS if name.startswith("export ") and name != "export table, markdown"),
}


# -- the matrix ----------------------------------------------------------------------------------


def test_every_secret_went_in(saved):
    for runs in (saved.plain, saved.recorded):
        for name, secret in SECRETS.items():
            (results,) = runs[RUN_OF[name]].rglob("results_*.json")
            assert secret in results.read_text(encoding="utf-8"), name


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(output, marks=[pytest.mark.slow] if output in SLOW else [])
        for output in OUTPUTS
    ],
)
def test_no_output_holds_a_secret(saved, tmp_path, output):
    texts = OUTPUTS[output](saved, tmp_path)
    assert texts
    assert all(texts.values())
    leaks = [
        (name, kind)
        for name, secret in SECRETS.items()
        for kind, text in texts.items()
        if secret in text
    ]
    assert leaks == []


# -- keys that change ----------------------------------------------------------------------------


def copy_store(source, target):
    """Copy a store with what is still in its log."""
    with closing(sqlite3.connect(source)) as stored, closing(sqlite3.connect(target)) as copied:
        stored.backup(copied)


#: An unknown argument may be anything: another value is another model.
RUNS = [run for run in scenes("127.0.0.1:1", SECRETS) if run != "unknown"]


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run, marks=[] if run in ("keys", "url_query") else [pytest.mark.slow])
        for run in RUNS
    ],
)
def test_a_new_key_keeps_the_stored_trials(saved, server, tmp_path, run):
    store = tmp_path / "trials.sqlite"
    copy_store(saved.stores[run], store)
    before = len(GatewayLM.prompts) + server.asked
    run_harness(scenes(server.address, ROTATED)[run], tmp_path / "again", store)
    sampled = len(GatewayLM.prompts) + server.asked - before
    assert sampled == 0
    code, text = call("summary", "--json", "--dedupe", saved.recorded[run], tmp_path / "again")
    assert code == 0, text
    (results,) = (tmp_path / "again").rglob("results_*.json")
    assert json.loads(results.read_text("utf-8"))["config"]["trials"]["from_store"] == (
        QUESTIONS * TRIALS
    )
    summary, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    models = {one["model"] for one in summary["tasks"]}
    assert len(models) == 1


def test_another_value_of_an_unknown_argument_is_another_model(saved, server, tmp_path):
    store = tmp_path / "trials.sqlite"
    copy_store(saved.stores["unknown"], store)
    before = len(GatewayLM.prompts)
    run_harness(scenes(server.address, ROTATED)["unknown"], tmp_path / "again", store)
    assert len(GatewayLM.prompts) - before == QUESTIONS * TRIALS
