"""`--model trials`: any backend of the harness, with every response stored as a trial."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NoReturn

from lm_eval.api.model import LM
from lm_eval.api.registry import get_model
from lm_eval.utils import simple_parse_args_string

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.biased_coin.model import BiasedCoinLM
from lm_eval_bayes.harness.models.recording import RecordingMixin

_PACKAGE = "lm_eval_bayes.harness.models"

#: The sampling mixin of each backend that records more than text.
SAMPLING = {
    "vllm": (f"{_PACKAGE}.vllm.sampling", "VLLMSampling"),
    "hf": (f"{_PACKAGE}.hf.sampling", "HFSampling"),
    "biased_coin": (f"{_PACKAGE}.biased_coin.model", "CoinSampling"),
    "local-completions": (f"{_PACKAGE}.openai.sampling", "OpenAISampling"),
    "local-chat-completions": (f"{_PACKAGE}.openai.sampling", "OpenAISampling"),
    "openai-completions": (f"{_PACKAGE}.openai.sampling", "OpenAISampling"),
    "openai-chat-completions": (f"{_PACKAGE}.openai.sampling", "OpenAISampling"),
}
_GENERIC = (f"{_PACKAGE}.generic_backend", "GenericSampling")

#: The harness's other names of these backends.
_ALIASES = {"hf-auto": "hf", "huggingface": "hf"}

#: The registered names of this package's recording models.
_RECORDING = ("trials", "vllm-signals", "hf-signals")


def recording_class(backend: object) -> type[LM]:
    """Return the class of a backend whose responses are recorded as trials.

    Parameters
    ----------
    backend : str
        A name for the harness's `--model`.

    Returns
    -------
    type
        A subclass of that backend's own class.

    Raises
    ------
    ModelConfigError
        If the harness has no such backend.
    """
    if not isinstance(backend, str) or not backend or backend in _RECORDING:
        raise ModelConfigError(
            "`backend` must be a model of the harness, such as backend=vllm, backend=hf or "
            f"backend=local-completions; got {backend!r}"
        )
    try:
        stock = BiasedCoinLM if backend == "biased_coin" else get_model(backend)
    except (ValueError, KeyError) as error:
        raise ModelConfigError(
            f"`backend` must be a model of the harness; got {backend!r} ({error})"
        ) from error
    name = _ALIASES.get(backend, backend)
    module, attribute = SAMPLING.get(name, _GENERIC)
    sampling = getattr(importlib.import_module(module), attribute)
    members = {"backend_name": name, "__module__": __name__, "__doc__": RecordingMixin.__doc__}
    return type(f"Recording{stock.__name__}", (RecordingMixin, sampling, stock), members)


class TrialsLM(LM):
    """Creates the recording model of `backend=`, which stores its trials in `store=`.

    The result is not an instance of this class but of the backend's own class, with
    :class:`~lm_eval_bayes.harness.models.recording.RecordingMixin` in front.

    Examples
    --------
    >>> import tempfile
    >>> from lm_eval.api.instance import Instance
    >>> folder = tempfile.TemporaryDirectory()
    >>> def ask(n):
    ...     lm = TrialsLM(backend="biased_coin", store=folder.name + "/coin.sqlite", p=0.5)
    ...     doc = {"problem": "What is 7 + 5?", "answer": "12"}
    ...     arguments = ("What is 7 + 5?", {"temperature": 1.0})
    ...     request = Instance("generate_until", doc, arguments, 0, ("demo", 0, n))
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
            If `backend` or `store` is missing, or given although the model's name excludes it.
        """
        arguments = dict(arg_dict)
        if cls.fixed_backend is None:
            if "backend" not in arguments:
                raise ModelConfigError(
                    "--model trials needs a backend: --model_args "
                    "backend=vllm,store=trials.sqlite,pretrained=..."
                )
            if arguments.get("store") is None:
                raise ModelConfigError(
                    "--model trials needs a store: --model_args store=trials.sqlite (to measure "
                    "without storing, use --model vllm-signals or --model hf-signals)"
                )
            backend = arguments.pop("backend")
        else:
            for name in ("backend", "store"):
                if name in arguments:
                    raise ModelConfigError(
                        f"--model {cls.fixed_backend}-signals takes no `{name}`; "
                        f"use --model trials with backend={cls.fixed_backend}"
                    )
            backend = cls.fixed_backend
        kind = recording_class(backend)
        # --model_args takes precedence over --device and --batch_size.
        extra = {
            key: value
            for key, value in (additional_config or {}).items()
            if value is not None and key not in arguments
        }
        return kind.create_from_arg_obj(arguments, extra)

    def loglikelihood(self, requests: Any) -> NoReturn:
        """Never called: no instance of this class exists."""
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: Any) -> NoReturn:
        """Never called: no instance of this class exists."""
        raise NotImplementedError

    def generate_until(self, requests: Any) -> NoReturn:
        """Never called: no instance of this class exists."""
        raise NotImplementedError


class VLLMSignalsLM(TrialsLM):
    """vLLM with signals of its responses; nothing is stored."""

    fixed_backend = "vllm"


class HFSignalsLM(TrialsLM):
    """The harness's `hf` with signals of its responses; nothing is stored."""

    fixed_backend = "hf"
