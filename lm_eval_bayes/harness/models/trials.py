"""`--model trials`: any backend of the harness, with every response stored as a trial.

:class:`RecordingMixin` looks trials up, and generates and stores the missing ones, on top of a
backend's :class:`~lm_eval_bayes.harness.models.interface.SamplingMixin`.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from lm_eval.api.model import LM
from lm_eval.utils import simple_parse_args_string
from tqdm import tqdm

from lm_eval_bayes._util.hashing import canonical_json
from lm_eval_bayes.errors import LmEvalBayesError, ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.evaluation import setting_of, trials_of
from lm_eval_bayes.harness.models.api_seeds import trial_seed
from lm_eval_bayes.harness.models.backends import canonical_name, sampling_mixin, stock_class
from lm_eval_bayes.harness.models.generation_settings import explicit_kwargs, sampling_key
from lm_eval_bayes.harness.models.interface import (
    Completion,
    RequestStream,
    SamplingMixin,
    TrialRequest,
    prompt_text,
)
from lm_eval_bayes.harness.models.stored_texts import responses_in_turn
from lm_eval_bayes.harness.models.trial_sink import StoreSink, what_is_stored
from lm_eval_bayes.harness.models.trial_stream import StreamedTrials
from lm_eval_bayes.runs.model_arguments import redacted
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

log = get_logger(__name__)

SEED_SCHEMES = ("hash", "plain")

#: Signals of the prompt, which a backend measures with one trial of each prompt. The store
#: keeps them with the prompt, not with that trial.
PROMPT_SIGNALS = ("prompt_bpt",)


def trial_range(text: object) -> range | None:
    """Return the numbers of a run's trials from "a:b", the model argument `trials`.

    Raises
    ------
    ModelConfigError
        If it has another form.

    Examples
    --------
    >>> trial_range("8:16")
    range(8, 16)
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text) if isinstance(text, str) else None
    if match is None or int(match[1]) >= int(match[2]):
        rule = "be a:b with whole numbers a < b, such as trials=8:16"
        raise ModelConfigError.of("trials", "format", rule, text)
    return range(int(match[1]), int(match[2]))


class RecordingMixin(SamplingMixin):
    """A backend whose responses are trials: numbered, seeded, measured and stored.

    In a class's bases it stands before a sampling mixin (`VLLMSampling`, `HFSampling`,
    `OpenAISampling`, `CoinSampling`, `GenericSampling`) and one of the harness's classes, so
    that rank, tokenizer, chat template and log-likelihoods are the harness's own.

    Parameters
    ----------
    store : str or None
        The file of the trial store; None keeps the trials in memory, for this run alone.
    trials : str or None
        ``a:b`` for the trials a, …, b - 1 only, as one job of an array.
    seed : int or None
        Trial i of a question has the seed hash(seed + i, prompt, setting), or seed + i. By default
        it is the backend's `default_seed`.
    seed_scheme : str
        "hash" or "plain". With "plain", as in the paper, all questions of a trial share a seed
        and so their noise: per-trial means varied 3.8 times as much as those of independent
        questions, and every interval is too narrow.
    """

    def __init__(
        self,
        *args: Any,
        store: str | None = None,
        trials: str | None = None,
        seed: int | None = None,
        seed_scheme: str = "hash",
        **kwargs: Any,
    ) -> None:
        self._range = trial_range(trials)
        self.first_trial = self._range.start if self._range else 0
        if seed_scheme not in SEED_SCHEMES:
            rule = "be hash, or plain, which gives all questions of a trial one seed"
            raise ModelConfigError.of("seed_scheme", "choice", rule, seed_scheme)
        seed = self.default_seed if seed is None else seed
        if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**31) <= seed < 2**31:
            raise ModelConfigError.of("seed", "range", "be a whole number of 32 bits", seed)
        self.seed0, self.seed_scheme = seed, seed_scheme
        self.given_arguments = dict(kwargs)
        if store is not None:
            StoreSink.check_path(store)
        if self.takes_seed:
            kwargs["seed"] = seed
        super().__init__(*args, **kwargs)
        fingerprint = self._fingerprint_or_stored(store)
        rank = int(getattr(self, "rank", 0) or 0)
        self.sink = StoreSink.open(store, rank, fingerprint)
        self.model_key = self.sink.describe_model(fingerprint)
        self._generated = self._from_store = 0
        if seed_scheme == "plain":
            log.warning(
                "seed_scheme=plain gives all questions of a trial the same seed, so they share "
                "their noise; the intervals take questions as independent and will be too narrow"
            )
        if self.cannot_record:
            log.info("%s cannot record: %s", self.backend_name, ", ".join(self.cannot_record))

    def _fingerprint_or_stored(self, store: str | None) -> dict[str, Any]:
        """Return the fingerprint; for a server that is down, the matching one of the store."""
        try:
            return self.fingerprint()
        except LmEvalBayesError as error:
            if store is None or not Path(store).expanduser().is_file():
                raise
            with TrialStore.open(Path(store).expanduser(), mode="read") as stored:
                fingerprint = self.fingerprint_among(list(stored.models().values()))
            if fingerprint is None:
                raise
            log.warning("%s; continuing with the stored trials of this model", error)
            return fingerprint

    @property
    def trial_store(self) -> TrialStore | None:
        """The open store, if it is a file."""
        return self.sink.store if self.sink.name else None

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Refuse `--use_cache`, which would hold every text a second time and never read it."""
        if getattr(cache_hook, "dbdict", None) is not None:
            sentence = (
                "--use_cache cannot be combined with a recording model: it never reads sampled "
                "responses back; leave it out, the store keeps every trial"
            )
            raise ModelConfigError(sentence, "conflict", "use_cache")
        super().set_cache_hook(cache_hook)  # type: ignore[misc]

    # -- generation ----------------------------------------------------------------------

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[Any]:
        """Return a response to each request, from the store or newly generated.

        Each is a Completion, or a StoredText where the texts can stay in the store.

        Parameters
        ----------
        requests : sequence of Instance
            The harness's requests; clones of one are its trials.
        disable_tqdm : bool
            Whether to show no progress bar.
        """
        instances = list({id(request): request for request in requests}.values())
        trials = self.streamed_trials(instances)
        counts = trials.planned
        for _ in chain(trials.read(counts), trials.sample(counts, disable_tqdm=disable_tqdm)):
            pass
        by_id = zip(map(id, instances), trials.responses(counts), strict=True)
        return responses_in_turn(requests, dict(by_id))

    def streamed_trials(self, instances: Sequence[Any]) -> StreamedTrials:
        """Return the trials of questions, to be sampled without barriers.

        Parameters
        ----------
        instances : sequence of Instance
            The harness's requests, one for each question.
        """
        self.notice(instances)
        return StreamedTrials(self, instances)

    def completion(
        self, request: TrialRequest, trial: Trial, prompt_signals: Mapping[str, Any]
    ) -> Completion:
        """Return the response of a trial to the question that the request is of."""
        text = self.finished_text(trial.text, request.kwargs, trial.signals or {})
        return Completion(text, prompt_signals, trial, self.sink)

    def prompt_signals_of(self, requests: Sequence[TrialRequest]) -> dict[str, dict[str, Any]]:
        """Return the signals of the prompts of requests, by the prompts' hashes."""
        return self.sink.prompt_signals(self.model_key, {r.key.prompt for r in requests})

    def trial_requests(self, instances: Sequence[Any]) -> list[TrialRequest]:
        """Return a request for each question, for :meth:`numbered`."""
        default = int(getattr(self, "max_gen_toks", 0) or getattr(self, "_max_gen_toks", 256))
        sampling_hashes: dict[str, str] = {}
        prompts = list(dict.fromkeys(prompt_text(instance.args[0]) for instance in instances))
        prompt_keys = dict(zip(prompts, self.sink.store.describe_prompts(prompts), strict=True))
        requests = []
        for index, instance in enumerate(instances):
            n = trials_of(instance, self.first_trial).stop - self.first_trial
            if self._range is not None and n != len(self._range):
                sentence = (
                    f"`trials={self._range.start}:{self._range.stop}` is {len(self._range)} trials "
                    f"per question, but task {instance.task_name} has N = {n}; pass --metadata "
                    f"'{{\"bayes_n\": {len(self._range)}}}' as well"
                )
                raise ModelConfigError(sentence, "mismatch", "trials", n)
            explicit = explicit_kwargs(instance.args[1], default, instance.task_name)
            sampling = redacted(sampling_key(explicit, self.stops_sent(explicit)))
            if setting := setting_of(instance):
                sampling["setting"] = list(setting)
            text = canonical_json(sampling)
            if text not in sampling_hashes:
                sampling_hashes[text] = self.sink.store.describe_sampling(sampling)
            context = instance.args[0]
            prompt = prompt_text(context)
            key = TrialKey(self.model_key, prompt_keys[prompt], sampling_hashes[text])
            requests.append(
                TrialRequest(index, context, instance, prompt, 0, self.seed0, explicit, key)
            )
        return requests

    def seed_of(self, request: TrialRequest, number: int) -> int:
        """Return the seed of a trial of the question that the request is of."""
        if self.seed_scheme == "hash":
            return trial_seed(self.seed0, number, request.prompt, setting_of(request.instance))
        return self.seed0 + number

    def numbered(self, request: TrialRequest, number: int, index: int) -> TrialRequest:
        """Return the request for another trial of the same question."""
        seed = self.seed_of(request, number)
        return replace(request, trial=number, seed=seed, index=index)

    def take_stored(self, request: TrialRequest, trial: Trial) -> None:
        """Take note of a trial that the run has from the store."""
        self._from_store += 1
        if self.seeded and trial.seed != self.seed_of(request, trial.trial):
            self.warn_once(
                "seeds",
                "stored trials were drawn with other seeds than this run would use (another seed= "
                "or seed_scheme=); the stored ones are kept",
            )

    def log_other_trials(self, keys: Iterable[TrialKey]) -> None:
        """Log what the store has beside the trials of some keys, if it has none of these."""
        if self._from_store or self._generated or self.trial_store is None:
            return
        samplings = list(dict.fromkeys(key.sampling for key in keys))
        for sentence in what_is_stored(self.trial_store, self.model_key, samplings):
            log.info("no trial of this run is stored, but the store has %s", sentence)

    def sampled(
        self, requests: RequestStream, disable_tqdm: bool = False
    ) -> Generator[Trial, None, None]:
        """Sample trials in the order of their requests; store each as it ends, and yield it.

        Raises
        ------
        RuntimeError
            If the backend returned fewer trials than it was asked for.
        """
        questions = requests.questions
        self.prepare(questions)
        measured = self.prompt_signals_of(questions)
        measure = frozenset(r.prompt for r in questions if r.key.prompt not in measured)
        versions = dict(self.versions())
        show = not disable_tqdm and not getattr(self, "rank", 0)
        came = 0
        sampled: Any = self.sample(requests, measure)
        with (
            tqdm(total=len(requests), desc="Sampling trials", disable=not show) as bar,
            closing(sampled),
        ):
            for _, trial in sampled:
                signals = dict(trial.signals or {})
                of_prompt = {n: signals.pop(n) for n in PROMPT_SIGNALS if n in signals}
                trial = replace(trial, signals=signals, versions=trial.versions or versions)
                trial = self.sink.add(trial)
                if of_prompt:
                    self.sink.store.add_prompt_signals(self.model_key, trial.key.prompt, of_prompt)
                came += 1
                self._generated += 1
                bar.update()
                yield trial
        if came < requests.given and not requests.ended:
            few = requests.given - came
            raise RuntimeError(f"{self.backend_name} returned {few} trials too few")

    # -- what the harness writes into its results -------------------------------------------

    def get_model_info(self) -> dict[str, Any]:
        """Return the backend's own info, if its weights were loaded, and the origin of trials."""
        info = {}
        inherited = getattr(super(), "get_model_info", None)
        if inherited is not None and self.weights_loaded:
            info = inherited()
        recorded = {
            "backend": self.backend_name,
            "store": self.sink.name,
            "model_key": self.model_key,
            "seed": self.seed0,
            "seed_scheme": self.seed_scheme if self.seeded else None,
            "seeded": self.seeded,
            "first_trial": self.first_trial,
            "generated": self._generated,
            "from_store": self._from_store,
        }
        return {**info, "trials": recorded}


#: What `--model trials` cannot do without, each with an example.
_REQUIRED = {
    "backend": "backend=vllm,store=trials.sqlite,pretrained=...",
    "store": "store=trials.sqlite (to measure without storing, use --model vllm-signals or "
    "--model hf-signals)",
}

#: Arguments of executor=ray.
_OF_RAY = ("workers", "gpus_per_worker")


def recording_class(backend: object, executor: object = None) -> type[LM]:
    """Return the class of a backend whose responses are recorded as trials.

    Parameters
    ----------
    backend : str
        A name for the harness's `--model`.
    executor : str or None
        "ray" to sample in worker processes, see :mod:`lm_eval_bayes.harness.models.ray`.

    Returns
    -------
    type
        A subclass of that backend's own class.

    Raises
    ------
    ModelConfigError
        If the harness has no such backend, or there is no such executor of it.
    """
    stock = stock_class(backend)
    name = canonical_name(str(backend))
    sampling = sampling_mixin(name)
    bases: tuple[type, ...] = (RecordingMixin, sampling, stock)
    if executor is not None:
        if executor != "ray":
            rule = "be ray, or left out to sample in this process"
            raise ModelConfigError.of("executor", "choice", rule, executor)
        from lm_eval_bayes.harness.models.ray.sampling import RaySampling

        RaySampling.check_backend(name)
        bases = (RecordingMixin, RaySampling, sampling, stock)
    members = {"backend_name": name, "__module__": __name__, "__doc__": RecordingMixin.__doc__}
    return type(f"Recording{stock.__name__}", bases, members)


class TrialsLM(LM):
    """Creates the recording model of `backend=`, which stores its trials in `store=`.

    The result is not an instance of this class but of the backend's own class, with
    :class:`RecordingMixin` in front.

    Examples
    --------
    >>> import tempfile
    >>> from lm_eval_bayes.harness.evaluation import new_instance
    >>> folder = tempfile.TemporaryDirectory()
    >>> def ask(n):
    ...     lm = TrialsLM(backend="biased_coin", store=folder.name + "/coin.sqlite", p=0.5)
    ...     doc = {"problem": "What is 7 + 5?", "answer": "12"}
    ...     arguments = ("What is 7 + 5?", {"temperature": 1.0})
    ...     request = new_instance(doc, arguments, task="demo", repeats=n)
    ...     return lm.generate_until([request] * n, disable_tqdm=True)
    >>> first = ask(4)
    >>> ask(8)[:4] == first
    True
    >>> first[0].signals["trial"], first[0].signals["finish_reason"]
    (0, 'stop')
    >>> folder.cleanup()
    """

    #: The backend, if the model's name determines it.
    fixed_backend: str | None = None

    def __new__(cls, **arguments: Any) -> Any:
        """Create the recording model."""
        return cls.create_from_arg_obj(arguments)

    @classmethod
    def create_from_arg_string(
        cls, arg_string: str, additional_config: Mapping[str, Any] | None = None
    ) -> Any:
        """Create the recording model from `--model_args` as text."""
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: Mapping[str, Any], additional_config: Mapping[str, Any] | None = None
    ) -> Any:
        """Create the recording model from `--model_args` as a mapping.

        Raises
        ------
        ModelConfigError
            If `backend` or `store` is missing, or given although the model's name excludes it;
            or if an argument is a setting of tasks.
        """
        arguments = dict(arg_dict)
        for name in arguments:
            if name.startswith("bayes_"):  # it would end in the backend's arguments
                sentence = (
                    f"`{name}` is a setting of the tasks, not of the model: give it as "
                    f"--metadata {name}={arguments[name]}"
                )
                raise ModelConfigError(sentence, "conflict", name, arguments[name])
        for name, example in _REQUIRED.items():
            if cls.fixed_backend is None and arguments.get(name) is None:
                sentence = f"--model trials needs a {name}: --model_args {example}"
                raise ModelConfigError(sentence, "missing", name)
            if cls.fixed_backend is not None and name in arguments:
                sentence = (
                    f"--model {cls.fixed_backend}-signals takes no `{name}`; "
                    f"use --model trials with backend={cls.fixed_backend}"
                )
                raise ModelConfigError(sentence, "conflict", name, arguments[name])
        backend = cls.fixed_backend or arguments.pop("backend")
        executor = arguments.pop("executor", None)
        for name in _OF_RAY:
            if executor is None and name in arguments:
                sentence = f"`{name}` is an argument of executor=ray, which is not given"
                raise ModelConfigError(sentence, "conflict", name, arguments[name])
        kind = recording_class(backend, executor)
        # --model_args takes precedence over --device and --batch_size.
        extra = {
            key: value for key, value in (additional_config or {}).items() if value is not None
        }
        return kind.create_from_arg_obj(extra | arguments)


class VLLMSignalsLM(TrialsLM):
    """vLLM with signals of its responses; nothing is stored."""

    fixed_backend = "vllm"


class HFSignalsLM(TrialsLM):
    """The harness's `hf` with signals of its responses; nothing is stored."""

    fixed_backend = "hf"
