"""The `bayes_*` settings of a task, checked before sampling starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lm_eval_bayes._util.plain import Record
from lm_eval_bayes._util.validation import (
    as_real,
    check_flag,
    check_fraction,
    check_integer,
    check_option,
    check_pair,
    check_real,
)
from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness.task.prompts import LABEL, Variant, is_label, variants_of
from lm_eval_bayes.stats import METHODS, IntervalMethod

#: The largest N; a larger number is taken for a typing error.
MAX_TRIALS = 100_000

_LARGEST_WEIGHT = 1e100

#: Known ways of asking a contest's questions.
PROTOCOLS = ("hariri-2026", "hariri-2026-nemotron", "matharena")

#: Every key that a task's metadata may carry for us, with what it means.
KEYS = {
    "bayes_n": "trials per question, N (default: the task's `repeats`); tasks of one command may "
    "differ: `{TASK: N, …}`",
    "bayes_k": "the k of Pass@k and its family, one or a list (default: powers of two <= N)",
    "bayes_tau": "the threshold of G-Pass@k, in [0, 1] (default 0.5)",
    "bayes_maj_k": "the k of maj@k (default min(8, N))",
    "bayes_weights": "the score of each category 0..C (default [0, 1])",
    "bayes_metric": "which metric of the task is the outcome (default: the first one); with a "
    "list, or all, each has rows, such as `hbayes@N(NAME)` of those after the first",
    "bayes_bounds": "the lowest and highest value of a metric that gives scores such as F1, as in "
    "[0, 1]: rows of the mean score, without categories; of several metrics, or of some tasks of a "
    "command, `{NAME: [0, 1]}`",
    "bayes_threshold": "the score from which on a response passes, for Pass@k of scores (default: "
    "no such rows); of several metrics `{NAME: 0.5}`",
    "bayes_interval": f"the interval's method: {', '.join(METHODS)} (default exact)",
    "bayes_level": "the interval's posterior mass, in (0, 1) (default 0.95)",
    "bayes_protocol": f"the prompt of the contests: {', '.join(PROTOCOLS)} (default hariri-2026)",
    "bayes_chat_template": "auto, always or never: whether prompts are put into the model's chat "
    "template; auto where it has one (default of the contests; other tasks follow the harness's "
    "--apply_chat_template)",
    "bayes_prompts": "variants of the prompt, which the trials of a question take in turn: "
    "`contest` or a list of them",
    "bayes_setting": "a label of how the model is run, such as the day: part of the trials' seeds",
    "bayes_check": "test filters and grader on the first question's own answer (default true)",
    "bayes_seed": "the seed of Monte-Carlo intervals and votes (default 0)",
    "cluster": "the field of a question that names its cluster: a contest, a topic, a passage",
}


@dataclass(frozen=True)
class Settings(Record):
    """The checked settings of one task.

    Attributes
    ----------
    n : int
        Trials per question, N.
    k : tuple of int
        The k of Pass@k, Pass^k, G-Pass@k and mG-Pass@k, ascending, each in 1..N.
    tau : float
        The threshold of G-Pass@k, in [0, 1].
    maj_k : int
        The k of maj@k, in 1..N.
    weights : tuple of float
        The score of each category, at least two.
    interval : str
        One of ``exact``, ``normal``, ``beta``.
    level : float
        Posterior mass of the interval, in (0, 1).
    seed : int
        Seed of whatever is computed by Monte Carlo.
    metric : str or None
        The task's metric that is the outcome; None for the first one.
    protocol : str or None
        One of `PROTOCOLS`; None asks with the task's own prompt.
    chat_template : "auto", "always", "never" or None
        Whether prompts are put into the model's chat template; None as the harness's flag says.
    check : bool
        Whether filters and grader are tested before sampling.
    extra_trials : tuple of (int, int)
        (question, further trials) of the questions that have more than N. Rows of a mean
        and its posterior use them all; N is then the fewest.
    cluster : str or None
        The field of a document that names the cluster of its question; None without clusters.
    bounds : tuple of float, or None
        The lowest and the highest score of a metric that gives scores; None for categories.
    threshold : float or None
        The score from which on a response passes; None without rows of the Pass@k family.
    prompts : tuple of Variant
        Variants of the prompt; empty for the task's own.
    setting : str or None
        The label of the setting in which the model is run.
    """

    n: int
    k: tuple[int, ...]
    tau: float
    maj_k: int
    weights: tuple[float, ...]
    interval: IntervalMethod
    level: float
    seed: int
    metric: str | None = None
    protocol: str | None = None
    chat_template: str | None = None
    check: bool = True
    extra_trials: tuple[tuple[int, int], ...] = ()
    cluster: str | None = None
    bounds: tuple[float, float] | None = None
    threshold: float | None = None
    prompts: tuple[Variant, ...] = ()
    setting: str | None = None

    def trials_of(self, doc_id: int) -> int:
        """Return the number of trials of a question: N, and what it gets beyond."""
        return self.n + dict(self.extra_trials).get(doc_id, 0)

    @property
    def binary(self) -> bool:
        """Whether the outcome is right or wrong, so that the Pass@k family exists."""
        return len(self.weights) == 2

    @classmethod
    def from_metadata(
        cls,
        metadata: Mapping[str, Any],
        repeats: object,
        categories: int | None = None,
        *,
        task: str = "",
    ) -> Settings:
        """Read and check the `bayes_*` keys of a task's metadata.

        Parameters
        ----------
        metadata : mapping
            A task's metadata. Keys other than ``cluster`` and those that start with ``bayes_`` are
            ignored.
        repeats : int
            The task's `repeats`, which is N where ``bayes_n`` is absent.
        categories : int, optional
            How many categories the outcome metric is known to have.
        task : str
            The task's name, by which `bayes_n` may give each task its N.

        Raises
        ------
        TaskConfigError
            If a key is unknown.
        InvalidInputError
            If a value breaks its rule.
        """
        check_names(metadata, "bayes_", KEYS)
        n, setting = _n_trials(metadata, repeats, task), metadata.get("bayes_setting")
        if setting is not None and not is_label(setting):
            raise InvalidInputError.of("bayes_setting", "format", f"be {LABEL}", setting)
        metric = metadata.get("bayes_metric")
        if metric is not None and not isinstance(metric, str):
            raise InvalidInputError.of("bayes_metric", "type", "be the name of a metric", metric)
        return cls(
            n=n,
            k=_ks(metadata.get("bayes_k"), n),
            maj_k=check_integer("bayes_maj_k", metadata.get("bayes_maj_k", min(8, n)), 1, n),
            tau=check_real(
                "bayes_tau",
                metadata.get("bayes_tau", 0.5),
                "be a number in [0, 1]",
                lambda x: 0.0 <= x <= 1.0,
            ),
            weights=_weights(metadata.get("bayes_weights"), categories),
            interval=check_option(
                "bayes_interval", metadata.get("bayes_interval", "exact"), METHODS
            ),
            level=check_fraction("bayes_level", metadata.get("bayes_level", 0.95)),
            seed=check_integer("bayes_seed", metadata.get("bayes_seed", 0), 0, 2**32 - 1),
            metric=metric,
            **_asking(metadata),
            check=check_flag("bayes_check", metadata.get("bayes_check", True)),
            cluster=_cluster(metadata.get("cluster")),
            prompts=variants_of(metadata, task),
            setting=setting,
            **_scores(metadata),
        )

    def with_trials(self, n: int, extra: Mapping[int, int]) -> Settings:
        """Return the settings at a lower N, with further trials of single questions.

        Examples
        --------
        >>> settings = Settings.from_metadata({"bayes_k": [1, 8, 64]}, 80).with_trials(16, {3: 2})
        >>> settings.n, settings.k, settings.extra_trials
        (16, (1, 8), ((3, 2),))
        """
        k = tuple(k for k in self.k if k <= n) or (1,)
        extra_trials = tuple(sorted(extra.items()))
        return replace(self, n=n, k=k, maj_k=min(self.maj_k, n), extra_trials=extra_trials)


def _asking(metadata: Mapping[str, Any]) -> dict[str, Any]:
    protocol = metadata.get("bayes_protocol")
    mode = metadata.get("bayes_chat_template", None if protocol is None else "auto")
    if protocol is not None:
        check_option("bayes_protocol", protocol, PROTOCOLS)
    if mode is not None:
        check_option("bayes_chat_template", mode, ("auto", "always", "never"))
    return {"protocol": protocol, "chat_template": mode}


#: Settings of categories, which scores do not have.
OF_CATEGORIES = ("bayes_weights", "cluster")


def _scores(metadata: Mapping[str, Any]) -> dict[str, Any]:
    value, threshold = metadata.get("bayes_bounds"), metadata.get("bayes_threshold")
    if value is None:
        if threshold is not None:
            rule = "come with bayes_bounds, the lowest and the highest score"
            raise InvalidInputError.of("bayes_threshold", "conflict", rule, threshold)
        return {}
    low, high = bounds = check_pair(
        "bayes_bounds",
        value,
        "be the lowest and the highest score, as in [0, 1]",
        lambda low, high: -_LARGEST_WEIGHT <= low < high <= _LARGEST_WEIGHT,
    )
    for key in OF_CATEGORIES:
        if metadata.get(key) is not None:
            got = metadata[key]
            raise InvalidInputError.of(key, "conflict", "be left out beside bayes_bounds", got)
    if threshold is not None:
        threshold = check_real(
            "bayes_threshold",
            threshold,
            f"be a number above {low:g} and up to {high:g}, the bounds",
            lambda x: low < x <= high,
        )
    return {"bounds": bounds, "threshold": threshold}


def _cluster(value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or not value.strip()):
        rule = "be the name of a field of a question"
        raise InvalidInputError.of("cluster", "format", rule, value)
    return value


def check_names(metadata: Mapping[str, Any], prefix: str, settings: Iterable[str]) -> None:
    """Raise an error for a key of the metadata that starts like a setting and is none.

    Raises
    ------
    TaskConfigError
        If there is one.
    """
    # `bayes-n` and `Bayes_N` are slips; `bayes` itself holds the settings once they are checked.
    unknown = [
        str(key)
        for key in metadata
        if str(key).lower().replace("-", "_").startswith(prefix) and key not in settings
    ]
    if unknown:
        sentence = (
            f"metadata has no setting `{min(unknown)}`; the settings are {', '.join(settings)}"
        )
        raise TaskConfigError(sentence, "unknown-key", "metadata", min(unknown))


def _n_trials(metadata: Mapping[str, Any], repeats: object, task: str) -> int:
    given = metadata.get("bayes_n")
    if isinstance(given, Mapping):
        if not given or not all(isinstance(name, str) for name in given):
            rule = "be an integer, or give each task its own, as in {TASK: 8, OTHER_TASK: 64}"
            raise InvalidInputError.of("bayes_n", "format", rule, given)
        metadata = {"bayes_n": given[task]} if task in given else {}
    name = "bayes_n" if "bayes_n" in metadata else "repeats"
    return check_integer(name, metadata.get("bayes_n", repeats), 1, MAX_TRIALS)


def _ks(value: object, n: int) -> tuple[int, ...]:
    if value is None:
        return tuple(2**i for i in range(n.bit_length()) if 2**i <= n)
    ks: Sequence[object] = value if isinstance(value, (list, tuple)) else [value]
    if not ks:
        raise InvalidInputError.of("bayes_k", "empty", "name at least one k", value)
    return tuple(sorted({check_integer("bayes_k", k, 1, n) for k in ks}))


def _weights(value: object, n_categories: int | None) -> tuple[float, ...]:
    if value is None:
        return 0.0, 1.0
    numbers = value if isinstance(value, (list, tuple)) else []
    weights = tuple(w for w in map(as_real, numbers) if w is not None and abs(w) <= _LARGEST_WEIGHT)
    if len(weights) < 2 or len(weights) < len(numbers):
        raise InvalidInputError.of(
            "bayes_weights",
            "format",
            "be a list of at least two finite numbers, one a category",
            value,
        )
    if n_categories is not None and len(weights) != n_categories:
        raise InvalidInputError.of(
            "bayes_weights",
            "shape",
            f"have {n_categories} entries, one for each category of the outcome",
            value,
        )
    if len(weights) == 2 and not weights[0] < weights[1]:
        raise InvalidInputError.of(
            "bayes_weights", "range", "score a right answer above a wrong one, as in [0, 1]", value
        )
    if min(weights) == max(weights):
        raise InvalidInputError.of("bayes_weights", "duplicate", "differ between categories", value)
    return weights
