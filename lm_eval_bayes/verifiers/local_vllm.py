"""A judge that runs here, through vLLM."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lm_eval_bayes.verifiers.local_hf import scored
from lm_eval_bayes.verifiers.pretrained import (
    dtype_of,
    first_line,
    longest_prompt,
    read_pretrained,
)
from lm_eval_bayes.verifiers.protocol import Scores, Unjudged, VerifierError

#: The engine runs in this process, which it then cannot outlive, and says what it has to say
#: where it does not mix with what a command prints. The user's own settings win.
_ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}


class VLLMJudge:
    """Scores labels with vLLM, which makes its own batches.

    Where vLLM can be asked for the log-probabilities of given tokens, the scores are these over
    the whole vocabulary; an earlier vLLM lets nothing but the labels be sampled, and the scores
    are the log-probabilities among the three. A calibrated verdict is the same either way.

    Parameters
    ----------
    name, revision, weights, dtype, max_length
        See `local_hf.TransformersJudge`.
    device : str or None
        "cpu" or "cuda", which must be what this vLLM was built for.
    batch_size : int
        Prompts that the engine works on at a time.
    engine : mapping
        Further arguments of vLLM's `LLM`.

    Raises
    ------
    VerifierError
        If vLLM is missing, or the model cannot be a verifier.
    InvalidInputError
        If an argument breaks its rule.
    """

    unit = "tokens"

    def __init__(
        self,
        name: str,
        *,
        revision: str | None = None,
        weights: str | None = None,
        device: str | None = None,
        dtype: str = "auto",
        max_length: int | None = None,
        batch_size: int = 8,
        engine: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        try:
            import vllm
            from vllm.platforms import current_platform
        except ImportError as error:
            raise VerifierError(
                f"--backend vllm needs vLLM ({error}): pip install 'lm-eval-bayes[vllm]', or take "
                "--backend transformers"
            ) from None
        on_cpu = bool(current_platform.is_cpu())
        if device not in (None, "cpu" if on_cpu else "cuda"):
            raise VerifierError(
                f"this vLLM runs on {'a CPU' if on_cpu else 'GPUs'}, not on {device}; to choose "
                "among GPUs set CUDA_VISIBLE_DEVICES, or take --backend transformers"
            )
        self._vllm = vllm
        self._pretrained = read_pretrained(name, revision)
        self._dtype = dtype_of(dtype, self._pretrained.config, on_cpu)
        window = self._pretrained.window
        # The label itself takes one place.
        self.limit = longest_prompt(max_length, None if window is None else window - 1)
        self.marks = self._pretrained.slot.marks
        self.length = self._pretrained.slot.length
        told = self._pretrained.fingerprint("vllm", weights, self._dtype, self.limit)
        self.fingerprint: Mapping[str, Any] = MappingProxyType(told)
        self._arguments = {"max_num_seqs": batch_size, "enable_prefix_caching": True, **engine}
        known = inspect.signature(vllm.SamplingParams).parameters
        self._by_token = "logprob_token_ids" in known
        self._llm: Any = None

    def scores(self, prompts: Sequence[str]) -> list[Scores | Unjudged]:
        """Return the log-probabilities of the labels, see :class:`protocol.Judge`."""
        self._load()
        labels = list(self._pretrained.slot.labels)
        wanted = {"logprob_token_ids": labels} if self._by_token else {"allowed_token_ids": labels}
        params = self._vllm.SamplingParams(
            max_tokens=1, temperature=0.0, logprobs=len(labels), detokenize=False, **wanted
        )
        rows = [{"prompt_token_ids": self._pretrained.slot.tokens(prompt)} for prompt in prompts]
        try:
            answers = self._llm.generate(rows, params, use_tqdm=False)
        except Exception as error:  # a dead engine has many names
            raise VerifierError(f"vLLM stopped: {first_line(error)}") from error
        found: list[Scores | Unjudged] = []
        for answer in answers:
            entries = answer.outputs[0].logprobs[0]
            found.append(scored([float(entries[label].logprob) for label in labels]))
        return found

    def close(self) -> None:
        """Shut the engine down; the next scores would start it again."""
        if self._llm is not None:
            shutdown = getattr(self._llm.llm_engine.engine_core, "shutdown", None)
            if shutdown is not None:
                shutdown()
            self._llm = None

    def _load(self) -> None:
        if self._llm is not None:
            return
        model = self._pretrained
        arguments: dict[str, Any] = {
            "model": model.name,
            "revision": model.revision,
            "tokenizer_revision": model.revision,
            "dtype": self._dtype,
            "max_logprobs": 3,
            "seed": 0,
            **self._arguments,
        }
        if self.limit is not None:
            arguments["max_model_len"] = self.limit + 1
        if not self._by_token:
            arguments["logprobs_mode"] = "processed_logprobs"
        try:
            self._llm = self._vllm.LLM(**arguments)
        except Exception as error:  # no room on the GPU, a model that vLLM does not know
            raise VerifierError(
                f"vLLM cannot load the verifier {model.name}: {first_line(error)}"
            ) from error
