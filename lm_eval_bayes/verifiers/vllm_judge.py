"""A judge that runs on this computer with vLLM."""

from __future__ import annotations

import os
from typing import Any

from lm_eval_bayes._util.packages import pip_install_extra
from lm_eval_bayes.verifiers.judge import VerifierError
from lm_eval_bayes.verifiers.local_judge import LocalJudge, first_line

#: The engine runs in this process, which it then cannot outlive, and logs to stderr, where it
#: does not mix with a command's output. The user's own settings take precedence.
_ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}


class VLLMJudge(LocalJudge):
    """Scores labels with vLLM, which makes its own batches.

    The scores are the log-probabilities of the labels over the complete vocabulary.

    Parameters
    ----------
    name, **model
        See :class:`~lm_eval_bayes.verifiers.local_judge.LocalJudge`; `device` is "cpu" or "cuda",
        as this vLLM was built.
    batch_size : int
        Prompts that the engine runs concurrently.

    Raises
    ------
    VerifierError
        If vLLM is missing, or the model cannot be a verifier.
    InvalidInputError
        If an argument breaks its rule.
    """

    kind = "vllm"
    label_room = 1

    def __init__(self, name: str, *, batch_size: int = 8, **model: Any) -> None:
        super().__init__(name, **model)
        self._batch_size = batch_size

    def _choose_device(self, device: str | None) -> str:
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        try:
            import vllm
            from vllm.platforms import current_platform
        except ImportError as error:
            sentence = (
                f"--backend vllm needs vLLM ({error}): {pip_install_extra('vllm')}, or take "
                "--backend transformers"
            )
            raise VerifierError(sentence, "not-installed", "--backend", "vllm") from None
        self._vllm = vllm
        built_for = "cpu" if current_platform.is_cpu() else "cuda"
        if device not in (None, built_for):
            sentence = (
                f"this vLLM runs on {'a CPU' if built_for == 'cpu' else 'GPUs'}, not on {device}; "
                "to choose among GPUs set CUDA_VISIBLE_DEVICES, or take --backend transformers"
            )
            raise VerifierError(sentence, "unsupported", "device", device)
        return built_for

    def _load(self) -> Any:
        pretrained = self._pretrained
        arguments: dict[str, Any] = {
            "model": pretrained.name,
            "revision": pretrained.revision,
            "tokenizer_revision": pretrained.revision,
            "dtype": self._dtype,
            "max_logprobs": 3,
            "seed": 0,
            "max_num_seqs": self._batch_size,
            "enable_prefix_caching": True,
        }
        if self.limit is not None:
            arguments["max_model_len"] = self.limit + 1
        try:
            return self._vllm.LLM(**arguments)
        except Exception as error:  # no memory on the GPU, an architecture unknown to vLLM
            sentence = f"vLLM cannot load the verifier {pretrained.name}: {first_line(error)}"
            raise VerifierError(sentence, "failed", "verifier", pretrained.name) from error

    def _scores(self, rows: list[list[int]]) -> list[list[float]]:
        labels = list(self._pretrained.label_tokens.labels)
        params = self._vllm.SamplingParams(
            max_tokens=1,
            temperature=0.0,
            logprobs=len(labels),
            logprob_token_ids=labels,
            detokenize=False,
        )
        prompts = [{"prompt_token_ids": row} for row in rows]
        try:
            outputs = self._model.generate(prompts, params, use_tqdm=False)
        except Exception as error:  # a dead engine has many names
            sentence = f"vLLM stopped: {first_line(error)}"
            raise VerifierError(sentence, "failed", "verifier") from error
        logprobs = [output.outputs[0].logprobs[0] for output in outputs]
        return [[float(entry[label].logprob) for label in labels] for entry in logprobs]

    def close(self) -> None:
        """Shut the engine down; further scores would start it again."""
        if self._model is not None:
            shutdown = getattr(self._model.llm_engine.engine_core, "shutdown", None)
            if shutdown is not None:
                shutdown()
        super().close()
