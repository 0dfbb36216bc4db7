"""`lm-eval-bayes doctor`, and the completion of shells."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from _support.command_line import called
from _support.paths import REPOSITORY
from _support.scripted_server import serving
from packaging.requirements import Requirement

from lm_eval_bayes._util.packages import HARNESS, pip_install_extra
from lm_eval_bayes.cli.commands import doctor
from lm_eval_bayes.harness.plugin import installed
from lm_eval_bayes.harness.plugin.registration import COMPONENTS
from lm_eval_bayes.harness.task import questions
from lm_eval_bayes.store.trial_store import TrialStore

NAMES = (*(f"{c.kind} {c.name}" for c in COMPONENTS), "the folder of tasks")
ALL = installed.Registered(None, NAMES)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of the hub's libraries that is empty, and nothing that keeps them offline."""
    for name in (*questions.OFFLINE, "HF_DATASETS_CACHE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf"


@pytest.fixture
def lmeb(home, monkeypatch):
    """Run `doctor --json` on a harness that is in order; return (exit code, findings by name)."""

    monkeypatch.setattr(installed, "registered", lambda timeout_s: ALL)

    def run(*arguments):
        code, printed, _ = called("doctor", "--json", *arguments)
        message = json.loads(printed)
        assert message["ok"] == (code == 0)
        return code, {(o["section"], o["name"]): o for o in message["findings"]}

    return run


def states(result, section):
    return {name: item["state"] for (of, name), item in result.items() if of == section}


def cache(home):
    """Lay the contests into a cache, as the datasets library does."""
    for item in questions.needed():
        folder = home / "datasets" / item.name.replace("/", "___") / "default/0.0.0" / item.revision
        folder.mkdir(parents=True)
        (folder / "dataset_info.json").write_text("{}")
        (folder / "questions-train.arrow").write_bytes(b"ARROW1")


# -- as a user starts it -------------------------------------------------------------------------

SCRIPT = """
import sys
from lm_eval_bayes.cli.main import app
try:
    app(["doctor", "--offline", *sys.argv[1:]], prog_name="lm-eval-bayes")
except SystemExit as end:
    heavy = ("torch", "vllm", "transformers", "lm_eval", "datasets", "matplotlib")
    print([name for name in heavy if name in sys.modules], end.code, file=sys.stderr)
"""


def started(tmp_path, *arguments, **environment):
    """Run it in a new interpreter that reads the start-up file, as where it is installed."""
    site = tmp_path / "site"
    module = site / "_lm_eval_bayes_boot"
    module.mkdir(parents=True)
    boot = REPOSITORY / "lm_eval_bayes" / "_boot"
    shutil.copy(boot / "_lm_eval_bayes_boot.py", module / "__init__.py")
    for name in ("lm_eval_bayes_boot.pth", "lm_eval_bayes_boot.start"):
        shutil.copy(boot / name, site)
    (site / "sitecustomize.py").write_text(f"import site; site.addsitedir({str(site)!r})\n")
    package = str(Path(doctor.__file__).resolve().parents[3])
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LM_EVAL_BAYES", "HF_"))}
    env |= {
        "PYTHONPATH": os.pathsep.join([str(site), package]),
        "HF_HOME": str(tmp_path / "hf"),
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=1800,
        env=env,
        cwd=tmp_path,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_it_tells_what_is_so(tmp_path):
    output, last = started(tmp_path, "--json")
    assert last == "[] 0"
    result = {(o["section"], o["name"]): o for o in json.loads(output)["findings"]}
    for package in doctor.PACKAGES:
        first = result["packages", package.name]
        try:
            version = importlib.metadata.version(package.name)
        except importlib.metadata.PackageNotFoundError:
            assert first["state"] == "note"
            assert first["fix"] == pip_install_extra(package.extra)
        else:
            assert (first["state"], first["detail"], first["fix"]) == ("ok", version, None)
    # releases of Python differ in whether they take ".." out of it
    assert result["packages", "python"]["detail"].endswith(f", {os.path.abspath(sys.executable)}")
    harness = importlib.metadata.version("lm-eval")
    assert result["harness", "lm-eval"]["detail"].startswith(harness)
    plugin = result["harness", "plugin"]
    assert plugin["state"] == "ok", plugin
    assert f"{len(COMPONENTS)} components" in plugin["detail"]
    assert result["backends", "biased_coin"]["state"] == "ok"
    assert set(states(result, "questions").values()) == {"note"}


# -- the plugin ----------------------------------------------------------------------------------


def probe(tmp_path, code, timeout_s=300.0):
    """Look at a harness that consists of this code."""
    package = tmp_path / "fake" / "lm_eval"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "fake")}
    return installed.registered(timeout_s, env)


def test_a_broken_harness_is_told_in_one_line(tmp_path):
    result = probe(tmp_path, "print('hello')\nraise RuntimeError('no\\nluck')")
    assert (result.error, result.missing) == ("luck", NAMES)
    assert doctor._plugin(result).state == "wrong"


def test_a_harness_that_hangs_is_ended(tmp_path):
    result = probe(tmp_path, "import time\ntime.sleep(600)", timeout_s=0.5)
    assert result.error == "importing it took more than 0.5 s"


def test_what_lm_eval_does_not_find_is_named(monkeypatch):
    monkeypatch.delenv("LM_EVAL_BAYES_AUTOLOAD", raising=False)
    half = installed.Registered(None, NAMES[:-2])
    monkeypatch.setattr(doctor, "version_of", lambda name: "1.0")
    monkeypatch.setattr(installed, "start_up_file", lambda: None)
    finding = doctor._plugin(half)
    assert finding.state == "wrong"
    assert f"{NAMES[-2]}, the folder of tasks" in finding.detail
    assert finding.fix == f"pip install --force-reinstall --no-deps {doctor.own_source()}"
    monkeypatch.setattr(doctor, "version_of", lambda name: None)
    assert doctor._plugin(half).state == "note"


@pytest.mark.parametrize(
    ("version", "state"),
    [("0.4.13", "ok"), ("0.4.14", "note"), ("0.4.9", "wrong"), ("0.5.0", "wrong"), (None, "note")],
)
def test_the_version_of_the_harness(monkeypatch, version, state):
    monkeypatch.setattr(doctor, "version_of", lambda name: version)
    assert next(iter(doctor._harness(ALL))).state == state


def test_the_lm_eval_of_another_python_is_noted(tmp_path, monkeypatch):
    script = tmp_path / "lm_eval"
    script.write_text("#!/somewhere/else/python\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert installed.other_command() == script
    script.write_text(f"#!{sys.executable}\n")
    assert installed.other_command() is None


# -- packages and backends -----------------------------------------------------------------------


def test_the_packages_are_those_of_pyproject():
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    needed = dict(re.findall(r'^  "([\w-]+)(?:\[\w+\])?>=([\d.]+)",$', text, flags=re.MULTILINE))
    looked = {
        package.name: package.oldest
        for package in doctor.PACKAGES
        if package.oldest and package.extra is None
    }
    assert looked == {name: needed[name] for name in looked}
    requirement = Requirement(re.search(r'"(lm-eval>=.*)"', text)[1])
    for version in ("0.4.11", "0.4.12", "0.4.99", "0.5.0.dev1", "0.5.0"):
        allowed = requirement.specifier.contains(version, prereleases=True)
        assert allowed is (HARNESS.problem(version) is None), version
    extras = {item.extra for item in (*doctor.PACKAGES, *installed.BACKENDS)} - {None, ""}
    assert all(re.search(rf"^{name} = \[", text, flags=re.MULTILINE) for name in extras)
    base = text.partition("dependencies = [")[2].partition("]\n")[0]
    named = set(re.findall(r'"([\w-]+)', base)) - {"lm-eval", "antlr4-python3-runtime"}
    assert named <= {package.name for package in doctor.PACKAGES}


def test_the_backends_are_those_that_record():
    from lm_eval_bayes.harness.models.backends import SAMPLING

    assert {name for backend in installed.BACKENDS for name in backend.names} == set(SAMPLING)


def test_what_is_missing_or_old_is_to_be_mended(lmeb, monkeypatch):
    real = doctor.version_of
    given = {"numpy": "1.20", "jinja2": None, "torch": "2.0", "vllm": None, "ray": "2.1"}
    monkeypatch.setattr(doctor, "version_of", lambda n: given[n] if n in given else real(n))
    monkeypatch.setattr(installed, "gpus", lambda: ("H200", "H200", "L4"))
    code, result = lmeb("--offline")
    assert code == 1
    assert result["packages", "numpy"]["fix"] == "pip install 'numpy>=2.0'"
    assert result["packages", "jinja2"]["fix"] == "pip install 'jinja2>=3.1'"
    assert result["packages", "ray"]["state"] == "note"
    assert states(result, "packages")["numpy"] == states(result, "packages")["jinja2"] == "wrong"
    assert "cannot run without vllm" in result["backends", "vllm"]["detail"]
    assert result["backends", "GPU"]["detail"] == "2 x H200, 1 x L4"


def test_gpus_are_asked_of_the_driver(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho NVIDIA H200\necho NVIDIA H200\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert installed.gpus(timeout_s=300.0) == ("NVIDIA H200", "NVIDIA H200")
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    assert installed.gpus(timeout_s=0.3) == ()


# -- questions -----------------------------------------------------------------------------------


@contextlib.contextmanager
def hub(has):
    """A hub on this machine; `has` says of a path whether it is there."""
    dataset = {"id": "a/b", "sha": "0" * 40, "siblings": []}
    pages = SimpleNamespace(get=lambda path: dataset if has(path) else None)
    with serving(pages=pages) as server:
        yield server.url().removesuffix("/v1/completions")


def test_the_datasets_are_those_of_the_table():
    table = (REPOSITORY / "task_configs/contest_math/README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| .* \| `(\S+)` \| `(\w{40})` \|", table, re.MULTILINE)
    needed = [(item.tasks[0], item.name, item.revision) for item in questions.needed()]
    assert sorted(needed) == sorted(rows)
    assert len(rows) == 11


def test_what_is_in_the_cache_is_not_asked_for(lmeb, home, monkeypatch):
    cache(home)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    code, result = lmeb()
    assert (code, set(states(result, "questions").values())) == (0, {"ok"})


def test_the_cache_of_real_questions_is_known(lmeb, shared, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(shared / "hf_home" / "datasets"))
    _, result = lmeb("--offline")
    of = states(result, "questions")
    assert {name for name, state in of.items() if state == "ok"} == {
        "HuggingFaceH4/aime_2024",
        *(f"MathArena/{name}" for name in ("aime_2025", "aime_2026", "brumo_2025")),
        "MathArena/hmmt_feb_2025",
    }
    assert set(of.values()) == {"ok", "note"}


@pytest.mark.filterwarnings("default")
def test_the_hub_is_asked_for_the_pinned_revisions(lmeb, monkeypatch):
    requests = []

    def has(path):
        requests.append(path)
        return "brumo" not in path

    with hub(has) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        code, result = lmeb("--timeout", "600")
    assert code == 0
    wanted = {f"/api/datasets/{o.name}/revision/{o.revision}" for o in questions.needed()}
    # the hub's own library asks for something else as well
    assert {path.partition("?")[0] for path in requests if "/datasets/" in path} == wanted
    of = states(result, "questions")
    assert of.pop("MathArena/brumo_2025") == "note"
    assert set(of.values()) == {"ok"}
    revision = next(o.revision for o in questions.needed() if "brumo" in o.name)
    assert result["questions", "MathArena/brumo_2025"]["fix"] == (
        'python -c "from datasets import load_dataset; '
        f"load_dataset('MathArena/brumo_2025', revision='{revision}')\""
    )


@pytest.mark.filterwarnings("default")
def test_a_hub_that_says_nothing_is_not_waited_for(lmeb, monkeypatch):
    ended = threading.Event()
    late = []
    with hub(lambda path: ended.wait(300) or late.append(path)) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        code, result = lmeb("--timeout", "0.2")
        ended.set()
    assert not late
    assert (code, set(states(result, "questions").values())) == (0, {"note"})


def test_offline_by_the_environment(lmeb, home, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, result = lmeb()
    assert code == 0
    fix = result["questions", "MathArena/aime_2025"]["fix"]
    assert fix.startswith("env -u HF_HUB_OFFLINE python -c ")


# -- folders and stores --------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_to(lmeb, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "file" / "hf"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    code, result = lmeb("--offline")
    folders = {"temporary": "ok", "questions": "wrong", "hashes of weights": "note"}
    assert (code, states(result, "folders")) == (1, folders)
    assert not (tmp_path / "hf").exists()


def test_a_store_to_come_and_one_that_is_there(lmeb, tmp_path):
    path = tmp_path / "s.sqlite"
    assert lmeb("--offline", "--store", path)[0] == 0
    assert not path.exists()
    TrialStore.open(path).close()
    before = path.read_bytes()
    assert lmeb("--offline", "--store", path)[0] == 0
    assert path.read_bytes() == before


def test_a_place_that_can_be_no_store(lmeb, tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("not a store at all\n" * 100)
    code, result = lmeb("--offline", "--store", other)
    assert (code, result["store", str(other)]["state"]) == (1, "wrong")
    nowhere = tmp_path / "no such" / "s.sqlite"
    code, result = lmeb("--offline", "--store", nowhere)
    assert (code, result["store", str(nowhere)]["fix"]) == (1, f"mkdir -p '{nowhere.parent}'")


def test_a_network_file_system_is_warned_of(lmeb, tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path.resolve()} nfs4 rw 0 0\n")
    monkeypatch.setattr("lm_eval_bayes.store.locations.MOUNTS", str(mounts))
    code, result = lmeb("--offline", "--store", tmp_path / "s.sqlite")
    finding = result["store", "file system"]
    assert (code, finding["state"]) == (0, "note")
    assert "(nfs4)" in finding["detail"]


def test_without_the_harness_the_exit_code_is_1(lmeb, monkeypatch):
    monkeypatch.setattr(installed, "harness_folder", lambda: None)
    code, result = lmeb("--offline")
    assert (code, result["harness", "lm-eval"]["state"]) == (1, "wrong")
    assert "    pip install 'lm-eval>=0.4.12,<0.5'" in called("doctor", "--offline")[1].splitlines()


# -- completion ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "offered"),
    [("store me", "merge"), ("doctor --off", "--offline"), ("summary --scope ", "population")],
)
def test_commands_options_and_values_complete(words, offered, monkeypatch):
    words = f"lm-eval-bayes {words}"
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    monkeypatch.setenv("_LM_EVAL_BAYES_COMPLETE", "complete_bash")
    assert offered in called()[1].split()
