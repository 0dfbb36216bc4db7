"""The part that all recording backends share: look trials up, generate and add the missing ones."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from lm_eval_bayes._util.hashing import canonical_json
from lm_eval_bayes.errors import LmEvalBayesError, ModelConfigError
from lm_eval_bayes.harness import get_logger
from lm_eval_bayes.harness.models.api_seeds import trial_seed
from lm_eval_bayes.harness.models.completion import Completion
from lm_eval_bayes.harness.models.generation_settings import explicit_kwargs, sampling_key
from lm_eval_bayes.harness.models.interface import (
    PROMPT_SIGNALS,
    TrialRange,
    TrialRequest,
    prompt_text,
    trial_numbers,
)
from lm_eval_bayes.harness.models.trial_sink import MemorySink, StoreSink, TrialSink
from lm_eval_bayes.runs.model_arguments import redacted
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

log = get_logger(__name__)

SEED_SCHEMES = ("hash", "plain")
DEFAULT_SEED = 1234

#: Key and number of one trial.
_TrialId = tuple[TrialKey, int]


class RecordingMixin:
    """A backend whose responses are trials: numbered, seeded, measured and stored.

    In a class's bases it stands before a sampling mixin (`VLLMSampling`, `HFSampling`,
    `OpenAISampling`, `CoinSampling`, `GenericSampling`) and one of the harness's classes, so
    that rank, tokenizer, chat template and log-likelihoods are the harness's own.

    Parameters
    ----------
    store : str or None
        The file of the trial store; None stores nothing.
    trials : str or None
        ``a:b`` for the trials a, …, b - 1 only, as one job of an array.
    seed : int
        Trial i of a question has the seed hash(seed + i, prompt), or seed + i.
    seed_scheme : str
        "hash" or "plain". With "plain", as in the paper, all questions of a trial share a seed
        and so their noise: per-trial means varied 3.8 times as much as those of independent
        questions, and every interval is too narrow.
    synchronous : str
        "NORMAL" or "FULL", see `TrialStore.open`.

    Attributes
    ----------
    backend_name : str
        The harness's name of the backend.
    cannot_record : tuple of str
        Signals that the backend cannot record.
    seeded : bool
        Whether each trial has a seed of its own.
    takes_seed : bool
        Whether the backend's class takes the argument `seed` too.
    weights_loaded : bool
        Whether a lazy backend has loaded its weights.
    """

    backend_name: str
    cannot_record: tuple[str, ...]
    seeded: bool
    takes_seed: bool
    weights_loaded: bool

    if TYPE_CHECKING:  # what each sampling mixin defines

        def sample(
            self, requests: Sequence[TrialRequest], measure: frozenset[str]
        ) -> Iterator[tuple[TrialRequest, Trial]]:
            """Yield each trial as it ends; `measure` are the prompts to be measured."""

        def finished_text(
            self, raw: str, kwargs: Mapping[str, Any], signals: Mapping[str, Any]
        ) -> str:
            """Return the response that the harness's own backend would return for a raw text."""

        def stops_sent(self, kwargs: Mapping[str, Any]) -> list[str]:
            """Return the stop strings that the engine gets."""

        def fingerprint(self) -> Mapping[str, Any]:
            """Return what the distribution of the texts depends on, without loading weights."""

        def versions(self) -> Mapping[str, str]:
            """Return the versions of the software that generates."""

    def __init__(
        self,
        *args: Any,
        store: str | None = None,
        trials: str | None = None,
        seed: int = DEFAULT_SEED,
        seed_scheme: str = "hash",
        synchronous: str = "NORMAL",
        **kwargs: Any,
    ) -> None:
        self.trial_range = TrialRange.parse(trials)
        self._seeded = bool(getattr(self, "seeded", True))
        if seed_scheme not in SEED_SCHEMES:
            raise ModelConfigError(
                f"`seed_scheme` must be hash or plain; got {seed_scheme!r} (plain gives all "
                "questions of a trial one seed)"
            )
        if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**31) <= seed < 2**31:
            raise ModelConfigError(f"`seed` must be a whole number of 32 bits; got {seed!r}")
        self.seed0, self.seed_scheme = seed, seed_scheme
        self.given_arguments = dict(kwargs)
        self.processes_file = None if store is None else Path(f"{store}.processes.json")
        if store is not None:
            StoreSink.check_path(store)
        if getattr(self, "takes_seed", False):
            kwargs["seed"] = seed
        super().__init__(*args, **kwargs)
        self.sink: TrialSink = MemorySink()
        fingerprint = self._fingerprint_or_stored(store)
        if store is not None:
            rank = int(getattr(self, "rank", 0) or 0)
            self.sink = StoreSink.open(store, rank, synchronous, fingerprint)
        self.model_key = self.sink.describe_model(fingerprint)
        self._generated = self._from_store = 0
        self._last_keys: set[TrialKey] = set()
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
            return dict(self.fingerprint())
        except LmEvalBayesError as error:
            fingerprint_among = getattr(self, "fingerprint_among", None)
            if fingerprint_among is None or store is None or not Path(store).expanduser().is_file():
                raise
            with TrialStore.open(Path(store).expanduser(), mode="read") as stored:
                fingerprint = fingerprint_among(list(stored.models().values()))
            if fingerprint is None:
                raise
            log.warning("%s; continuing with the stored trials of this model", error)
            return dict(fingerprint)

    @property
    def trial_store(self) -> TrialStore | None:
        """The open store, if there is one."""
        return self.sink.store if isinstance(self.sink, StoreSink) else None

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Refuse `--use_cache`, which would hold every text a second time and never read it."""
        if getattr(cache_hook, "dbdict", None) is not None:
            raise ModelConfigError(
                "--use_cache cannot be combined with a recording model: it never reads sampled "
                "responses back; leave it out, the store keeps every trial"
            )
        super().set_cache_hook(cache_hook)  # type: ignore[misc]

    def common_trials(self) -> int:
        """Return how many trials, from trial 0 on, every question of the last call has."""
        store = self.trial_store
        if store is None or not self._last_keys:
            return 0
        return min(map(_consecutive, store.numbers_of(self._last_keys).values()))

    # -- generation ----------------------------------------------------------------------

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return a Completion for each request, from the store or newly generated.

        Parameters
        ----------
        requests : sequence of Instance
            The harness's requests; clones of one are its trials.
        disable_tqdm : bool
            Whether to show no progress bar.
        """
        if hasattr(self, "notice"):  # a mixin that also looks at requests of stored trials
            self.notice(requests)
        wanted = self._trial_requests(requests)
        self._last_keys = {request.key for request in wanted}
        trials = self._stored(wanted)
        self._from_store += len(trials)
        missing: dict[_TrialId, TrialRequest] = {}
        for request in wanted:
            if (request.key, request.trial) not in trials:
                missing.setdefault((request.key, request.trial), request)
        if missing:
            self._generate(missing, trials, disable_tqdm)
        self._generated += len(missing)
        prompt_signals = self.sink.prompt_signals(
            self.model_key, {key.prompt for key in self._last_keys}
        )
        sink = self.sink if isinstance(self.sink, StoreSink) else None
        responses: list[str] = []
        for request in wanted:
            trial = trials[request.key, request.trial]
            text = self.finished_text(trial.text, request.kwargs, trial.signals or {})
            signals = prompt_signals.get(request.key.prompt, {})
            responses.append(Completion(text, signals, trial, sink))
        return responses

    def _trial_requests(self, instances: Sequence[Any]) -> list[TrialRequest]:
        """Return the trial that each of the harness's requests asks for."""
        default = int(getattr(self, "max_gen_toks", 0) or getattr(self, "_max_gen_toks", 256))
        kwargs: dict[int, Mapping[str, Any]] = {}
        keys: dict[int, TrialKey] = {}
        sampling_hashes: dict[str, str] = {}
        prompts = list(dict.fromkeys(prompt_text(instance.args[0]) for instance in instances))
        prompt_keys = dict(zip(prompts, self.sink.describe_prompts(prompts), strict=True))
        requests = []
        numbers = trial_numbers(instances, self.trial_range.first)
        for index, (instance, number) in enumerate(zip(instances, numbers, strict=True)):
            context = instance.args[0]
            prompt = prompt_text(context)
            if id(instance) not in kwargs:
                self.trial_range.check(int(instance.repeats or 1), instance.task_name)
                explicit = explicit_kwargs(instance.args[1], default, instance.task_name)
                sampling = redacted(sampling_key(explicit, self.stops_sent(explicit)))
                text = canonical_json(sampling)
                if text not in sampling_hashes:
                    sampling_hashes[text] = self.sink.describe_sampling(sampling)
                kwargs[id(instance)] = explicit
                keys[id(instance)] = TrialKey(
                    self.model_key, prompt_keys[prompt], sampling_hashes[text]
                )
            requests.append(
                TrialRequest(
                    index,
                    context,
                    instance,
                    prompt,
                    number,
                    self._seed_of_trial(number, prompt),
                    kwargs[id(instance)],
                    keys[id(instance)],
                )
            )
        return requests

    def _seed_of_trial(self, trial: int, prompt: str) -> int:
        if self.seed_scheme == "hash":
            return trial_seed(self.seed0, trial, prompt)
        return self.seed0 + trial

    def _stored(self, requests: Sequence[TrialRequest]) -> dict[_TrialId, Trial]:
        """Return the requested trials that the sink has."""
        seeds: dict[TrialKey, dict[int, int]] = {}
        for request in requests:
            seeds.setdefault(request.key, {})[request.trial] = request.seed
        stored: dict[_TrialId, Trial] = {}
        other_seeds = 0
        for key, trials in self.sink.trials_of(seeds).items():
            for number, trial in trials.items():
                if number in seeds[key]:
                    stored[key, number] = trial
                    other_seeds += self._seeded and trial.seed != seeds[key][number]
        if other_seeds:
            log.warning(
                "%d of the stored trials were drawn with other seeds than this run would use "
                "(another seed= or seed_scheme=); the stored ones are kept",
                other_seeds,
            )
        return stored

    def _generate(
        self,
        missing: Mapping[_TrialId, TrialRequest],
        trials: dict[_TrialId, Trial],
        disable_tqdm: bool,
    ) -> None:
        """Generate the missing trials, lowest numbers first, and add each as it ends."""
        requests = sorted(missing.values(), key=lambda request: (request.trial, request.index))
        measured = self.sink.prompt_signals(self.model_key, {key.prompt for key, _ in missing})
        measure = frozenset(r.prompt for r in requests if r.key.prompt not in measured)
        versions = dict(self.versions())
        show = not disable_tqdm and not getattr(self, "rank", 0)
        with (
            tqdm(total=len(requests), desc="Sampling trials", disable=not show) as bar,
            closing(self._sampled(requests, measure)) as sampled,
        ):
            for _, trial in sampled:
                signals = dict(trial.signals or {})
                of_prompt = {n: signals.pop(n) for n in PROMPT_SIGNALS if n in signals}
                trial = replace(trial, signals=signals, versions=versions)
                trials[trial.key, trial.trial] = self.sink.add(trial)
                if of_prompt:
                    self.sink.add_prompt_signals(self.model_key, trial.key.prompt, of_prompt)
                bar.update()
        lost = sum(trial_id not in trials for trial_id in missing)
        if lost:
            raise RuntimeError(f"{self.backend_name} returned {lost} trials too few")

    def _sampled(
        self, requests: Sequence[TrialRequest], measure: frozenset[str]
    ) -> Generator[tuple[TrialRequest, Trial], None, None]:
        yield from self.sample(requests, measure)

    # -- what the harness writes into its results -------------------------------------------

    def get_model_info(self) -> dict[str, Any]:
        """Return the backend's own info, if its weights were loaded, and the origin of trials."""
        info = {}
        inherited = getattr(super(), "get_model_info", None)
        if inherited is not None and getattr(self, "weights_loaded", True):
            info = inherited()
        recorded = {
            "backend": self.backend_name,
            "store": self.sink.name,
            "model_key": self.model_key,
            "seed": self.seed0,
            "seed_scheme": self.seed_scheme if self._seeded else None,
            "first_trial": self.trial_range.first,
            "generated": self._generated,
            "from_store": self._from_store,
        }
        return {**info, "trials": recorded}


def _consecutive(numbers: set[int]) -> int:
    """Return how many of 0, 1, 2, … are in a set before the first that is not."""
    count = 0
    while count in numbers:
        count += 1
    return count
