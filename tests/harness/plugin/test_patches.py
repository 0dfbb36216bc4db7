"""The table of replaced attributes: every row is guarded, installed once, undone and tested."""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import lm_eval
import pytest
from _support import fake_vllm
from _support.harness_command import lm_eval_command
from _support.paths import REPOSITORY
from _support.toy import SCRIPT, ScriptedLM, evaluate, toy_config
from lm_eval.tasks._index import TaskIndex

from lm_eval_bayes._util.files import task_configs_dir
from lm_eval_bayes.harness.evaluation import current_evaluation
from lm_eval_bayes.harness.models.biased_coin.model import BiasedCoinLM
from lm_eval_bayes.harness.models.vllm.engine import LazyLLM, lazy_llm
from lm_eval_bayes.harness.plugin import patches, registration
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask

pytestmark = pytest.mark.filterwarnings("default")

#: Rows whose target is in a package that the tests have.
PRESENT = [patch for patch in patches.PATCHES if "vllm" not in patch.target]


@pytest.fixture
def owner(monkeypatch):
    """A class whose `evaluate` may be replaced, as the row of that name says."""

    class Owner:
        def evaluate(self, lm, task_dict):
            return "original"

    return Owner


def wrapped(function):
    @functools.wraps(function)
    def replacement(*args, **kwargs):
        return f"replaced {function(*args, **kwargs)}"

    return replacement


# -- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize("patch", patches.PATCHES, ids=lambda patch: patch.target)
def test_every_row_says_why_and_names_a_test_that_exists(patch):
    module, _, path = patch.target.partition(":")
    assert module
    assert path
    assert len(patch.why.split()) > 5
    assert patch.otherwise
    assert patch.undo
    file, _, test = patch.test.partition("::")
    tree = ast.parse((REPOSITORY / file).read_text(encoding="utf-8"))
    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("patch", PRESENT, ids=lambda patch: patch.target)
def test_the_installed_packages_are_as_every_row_expects(patch):
    assert patches.problem_of(patch) is None


def test_the_table_has_every_row_and_at_most_twelve():
    rows = [row for row in vars(patches).values() if isinstance(row, patches.Patch)]
    assert rows == list(patches.PATCHES)
    assert len(rows) <= 12


def test_nothing_else_in_the_package_replaces_an_attribute_of_another():
    """Assignments to attributes of imported modules and classes stand in the one file."""
    strays = []
    for path in sorted((REPOSITORY / "lm_eval_bayes").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not re.search(r"^ *(?!self\.)\w+\.\w+ = ", text, re.MULTILINE):
            continue
        tree = ast.parse(text)
        imported = {
            alias.asname or alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            and "lm_eval_bayes" not in (getattr(node, "module", None) or "")
            for alias in node.names
        }
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            strays += [
                f"{path.name}: {ast.unparse(target)}"
                for target in targets
                if isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id in imported
            ]
    assert sorted(strays) == ["equivalence.py: sympy_parser.eval_expr", *["run.py: sys.argv"] * 2]


# -- installing ----------------------------------------------------------------------------------


def test_a_second_install_does_nothing_and_undo_restores_the_original(owner):
    original = vars(owner)["evaluate"]
    assert patches.install(patches.EVALUATE, wrapped, owner) is None
    once = owner.evaluate
    assert patches.install(patches.EVALUATE, wrapped, owner) is None
    assert owner.evaluate is once
    assert owner().evaluate(1, 2) == "replaced original"
    assert patches.undo(patches.EVALUATE, owner)
    assert vars(owner)["evaluate"] is original
    assert patches.undo(patches.EVALUATE, owner)


def test_an_instance_alone_is_replaced_and_left_as_it_was(owner):
    changed, other = owner(), owner()
    with patches.applied(patches.EVALUATE, wrapped, changed) as problem:
        assert problem is None
        assert changed.evaluate(1, 2) == "replaced original"
        assert other.evaluate(1, 2) == "original"
    assert vars(changed) == {}


def test_static_methods_stay_what_they_are(owner):
    owner.evaluate = staticmethod(lambda lm, task_dict: "original")
    before = vars(owner)["evaluate"]
    with patches.applied(patches.EVALUATE, wrapped, owner):
        assert isinstance(vars(owner)["evaluate"], staticmethod)
        assert owner().evaluate(1, 2) == "replaced original"
    assert vars(owner)["evaluate"] is before


def test_a_target_that_another_package_has_wrapped_since_is_left_alone(owner):
    patches.install(patches.EVALUATE, wrapped, owner)
    owner.evaluate = wrapped(owner.evaluate)
    assert patches.is_installed(patches.EVALUATE, owner)
    assert not patches.undo(patches.EVALUATE, owner)
    assert owner().evaluate(1, 2) == "replaced replaced original"


@pytest.mark.parametrize("attributes", [{}, {"evaluate": lambda model: None}])
def test_a_target_of_another_shape_is_left_as_it_is(attributes, monkeypatch):
    target = SimpleNamespace(**attributes)
    assert patches.install(patches.EVALUATE, wrapped, target) is not None
    assert vars(target) == attributes
    monkeypatch.setitem(sys.modules, "lm_eval.evaluator", None)
    assert patches.install(patches.EVALUATE, wrapped) is not None


# -- the rows ------------------------------------------------------------------------------------


def test_the_task_folder_follows_the_built_in_one(monkeypatch):
    roots = []
    monkeypatch.setattr(TaskIndex, "_iter_yaml_files", lambda root: roots.append(root) or [])
    registration.harness_imported("lm_eval.tasks")
    assert patches.is_installed(patches.TASK_INDEX)
    built_in = Path(lm_eval.tasks.__file__).parent
    TaskIndex().build([built_in])
    assert roots == [built_in, task_configs_dir()]
    assert patches.undo(patches.TASK_INDEX)
    roots.clear()
    TaskIndex().build([built_in])
    assert roots == [built_in]
    registration.harness_imported("lm_eval.tasks")
    assert patches.is_installed(patches.TASK_INDEX)


class SeesItsModel(RepeatedSamplingTask):
    """Notes the evaluation in which its requests are built."""

    seen = None

    def build_all_requests(self, **kwargs):
        self.seen = current_evaluation()
        super().build_all_requests(**kwargs)


def test_a_task_sees_the_model_of_its_own_evaluation(tmp_path):
    bystander, model = ScriptedLM(SCRIPT), ScriptedLM(SCRIPT)
    task = SeesItsModel(config=toy_config())
    assert current_evaluation() is None
    evaluate(model, task)
    assert task.seen.model is model
    assert not task.seen.response_cache
    evaluate(bystander, task, use_cache=str(tmp_path / "cache"))
    assert task.seen.model is bystander
    assert task.seen.response_cache
    assert current_evaluation() is None


def test_the_context_ends_with_an_evaluation_that_fails():
    class Failing(ScriptedLM):
        def generate_until(self, requests, disable_tqdm=False):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate(Failing(SCRIPT), SeesItsModel(config=toy_config()))
    assert current_evaluation() is None


def test_rounds_take_the_place_of_one_evaluation_and_leave_it():
    registration.register_all()
    calls = []

    def rounds(**arguments):
        calls.append(arguments)
        with pytest.raises(ValueError, match="No tasks"):
            lm_eval.simple_evaluate(model="dummy", tasks=[])
        return "rounds"

    with registration.in_place_of_simple_evaluate(rounds):
        assert lm_eval.simple_evaluate("dummy", tasks=["t"]) == "rounds"
    assert calls == [{"model": "dummy", "tasks": ["t"]}]
    with pytest.raises(ValueError, match="No tasks"):
        lm_eval.simple_evaluate(model="dummy", tasks=[])


def scores_of(text):
    """Return the lines about scores on standard error, which are the last ones."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if "questions, 95%:" in line), len(lines))
    return lines[first:]


def test_the_scores_follow_the_table_of_the_command(tmp_path, capsys, monkeypatch):
    registration.register_all()
    command = ("--model", "biased_coin", "--model_args", "p=0.4", "--limit", "20", "--tasks")
    saved = ("--output_path", str(tmp_path / "o p"), "--log_samples")
    lm_eval_command(*command, "demo_arithmetic_bayes", "--metadata", '{"bayes_n": 4}', *saved)
    (file,) = (tmp_path / "o p").rglob("results_*.json")
    rows = json.loads(file.read_text())["posterior"]["demo_arithmetic_bayes"]["none"]
    printed = capsys.readouterr()
    shown = scores_of(printed.err)
    of_row = "hbayes@4", "hbayes@4_low", "hbayes@4_high"
    numbers = [f"{rows[name]:.3f}" for name in of_row]
    others = [f"{rows[f'hbayes@4_population_{end}']:.3f}" for end in ("low", "high")]
    assert re.findall(r"\b\d\.\d{3}\b", shown[0]) == numbers
    assert re.findall(r"\b\d\.\d{3}\b", shown[1]) == others
    assert (len(shown), "these 20 questions" in shown[0]) == (2, True)
    assert shown[1].endswith(f"summary '{tmp_path / 'o p'}'")
    assert all(f"{rows[name]:.4f}" in printed.out for name in of_row)
    # the next step needs saved samples; other runs, failing ones and programs print nothing
    lm_eval_command(*command, "demo_arithmetic_bayes", "--metadata", '{"bayes_n": 2}')
    assert "Next" not in scores_of(capsys.readouterr().err)[1]
    evaluate(ScriptedLM(SCRIPT), RepeatedSamplingTask(config=toy_config()))
    monkeypatch.setattr("lm_eval.utils.make_table", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lm_eval_command(*command, "demo_arithmetic_bayes", "--metadata", '{"bayes_n": 2}')
    assert scores_of(capsys.readouterr().err) == []


def test_of_many_scores_five_are_printed():
    from lm_eval_bayes.harness.plugin.wrappers import with_next_step

    scores = [f"task {i}" for i in range(7)]
    of_run = {"evaluation_tracker": SimpleNamespace(output_path="out/x.json"), "log_samples": True}
    shown = [f"{score}." for score in scores]
    assert with_next_step(scores, of_run) == [*shown[:5], "2 more: lm-eval-bayes summary out"]
    assert with_next_step(scores, {}) == [*shown[:5], "2 more"]
    assert with_next_step(scores[:2], {}) == shown[:2]


def test_a_guard_that_does_not_hold_is_named_once(caplog, monkeypatch):
    monkeypatch.setattr(patches, "_reported", set())
    for _ in range(2):
        assert patches.install(patches.API_PAYLOAD, wrapped, SimpleNamespace()) is not None
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(patches.API_PAYLOAD.target)
    assert message.endswith(patches.API_PAYLOAD.otherwise)


def test_what_is_stored_is_named_when_the_user_stops_a_run(caplog, tmp_path):
    path = tmp_path / "a.sqlite"

    class Stopped(BiasedCoinLM):
        trial_store = SimpleNamespace(path=path, trial_counts=lambda: {"q": 2, "r": 1})

        def generate_until(self, requests, disable_tqdm=False):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(Stopped(p=0.5), RepeatedSamplingTask(config=toy_config()))
    assert f"stopped; stored: 3 trials in {path}" in caplog.text


def test_the_engine_is_built_when_it_is_needed(monkeypatch):
    built = []

    class LLM:
        def __init__(self, **arguments):
            built.append(arguments)
            self.llm_engine = SimpleNamespace(model_config="config")

        def generate(self):
            return "answer"

    module = types.ModuleType("a_backend")
    module.LLM = LLM
    monkeypatch.setitem(sys.modules, "a_backend", module)
    exec(
        "class VLLM:\n    def __init__(self):\n        self.model = LLM(model='m')\n",
        vars(module),
    )
    fake_vllm.install(monkeypatch)
    model = module.VLLM.__new__(module.VLLM)
    with lazy_llm(model):
        model.__init__()
    assert isinstance(model.model, LazyLLM)
    assert not built
    assert module.LLM is LLM
    assert model.model.generate() == "answer"
    assert built == [{"model": "m"}]
