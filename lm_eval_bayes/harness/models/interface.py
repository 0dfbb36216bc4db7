"""The interface between the harness, the backends and the tasks.

A backend gets a :class:`TrialRequest` for each trial and yields a
:class:`~lm_eval_bayes.store.trial.Trial`; :class:`SamplingMixin` lists what it defines. The task
gets each response as a :class:`Completion`, a string with its trial.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, SupportsIndex

from lm_eval_bayes._util.packages import HARNESS, version_of
from lm_eval_bayes._util.text import join_words
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.generation_settings import not_applied
from lm_eval_bayes.store.trial import Trial, TrialKey

if TYPE_CHECKING:
    from lm_eval_bayes.harness.models.trial_sink import StoreSink

log = get_logger(__name__)


@dataclass(frozen=True, eq=False, slots=True)
class TrialRequest:
    """One trial that is to be generated.

    Attributes
    ----------
    index : int
        Position among the harness's requests.
    context : object
        The prompt as the harness hands it to the backend: a string, or a named tuple around
        the JSON of a chat's messages.
    instance : Instance
        The harness's request.
    prompt : str
        The prompt's text.
    trial : int
        The trial's number among those of its key, from 0.
    seed : int
        The seed of this trial.
    kwargs : mapping
        Generation settings, all explicit: temperature, top_p, top_k (0: all), min_p, until,
        max_gen_toks, do_sample, and further ones of the task.
    key : TrialKey
        Model, prompt and sampling, under which the trial is stored.
    """

    index: int
    context: Any
    instance: Any
    prompt: str
    trial: int
    seed: int
    kwargs: Mapping[str, Any]
    key: TrialKey

    def result(self, text: str, **measured: Any) -> Trial:
        """Return the trial that answers this request.

        Parameters
        ----------
        text : str
            The raw text.
        **measured
            Further fields of :class:`~lm_eval_bayes.store.trial.Trial`; the seed is the
            request's own unless given.
        """
        return Trial(self.key, self.trial, text, **{"seed": self.seed, **measured})


class RequestStream(Iterator[TrialRequest]):
    """Requests in trial order, of which a backend takes one whenever a slot is free.

    In a worker it may give None where it has no request at present.

    Another thread than the one that takes them may end the stream.

    Parameters
    ----------
    questions : sequence of TrialRequest
        A request of every question, with the prompt and the settings of its trials.
    total : int
        The number of requests, unless the stream ends early.
    requests : iterator of TrialRequest
        The requests.

    Attributes
    ----------
    given : int
        The number of requests that were taken.
    ended : bool
        Whether no further request is given.
    deadline : float or None
        The monotonic time at which running requests are cancelled; None for never.
    """

    def __init__(
        self, questions: Sequence[TrialRequest], total: int, requests: Iterator[TrialRequest]
    ) -> None:
        self.questions, self.given = questions, 0
        self.ended, self.deadline = False, None
        self._total, self._requests = total, requests
        self._last: int | None = None

    deadline: float | None

    def __len__(self) -> int:
        """Return the number of requests, unless the stream ends early."""
        return self._total

    def __next__(self) -> TrialRequest:
        if self.ended:
            raise StopIteration
        request = next(self._requests)
        if self._last is not None and request.trial > self._last:
            self.ended = True
            raise StopIteration
        self.given += 1
        return request

    def end(self, wait_s: float) -> None:
        """Give no further request, and let running ones end within `wait_s` seconds."""
        self.ended, self.deadline = True, time.monotonic() + wait_s

    def end_after(self, trial: int) -> None:
        """Give no request for a trial with a higher number than this one."""
        self._last = trial

    @property
    def is_over(self) -> bool:
        """Whether running requests are to be cancelled."""
        return self.deadline is not None and time.monotonic() >= self.deadline


def prompt_text(context: object) -> str:
    """Return a prompt's text: a chat backend's is a named tuple around the JSON of its messages."""
    return context if isinstance(context, str) else str(getattr(context, "prompt", context))


class SamplingMixin:
    """The part of a recording model that one backend defines, before the harness's class of it.

    Attributes
    ----------
    backend_name : str
        The harness's name of the backend.
    given_arguments : mapping
        The model arguments of the harness's class.
    seeded : bool
        Whether each trial has a seed of its own.
    takes_seed : bool
        Whether the backend's class takes the argument `seed` too.
    default_seed : int
        The seed of a run that gives none; 1234 is that of the harness's own models.
    samples_elsewhere : bool
        Whether other processes sample, so that this one never loads weights.
    """

    backend_name: str
    given_arguments: Mapping[str, Any]
    seeded = True
    takes_seed = False
    default_seed = 1234
    samples_elsewhere = False

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return an attribute of the harness's class."""

    @property
    def cannot_record(self) -> tuple[str, ...]:
        """Signals that the backend cannot record."""
        return ()

    @property
    def weights_loaded(self) -> bool:
        """Whether a backend that loads its weights at their first use has loaded them."""
        return True

    @property
    def slots(self) -> int:
        """How many trials are sampled at once, once the weights are loaded."""
        return 1

    def load(self) -> None:
        """Load the weights, if they are not loaded."""

    def notice(self, requests: Sequence[Any]) -> None:
        """Inspect all requests of the harness, also those whose trials are stored."""

    def prepare(self, requests: Sequence[TrialRequest]) -> None:
        """Check the backend before trials are sampled; `requests` has one of every question."""

    def sample(
        self, requests: Any, measure: frozenset[str]
    ) -> Iterator[tuple[TrialRequest, Trial]]:
        """Yield each trial as it ends; `measure` are the prompts to be measured."""
        raise NotImplementedError

    def finished_text(self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any]) -> str:
        """Return the response that the harness's own backend would return for a raw text."""
        return raw

    def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Return the stop strings that the engine gets."""
        raise NotImplementedError

    def fingerprint(self) -> dict[str, Any]:
        """Return what the distribution of the texts depends on, without loading weights."""
        raise NotImplementedError

    def fingerprint_among(self, stored: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the stored fingerprint of this backend, for when it cannot be determined."""
        return None

    def versions(self) -> dict[str, str]:
        """Return the versions of the software that generates."""
        return installed_versions("lm_eval")

    def warn_not_applied(
        self, generation_config: Mapping[str, Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Warn once of settings of the model's generation_config.json that are not applied."""
        ignored = not_applied(generation_config, kwargs)
        if ignored:
            self.warn_once(
                "generation config",
                "the model's generation_config.json has %s, which is not applied: the task's "
                "settings are used; add it to --gen_kwargs to apply it",
                ", ".join(f"{name}={value}" for name, value in ignored.items()),
            )

    def warn_once(self, topic: str, message: str, *values: object) -> None:
        """Log a warning, the first time for this topic."""
        topics = self.__dict__.setdefault("_warned", set())
        if topic not in topics:
            topics.add(topic)
            log.warning(message, *values)


def check_harness(backend: str, *needed: tuple[object, Sequence[str]]) -> None:
    """Check that objects of the harness have the names that are used here.

    Raises
    ------
    ModelConfigError
        If one of them has not.
    """
    missing = [name for owner, names in needed for name in names if not hasattr(owner, name)]
    if missing:
        sentence = (
            f"this release of lm_eval builds {backend} in a way unknown to this package "
            f"(without {', '.join(missing)}); lm_eval {join_words(HARNESS.tested)} are tested"
        )
        raise ModelConfigError(sentence, "unsupported", "lm_eval", tuple(missing))


def installed_versions(*distributions: str) -> dict[str, str]:
    """Return the versions of those distributions that are installed."""
    versions = {name: version_of(name) for name in distributions}
    return {name: version for name, version in versions.items() if version is not None}


def bits_per_token(logprobs: Sequence[object], tokens: int | None = None) -> float | None:
    """Return the negative mean log-probability of tokens, in bits.

    Parameters
    ----------
    logprobs : sequence
        Natural logarithms of their probabilities, or their sum alone.
    tokens : int, optional
        Number of tokens; by default that of the log-probabilities.

    Returns
    -------
    float or None
        At least 0; None without tokens, or if a log-probability is missing or not finite.

    Examples
    --------
    >>> bits_per_token([math.log(0.5), math.log(0.125)])
    2.0
    >>> bits_per_token([math.log(0.0625)], tokens=2)
    2.0
    >>> bits_per_token([]) is None, bits_per_token([-0.1, None]) is None
    (True, True)
    """
    values = [v for v in logprobs if isinstance(v, (int, float)) and math.isfinite(v)]
    count = len(logprobs) if tokens is None else tokens
    if not count or len(values) != len(logprobs):
        return None
    return max(-math.fsum(values) / (count * math.log(2)), 0.0) + 0.0


NO_SIGNALS: Mapping[str, Any] = MappingProxyType({})

#: Fields of a trial that the samples log does not hold as signals.
_NOT_LOGGED = frozenset({"key", "text", "signals", "versions", "created"})
_LOGGED = tuple(field.name for field in fields(Trial) if field.name not in _NOT_LOGGED)


class Completion(str):
    """A string with the trial that it comes from, which its parts keep.

    The harness cuts responses at stop strings, strips them, and passes them through filters
    and from rank to rank. Every method below returns a Completion (or several) of the same
    trial; copies and pickles keep it too. A new string that is made in another way (an
    f-string, `join`, a regular expression) is a plain one.

    Parameters
    ----------
    text : str
        The response.
    signals : mapping
        Signals beside those of the trial: those of its prompt, or all of a backend that
        records no trials.
    trial : Trial, optional
        The trial. Its raw text is dropped, so that a run holds each response once.
    sink : StoreSink, optional
        The store that keeps the trial, for its outcome. It never goes into a pickle: another
        process has a connection of its own.

    Examples
    --------
    >>> response = Completion(" so it is 42.\\n\\nQ:", {"seed": 7})
    >>> answer = response.split("\\n\\n")[0].strip()
    >>> answer, answer.signals["seed"]
    ('so it is 42.', 7)
    """

    _measured: Mapping[str, Any]
    trial: Trial | None
    sink: StoreSink | None

    def __new__(
        cls,
        text: str,
        signals: Mapping[str, Any] = NO_SIGNALS,
        trial: Trial | None = None,
        sink: StoreSink | None = None,
    ) -> Completion:
        """Create a completion from a text, its signals and its trial."""
        completion = super().__new__(cls, text)
        completion._measured, completion.sink = signals, sink
        completion.trial = replace(trial, text="") if trial is not None and trial.text else trial
        return completion

    @property
    def signals(self) -> Mapping[str, Any]:
        """All that is known of the trial, by the names of the samples log."""
        if self.trial is None:
            return self._measured
        recorded = {name: getattr(self.trial, name) for name in _LOGGED}
        return {**recorded, **(self.trial.signals or {}), **self._measured}

    def with_text(self, text: str) -> Completion:
        """Return another text of the same trial."""
        return Completion(text, self._measured, self.trial, self.sink)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return Completion, (str(self), dict(self._measured), self.trial)

    def __copy__(self) -> Completion:
        return self.with_text(str(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Completion:
        return copy.copy(self)

    def __getitem__(self, key: Any) -> Completion:
        return self.with_text(super().__getitem__(key))


def _of_same_trial(name: str) -> Callable[..., Any]:
    """Return a method of str whose results are completions of the same trial."""
    original = getattr(str, name)

    def method(self: Completion, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if isinstance(result, str):
            return self.with_text(result)
        return type(result)([self.with_text(part) for part in result])

    method.__name__, method.__doc__ = name, original.__doc__
    return method


for _name in (
    *("strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "replace", "expandtabs"),
    *("lower", "upper", "casefold", "capitalize", "title", "swapcase"),
    *("split", "rsplit", "splitlines", "partition", "rpartition", "__add__"),
):
    setattr(Completion, _name, _of_same_trial(_name))


def signals_of(response: object) -> Mapping[str, Any]:
    """Return the signals of a response; none for a plain string."""
    return response.signals if isinstance(response, Completion) else NO_SIGNALS


def stored_trial(response: object) -> tuple[StoreSink, Trial] | None:
    """Return the trial of a response and its store, if this process has it open."""
    if isinstance(response, Completion) and response.sink is not None:
        return response.sink, response.trial  # type: ignore[return-value]
    return None


def signal_columns(responses: Sequence[object]) -> dict[str, dict[str, list[Any]]]:
    """Return the signals of a question's trials as columns, for the samples log.

    Returns
    -------
    dict
        ``{"signals": {name: values}}``, a value for each trial, None where a trial lacks it;
        empty where no response has signals.

    Examples
    --------
    >>> signal_columns([Completion("a", {"seed": 1}), Completion("b", {"seed": 2}), "c"])
    {'signals': {'seed': [1, 2, None]}}
    >>> signal_columns(["c"])
    {}
    """
    signals = [signals_of(response) for response in responses]
    names = dict.fromkeys(name for trial in signals for name in trial)
    columns = {name: [trial.get(name) for trial in signals] for name in names}
    return {"signals": columns} if columns else {}
