"""Registers lm_eval_bayes as soon as the lm-evaluation-harness is imported.

Installed at the root of site-packages, with two files that make every start of Python call
install(): lm_eval_bayes_boot.pth up to Python 3.14 and lm_eval_bayes_boot.start from 3.15 on
(PEP 829; the .pth of the same name is then ignored). So this file is short, imports only os and
sys, and does nothing until one of HOOKS is imported. LM_EVAL_BAYES_AUTOLOAD=0 switches it off.
"""

import os
import sys

HOOKS = (
    "lm_eval.api.metrics",
    "lm_eval.filters",
    "lm_eval.models",
    "lm_eval.tasks",
    "lm_eval.evaluator",
    "lm_eval._cli.run",
)


def switched_off() -> bool:
    """Return whether the user wants none of this."""
    value = os.environ.get("LM_EVAL_BAYES_AUTOLOAD", "")
    return value.strip().lower() in ("0", "false", "no", "off")


def register(name: str) -> None:
    """Tell the package that the harness's module `name` has run; never raises."""
    try:
        import lm_eval_bayes.harness.plugin.registration as registration
    except Exception as error:
        sys.meta_path[:] = [f for f in sys.meta_path if not getattr(f, "lm_eval_bayes", False)]
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if not (missing and "lm_eval_bayes.harness.plugin.registration.".startswith(missing + ".")):
            import logging

            logging.getLogger("lm_eval_bayes").warning("lm_eval_bayes is not active: %r", error)
        return  # silent where the package is gone and only this file is left
    registration.harness_imported(name)


class Loader:
    """Lets the real loader run one module, then registers."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.__dict__["loader"], name)

    def exec_module(self, module):
        """Run the module as if we were not there, then register."""
        module.__spec__.loader = module.__loader__ = self.loader  # out of the way for good
        self.loader.exec_module(module)
        if not switched_off():
            register(module.__spec__.name)


class Finder:
    """Inert for every name that is not in HOOKS."""

    lm_eval_bayes = True  # how a second copy of this file knows the first

    def __init__(self):
        self.busy = set()

    def find_spec(self, name, path=None, target=None):
        """Find what the other finders find, with our loader around theirs."""
        if name not in HOOKS or name in self.busy:
            return None
        self.busy.add(name)  # another finder may ask all of us again
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find and finder is not self else None
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = Loader(spec.loader)
                    return spec
            return None
        finally:
            self.busy.discard(name)


def install() -> None:
    """Watch for the harness, or register at once what it has imported already."""
    if switched_off():
        return
    if not any(getattr(finder, "lm_eval_bayes", False) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    for name in HOOKS:
        if name in sys.modules:
            register(name)
