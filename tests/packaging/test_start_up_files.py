"""The boot module on its own: inert, transparent, silent, and gone when the package is gone.

A make-believe harness and a make-believe package, each of a few lines, stand in for the real
ones, in an interpreter without site-packages.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

HOOKS = (
    "lm_eval.api.metrics",
    "lm_eval.filters",
    "lm_eval.models",
    "lm_eval.tasks",
    "lm_eval.evaluator",
    "lm_eval._cli.run",
)
BOOT = "_lm_eval_bayes_boot/__init__.py"
RECORDER = """
calls = []
def harness_imported(name):
    calls.append(name)
"""
SHOW = """
from lm_eval_bayes.harness.plugin.registration import calls
print(calls)
"""


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def fake_harness(folder: Path) -> Path:
    for name in ("lm_eval", "lm_eval.api", "lm_eval._cli", *HOOKS):
        write(folder / name.replace(".", "/") / "__init__.py", "value = 1\n")
    return folder


def fake_package(folder: Path, registration: str = RECORDER) -> Path:
    write(folder / "lm_eval_bayes" / "__init__.py")
    write(folder / "lm_eval_bayes" / "harness" / "__init__.py")
    write(folder / "lm_eval_bayes" / "harness" / "plugin" / "__init__.py")
    write(folder / "lm_eval_bayes" / "harness" / "plugin" / "registration.py", registration)
    return folder


@pytest.fixture
def stand_ins(site_folder):
    """The start-up files, a make-believe harness and a make-believe package, in one folder."""
    return fake_package(fake_harness(site_folder))


def output_of(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.strip()


def test_the_boot_module_imports_only_os_and_sys(site_folder, python):
    tree = ast.parse((site_folder / BOOT).read_text(encoding="utf-8"))
    at_the_top = {a.name for node in tree.body if isinstance(node, ast.Import) for a in node.names}
    assert at_the_top == {"os", "sys"}
    assert not [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    code = f"""
    import os, site, sys
    before = set(sys.modules)
    site.addsitedir({str(site_folder)!r})
    print(sorted(set(sys.modules) - before))
    """
    assert output_of(python(code, bare=True)) == "['_lm_eval_bayes_boot']"


def test_registration_follows_each_hook_and_nothing_else(stand_ins, python):
    code = """
    import sys
    import lm_eval, lm_eval.api
    assert "lm_eval_bayes" not in sys.modules
    import lm_eval.api.metrics, lm_eval.filters, lm_eval.models, lm_eval.tasks, lm_eval.evaluator
    import lm_eval._cli.run
    """
    result = python(code + SHOW.replace("\n", "\n    "), start=stand_ins, bare=True)
    assert output_of(result) == str(list(HOOKS))


@pytest.mark.parametrize("value", ["0", " No ", "FALSE", "off", "1", "", "yes"])
def test_doctor_and_the_boot_module_read_one_switch_alike(site_folder, monkeypatch, value):
    from lm_eval_bayes.cli.commands.doctor import _plugin
    from lm_eval_bayes.harness.plugin.installed import Registered

    monkeypatch.setenv("LM_EVAL_BAYES_AUTOLOAD", value)
    scope: dict[str, object] = {}
    exec((site_folder / BOOT).read_text(encoding="utf-8"), scope)
    finding = _plugin(Registered())
    assert ("switched off" in " ".join(map(str, finding))) == scope["switched_off"]()


def test_the_hooks_of_the_boot_module_are_those_of_the_package(site_folder):
    from lm_eval_bayes.harness.plugin import registration

    scope: dict[str, object] = {}
    exec((site_folder / BOOT).read_text(encoding="utf-8"), scope)
    assert scope["HOOKS"] == registration.HOOKS == HOOKS


def test_installing_twice_registers_once(stand_ins, python):
    copy = stand_ins / "_copy_of_boot.py"
    shutil.copy(stand_ins / BOOT, copy)
    code = """
    import sys, _lm_eval_bayes_boot, _copy_of_boot
    _lm_eval_bayes_boot.install(); _copy_of_boot.install()
    assert sum(hasattr(f, "lm_eval_bayes") for f in sys.meta_path) == 1
    import lm_eval.filters
    from lm_eval_bayes.harness.plugin.registration import calls
    print(calls)
    """
    assert output_of(python(code, start=stand_ins, bare=True)) == "['lm_eval.filters']"


def test_a_harness_that_is_imported_already_is_registered_at_once(stand_ins, python):
    code = f"""
    import sys; sys.path.insert(0, {str(stand_ins)!r})
    import lm_eval.tasks, lm_eval.filters
    import _lm_eval_bayes_boot; _lm_eval_bayes_boot.install()
    from lm_eval_bayes.harness.plugin.registration import calls
    print(calls)
    """
    assert output_of(python(code, bare=True)) == "['lm_eval.filters', 'lm_eval.tasks']"


def test_autoload_off(stand_ins, python):
    code = """
    import sys, lm_eval.tasks
    print("lm_eval_bayes" in sys.modules, any(hasattr(f, "lm_eval_bayes") for f in sys.meta_path))
    """
    result = python(code, start=stand_ins, bare=True, LM_EVAL_BAYES_AUTOLOAD=" off ")
    assert output_of(result) == "False False"


def test_autoload_switched_off_after_the_start(stand_ins, python):
    code = """
    import os, sys
    os.environ["LM_EVAL_BAYES_AUTOLOAD"] = "0"
    import lm_eval.tasks
    print("lm_eval_bayes" in sys.modules)
    """
    assert output_of(python(code, start=stand_ins, bare=True)) == "False"


def test_orphaned_start_up_files_are_silent(site_folder, python):
    shutil.rmtree((site_folder / BOOT).parent)
    assert output_of(python("print('started')", start=site_folder, bare=True)) == "started"


def test_a_package_that_is_gone_is_passed_over_in_silence(site_folder, python):
    fake_harness(site_folder)
    code = "import lm_eval.filters, lm_eval.tasks; print(lm_eval.tasks.value)"
    assert output_of(python(code, start=site_folder, bare=True)) == "1"
    # What an uninstall may leave behind: folders without modules.
    (site_folder / "lm_eval_bayes" / "harness" / "plugin" / "__pycache__").mkdir(parents=True)
    assert output_of(python(code, start=site_folder, bare=True)) == "1"


def test_a_broken_package_is_named_once_and_breaks_nothing(site_folder, python):
    fake_package(fake_harness(site_folder), "import a_module_that_is_missing")
    code = "import lm_eval.filters, lm_eval.models, lm_eval.tasks; print(lm_eval.tasks.value)"
    result = python(code, start=site_folder, bare=True)
    assert (result.returncode, result.stdout.strip()) == (0, "1")
    assert result.stderr.count("lm_eval_bayes is not active") == 1
    assert "a_module_that_is_missing" in result.stderr


def test_the_harness_module_keeps_its_own_loader(stand_ins, python):
    code = """
    import importlib, importlib.util, inspect
    spec = importlib.util.find_spec("lm_eval.tasks")
    assert spec.loader.get_source("lm_eval.tasks") == "value = 1\\n"
    import lm_eval.tasks as tasks
    assert type(tasks.__loader__) is type(tasks.__spec__.loader) is type(inspect.__loader__)
    assert inspect.getsource(tasks) == "value = 1\\n"
    importlib.reload(tasks)
    assert type(tasks.__loader__) is type(tasks.__spec__.loader) is type(inspect.__loader__)
    from lm_eval_bayes.harness.plugin.registration import calls
    print(calls)
    """
    result = python(code, start=stand_ins, bare=True)
    assert output_of(result) == "['lm_eval.tasks', 'lm_eval.tasks']"


def test_namespace_folders_are_left_alone(stand_ins, python):
    (stand_ins / "lm_eval" / "filters" / "__init__.py").unlink()
    code = """
    import lm_eval.filters, lm_eval.tasks
    print(lm_eval.filters.__path__ is not None)
    """
    assert output_of(python(code, start=stand_ins, bare=True)) == "True"


def test_another_finder_that_asks_everybody_again(stand_ins, python):
    code = """
    import importlib.util, sys
    class Nosy:
        busy = False
        def find_spec(self, name, path=None, target=None):
            if self.busy or not name.startswith("lm_eval."):
                return None
            self.busy = True
            try:
                return importlib.util.find_spec(name)
            finally:
                self.busy = False
    sys.meta_path.insert(0, Nosy()); sys.meta_path.append(Nosy())
    import lm_eval.tasks
    from lm_eval_bayes.harness.plugin.registration import calls
    print(set(calls), lm_eval.tasks.value, type(lm_eval.tasks.__loader__).__name__)
    """
    result = python(code, start=stand_ins, bare=True)
    assert output_of(result) == "{'lm_eval.tasks'} 1 SourceFileLoader"


def test_a_harness_module_that_fails_fails_as_before_and_may_be_tried_again(stand_ins, python):
    module = stand_ins / "lm_eval" / "tasks" / "__init__.py"
    module.write_text("import os\nif 'FIXED' not in os.environ: raise OSError('disk')\n")
    code = """
    import os, sys
    try:
        import lm_eval.tasks
    except OSError as error:
        print(error, "lm_eval.tasks" in sys.modules, "lm_eval_bayes" in sys.modules)
    os.environ["FIXED"] = "1"
    import lm_eval.tasks
    from lm_eval_bayes.harness.plugin.registration import calls
    print(calls)
    """
    result = python(code, start=stand_ins, bare=True)
    assert output_of(result) == "disk False False\n['lm_eval.tasks']"


def test_the_start_file_names_what_it_calls(site_folder, python):
    """Python 3.15 and later read this file instead of the .pth; it holds `module:callable`."""
    lines = (site_folder / "lm_eval_bayes_boot.start").read_text(encoding="utf-8").splitlines()
    assert lines == ["_lm_eval_bayes_boot:install"]
    code = f"""
    import pkgutil, sys; sys.path.insert(0, {str(site_folder)!r})
    pkgutil.resolve_name({lines[0]!r})()
    print(type(sys.meta_path[0]).__name__)
    """
    assert output_of(python(code, bare=True)) == "Finder"
