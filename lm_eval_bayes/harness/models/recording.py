"""The part that all recording backends share: number, look up, generate what is missing, keep."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lm_eval_bayes._util.hashing import canonical_json
from lm_eval_bayes.errors import LmEvalBayesError, ModelConfigError
from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.api_seeds import trial_seed
from lm_eval_bayes.harness.models.completion import Completion, Origin
from lm_eval_bayes.harness.models.generation_settings import explicit_kwargs, sampling_key
from lm_eval_bayes.harness.models.recorded import tell
from lm_eval_bayes.harness.models.trial_request import Order, Sampled, Slice, trial_numbers
from lm_eval_bayes.harness.models.trial_sink import Keeper, MemoryKeeper, StoreKeeper
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

log = get_logger(__name__)

SEED_SCHEMES = ("hash", "plain")
DEFAULT_SEED = 1234

#: (key, trial number): one trial of one question.
_Trial = tuple[TrialKey, int]


class RecordingMixin:
    """A backend whose every response is a trial: numbered, seeded, measured and kept.

    It stands before a sampling mixin (`VLLMSampling`, `HFSampling`, `OpenAISampling`,
    `CoinSampling`, `PlainSampling`) and one of the harness's classes, so that rank, tokenizer,
    chat template and log-likelihoods are the harness's own.

    Parameters
    ----------
    store : str or None
        The file that keeps the trials; None keeps them for this run alone.
    trials : str or None
        ``a:b`` to make trials a..b-1 only, as one job of an array.
    seed : int
        Trial i of a question is seeded by hash(seed + i, prompt), or by seed + i.
    seed_scheme : str
        "hash" or "plain". With "plain", as in the paper, all questions of a trial share a seed
        and so their noise: per-trial means varied 3.8 times as much as those of independent
        questions, and every interval is too narrow.
    synchronous : str
        "NORMAL" or "FULL", see `TrialStore.open`.
    """

    # The sampling mixin's word on: its name; what it cannot record; whether a trial has a seed
    # of its own; whether the backend takes a seed too; whether a lazy one has read its weights.
    backend_name: str
    cannot_record: tuple[str, ...]
    seeded: bool
    takes_seed: bool
    weights_loaded: bool

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
        self.slice = Slice.parse(trials)
        self._seeded = bool(getattr(self, "seeded", True))
        if seed_scheme not in SEED_SCHEMES:
            raise ModelConfigError(
                f"`seed_scheme` must be hash or plain; got {seed_scheme!r} (plain gives all "
                "questions of a trial one seed)"
            )
        if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**31) <= seed < 2**31:
            raise ModelConfigError(f"`seed` must be a whole number of 32 bits; got {seed!r}")
        self.seed0, self.seed_scheme = seed, seed_scheme
        self.given_arguments = {k: v for k, v in kwargs.items() if k not in _ONLY_SPEED}
        self.processes_file = None if store is None else Path(f"{store}.processes.json")
        if store is not None:
            StoreKeeper.check_path(store)
        if getattr(self, "takes_seed", False):
            kwargs["seed"] = seed
        super().__init__(*args, **kwargs)
        self.keeper: Keeper = MemoryKeeper()
        fingerprint = self._fingerprint_or_stored(store)
        if store is not None:
            rank = int(getattr(self, "rank", 0) or 0)
            self.keeper = StoreKeeper.open(store, rank, synchronous, fingerprint)
        self.model_key = self.keeper.describe_model(fingerprint)
        self._counts = {"generated": 0, "from the store": 0}
        self._asked: set[TrialKey] = set()
        if seed_scheme == "plain":
            log.warning(
                "seed_scheme=plain gives all questions of a trial the same seed, so they share "
                "their noise; the intervals take questions as independent and will be too narrow"
            )
        tell(self)
        if self.cannot_record:
            log.info("%s cannot record: %s", self.backend_name, ", ".join(self.cannot_record))

    def _fingerprint_or_stored(self, store: str | None) -> dict[str, Any]:
        """Return the fingerprint; of a server that is down, the one that the store knows."""
        try:
            return dict(self.fingerprint())  # type: ignore[attr-defined]
        except LmEvalBayesError as error:
            among = getattr(self, "fingerprint_among", None)
            if among is None or store is None or not Path(store).expanduser().is_file():
                raise
            with TrialStore.open(Path(store).expanduser(), mode="read") as stored:
                found = among(list(stored.info().models.values()))
            if found is None:
                raise
            log.warning("%s; going on with what the store has of this model", error)
            return dict(found)

    @property
    def trial_store(self) -> TrialStore | None:
        """The open store, if there is one."""
        return self.keeper.store if isinstance(self.keeper, StoreKeeper) else None

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Refuse `--use_cache`, which would hold every text a second time and never read it."""
        if getattr(cache_hook, "dbdict", None) is not None:
            raise ModelConfigError(
                "--use_cache cannot be combined with a recording model: it never reads sampled "
                "responses back; leave it out, the store keeps every trial"
            )
        super().set_cache_hook(cache_hook)  # type: ignore[misc]

    def common_trials(self) -> int:
        """Return how many trials, from the first on, every question of the last call has."""
        store = self.trial_store
        if store is None or not self._asked:
            return 0
        numbers = store.numbers_of(self._asked)
        return min(_from_zero(found) for found in numbers.values())

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
        if hasattr(self, "notice"):  # the sampling mixin looks at all that is asked
            self.notice(requests)
        orders, keys = self._orders(requests)
        self._asked = set(keys)
        trials = self._stored(orders, keys)
        self._counts["from the store"] += len(trials)
        missing: dict[_Trial, Order] = {}
        for order, key in zip(orders, keys, strict=True):
            if (key, order.trial) not in trials:
                missing.setdefault((key, order.trial), order)
        if missing:
            self._generate(missing, trials, disable_tqdm)
        self._counts["generated"] += len(missing)
        prompt_signals = self.keeper.prompt_signals(
            self.model_key, {key.prompt for key in keys} if keys else set()
        )
        finished: list[str] = []
        for order, key in zip(orders, keys, strict=True):
            trial = trials[key, order.trial]
            signals = logged_signals(trial, prompt_signals.get(key.prompt))
            text = self.finished_text(trial.text, order.kwargs, trial.signals or {})  # type: ignore[attr-defined]
            finished.append(Completion(text, signals, self._origin(key, order.trial)))
        return finished

    def _orders(self, requests: Sequence[Any]) -> tuple[list[Order], list[TrialKey]]:
        """Return what is asked in every place, and the key that its trials are kept under."""
        default = int(getattr(self, "max_gen_toks", 0) or getattr(self, "_max_gen_toks", 256))
        kwargs: dict[int, Mapping[str, Any]] = {}
        keys: dict[int, TrialKey] = {}
        described: dict[str, str] = {}
        prompts = list(dict.fromkeys(prompt_text(request.args[0]) for request in requests))
        prompt_keys = dict(zip(prompts, self.keeper.describe_prompts(prompts), strict=True))
        orders = []
        numbers = trial_numbers(requests, self.slice.first)
        for place, (request, number) in enumerate(zip(requests, numbers, strict=True)):
            prompt = prompt_text(request.args[0])
            if id(request) not in kwargs:
                self.slice.check(int(request.repeats or 1), request.task_name)
                explicit = explicit_kwargs(request.args[1], default, request.task_name)
                sampling = sampling_key(explicit, self.stops_sent(explicit))  # type: ignore[attr-defined]
                text = canonical_json(sampling)
                if text not in described:
                    described[text] = self.keeper.describe_sampling(sampling)
                kwargs[id(request)] = explicit
                keys[id(request)] = TrialKey(self.model_key, prompt_keys[prompt], described[text])
            seed = self.seed0 + number
            if self.seed_scheme == "hash":
                seed = trial_seed(self.seed0, number, prompt)
            context, said = request.args[0], kwargs[id(request)]
            orders.append(Order(place, context, request, prompt, number, seed, said))
        return orders, [keys[id(request)] for request in requests]

    def _origin(self, key: TrialKey, trial: int) -> Origin | None:
        keeper = self.keeper
        return Origin(keeper, key, trial) if isinstance(keeper, StoreKeeper) else None

    def _stored(self, orders: Sequence[Order], keys: Sequence[TrialKey]) -> dict[_Trial, Trial]:
        """Return the wanted trials that the keeper has."""
        wanted: dict[TrialKey, dict[int, int]] = {}
        for order, key in zip(orders, keys, strict=True):
            wanted.setdefault(key, {})[order.trial] = order.seed
        found: dict[_Trial, Trial] = {}
        others = 0
        for key, trials in self.keeper.trials_of(wanted).items():
            for number, trial in trials.items():
                if number in wanted[key]:
                    found[key, number] = trial
                    others += self._seeded and trial.seed != wanted[key][number]
        if others:
            log.warning(
                "%d of the stored trials were drawn with other seeds than this run would use "
                "(another seed= or seed_scheme=); the stored ones are kept",
                others,
            )
        return found

    def _generate(
        self,
        missing: Mapping[_Trial, Order],
        trials: dict[_Trial, Trial],
        disable_tqdm: bool,
    ) -> None:
        """Generate the missing trials, lowest numbers first, and keep each as it ends."""
        key_of = {order.place: key for (key, _), order in missing.items()}
        orders = sorted(missing.values(), key=lambda order: (order.trial, order.place))
        known = self.keeper.prompt_signals(self.model_key, {k.prompt for k, _ in missing})
        measure = frozenset(o.prompt for o in orders if key_of[o.place].prompt not in known)
        versions = self.versions()  # type: ignore[attr-defined]
        show = not disable_tqdm and not getattr(self, "rank", 0)
        with (
            tqdm(total=len(orders), desc="Sampling trials", disable=not show) as bar,
            closing(self._sampled(orders, measure)) as sampled,
        ):
            for order, got in sampled:
                key = key_of[order.place]
                trial = record(key, order, got, versions, self._seeded)
                trials[key, order.trial] = self.keeper.keep(trial)
                if got.prompt_signals is not None:
                    self.keeper.keep_prompt_signals(self.model_key, key.prompt, got.prompt_signals)
                bar.update()
        lost = len(orders) - sum((key, number) in trials for key, number in missing)
        if lost:
            raise RuntimeError(f"{self.backend_name} returned {lost} trials too few")

    def _sampled(
        self, orders: Sequence[Order], measure: frozenset[str]
    ) -> Generator[tuple[Order, Sampled], None, None]:
        yield from self.sample(orders, measure)  # type: ignore[attr-defined]

    # -- what the harness writes into its results -------------------------------------------

    def get_model_info(self) -> dict[str, Any]:
        """Return the backend's facts, if its weights were needed, and where trials came from."""
        info = {}
        inherited = getattr(super(), "get_model_info", None)
        if inherited is not None and getattr(self, "weights_loaded", True):
            info = inherited()
        recorded = {
            "backend": self.backend_name,
            "store": self.keeper.name,
            "model_key": self.model_key,
            "seed": self.seed0,
            "seed_scheme": self.seed_scheme if self._seeded else None,
            "first_trial": self.slice.first,
            "generated": self._counts["generated"],
            "from_store": self._counts["from the store"],
        }
        return {**info, "trials": recorded}


#: Arguments that change how fast a backend runs and not what it says.
_ONLY_SPEED = frozenset({"batch_size", "max_batch_size", "device", "num_concurrent", "timeout"})


def _from_zero(numbers: set[int]) -> int:
    count = 0
    while count in numbers:
        count += 1
    return count


def prompt_text(context: object) -> str:
    """Return a prompt's text: a chat backend's is a named tuple around the JSON of its messages."""
    return context if isinstance(context, str) else str(getattr(context, "prompt", context))


def record(
    key: TrialKey, order: Order, got: Sampled, versions: Mapping[str, str], seeded: bool
) -> Trial:
    """Return what is kept of a trial."""
    return Trial(
        key=key,
        trial=order.trial,
        text=got.text,
        seed=order.seed if seeded else None,
        signals=dict(got.signals),
        prompt_tokens=got.prompt_tokens,
        completion_tokens=got.completion_tokens,
        finish_reason=got.finish_reason,
        stop_reason=got.stop_reason,
        queued_s=got.queued_s,
        generated_s=got.generated_s,
        concurrency=got.concurrency,
        versions=dict(versions),
    )


def logged_signals(trial: Trial, prompt: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return everything that was measured of a trial, as the samples log shows it."""
    return {
        "trial": trial.trial,
        "seed": trial.seed,
        "prompt_tokens": trial.prompt_tokens,
        "completion_tokens": trial.completion_tokens,
        "finish_reason": trial.finish_reason,
        "stop_reason": trial.stop_reason,
        "queued_s": trial.queued_s,
        "generated_s": trial.generated_s,
        "concurrency": trial.concurrency,
        **(trial.signals or {}),
        **(prompt or {}),
    }
