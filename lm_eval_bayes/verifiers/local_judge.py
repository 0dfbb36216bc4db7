"""A judge that runs on this computer with transformers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lm_eval_bayes._util.hashing import hash_json
from lm_eval_bayes._util.packages import pip_install_extra
from lm_eval_bayes._util.text import error_line, one_line
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.verifier_prompt import (
    CONTENT_FREE_INPUT,
    LABELS,
    PLAIN_SLOT,
    PROMPT_VERSION,
    verifier_prompt,
)
from lm_eval_bayes.verifiers.judge import Scores, Unjudged, VerifierError

#: Tokenizers have a maximal length like 1e30 if none is known.
_NO_LENGTH = 10**9

#: Earlier versions of transformers call the argument `torch_dtype`.
_DTYPE_SINCE = (4, 56)


class LabelTokens:
    """Tokenizes prompts so that the label is the next token.

    Parameters
    ----------
    tokenizer : transformers tokenizer
        With a chat template the prompt is a user's message, and the label begins the answer;
        without one the label follows the word "Label:".
    name : str
        The verifier's name, for errors.

    Attributes
    ----------
    chat : bool
        Whether there is a chat template.
    labels : tuple of int
        The tokens of A, B, C.
    lead : str
        The text before the label in its token: empty, or a space.
    control_tokens : tuple of str
        The tokenizer's control tokens.

    Raises
    ------
    VerifierError
        If the labels are not one distinct token each.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        self._tokenizer = tokenizer
        self.chat = bool(getattr(tokenizer, "chat_template", None))
        added_tokens = getattr(tokenizer, "added_tokens_decoder", None) or {}
        special = [str(token) for token in added_tokens.values() if token.special]
        tokens = dict.fromkeys([*tokenizer.all_special_tokens, *special])
        self.control_tokens = tuple(token for token in tokens if len(token) > 1)
        self.lead, self.labels = self._find_labels(name)

    def text(self, prompt: str) -> str:
        """Return the text that is tokenized."""
        if not self.chat:
            return prompt + PLAIN_SLOT
        # Templates without a thinking mode ignore the argument.
        text: str = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        return text

    def tokens(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt, to which the label is the next one."""
        return self._encode(self.text(prompt))

    def length(self, prompt: str) -> int:
        """Return the number of these tokens."""
        return len(self.tokens(prompt))

    def _encode(self, text: str) -> list[int]:
        # A chat template contains the beginning of the sequence.
        encoding = self._tokenizer(text, add_special_tokens=not self.chat, verbose=False)
        return list(encoding["input_ids"])

    def _find_labels(self, name: str) -> tuple[str, tuple[int, ...]]:
        text = self.text(verifier_prompt(CONTENT_FREE_INPUT))
        before = self._encode(text)
        for lead in ("", " ") if self.chat else (" ", ""):
            after = [self._encode(text + lead + label) for label in LABELS]
            labels = tuple(tokens[-1] for tokens in after)
            if len(set(labels)) == len(LABELS) and all(ids[:-1] == before for ids in after):
                return lead, labels
        sentence = (
            f"the tokenizer of {name} does not encode each of the labels A, B and C as a token of "
            f"its own at the beginning of the answer, so {name} cannot be a verifier"
        )
        raise VerifierError(sentence, "unsupported", "verifier", name)


class LocalJudge:
    """Scores labels with a causal language model of transformers.

    Prompts of a batch are padded on the left. Scores are the logits of the last position, as
    log-probabilities over the complete vocabulary in float32. The model computes in float32 on a
    CPU, elsewhere in the type in which its weights are stored.

    Parameters
    ----------
    name : str
        A folder, or a name on the Hugging Face hub.
    revision : str or None
        Branch, tag or commit.
    weights : str or None
        The identity of its weights, for the fingerprint.
    device : str or None
        The device; by default a GPU if there is one.
    max_length : int or None
        The maximal length of a prompt in tokens; by default the model's context.

    Raises
    ------
    VerifierError
        If the model cannot be a verifier.
    InvalidInputError
        If `max_length` is larger than the model's context.
    """

    unit = "tokens"

    def __init__(
        self,
        name: str,
        *,
        revision: str | None = None,
        weights: str | None = None,
        device: str | None = None,
        max_length: int | None = None,
    ) -> None:
        try:
            import torch
            import transformers
        except ImportError as error:
            sentence = (
                f"a local verifier needs torch and transformers ({error}): "
                f"{pip_install_extra('hf')}, or judge with a server: --base-url URL"
            )
            raise VerifierError(sentence, "not-installed", "verifier") from None
        self._name, self._revision = name, revision
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            config = transformers.AutoConfig.from_pretrained(name, revision=revision)
            tokenizer = transformers.AutoTokenizer.from_pretrained(name, revision=revision)
        except Exception as error:  # of the hub, a file or a model's own code
            sentence = f"the verifier {name} cannot be read: {one_line(error_line(error), 300)}"
            raise VerifierError(sentence, "path", "verifier", name) from error
        self._label_tokens = LabelTokens(tokenizer, name)
        self.control_tokens = self._label_tokens.control_tokens
        self.length = self._label_tokens.length
        window = _window(config, tokenizer)
        self.limit = max_length or window
        if max_length is not None and window is not None and max_length > window:
            rule = f"be at most {window:,}, the tokens that this verifier reads"
            raise InvalidInputError.of("max_length", "range", rule, max_length)
        stored = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
        self._dtype = "float32"
        if self._device != "cpu" and stored is not None:
            self._dtype = str(stored).removeprefix("torch.")
        local, commit = Path(name).expanduser(), getattr(config, "_commit_hash", None)
        template = getattr(tokenizer, "chat_template", None)
        self.fingerprint: Mapping[str, Any] = MappingProxyType(
            {
                "kind": "transformers",
                "name": local.resolve().name if local.exists() else name,  # it may be moved
                "weights": weights or (f"hub:{commit}" if commit else None),
                "dtype": self._dtype,
                "chat_template": hash_json(template) if template else None,
                "labels": dict(zip(LABELS, self._label_tokens.labels, strict=True)),
                "prompt": PROMPT_VERSION,
                "max_length": self.limit,
            }
        )
        self._model: Any = None

    def scores(self, prompts: Sequence[str]) -> list[Scores | Unjudged]:
        """Return the log-probabilities of the labels, see :meth:`Judge.scores`."""
        if self._model is None:
            self._model = self._load()
        return [_scored(*row) for row in self._scores([*map(self._label_tokens.tokens, prompts)])]

    def close(self) -> None:
        """Release the model; further scores would load it again."""
        self._model = None

    def _load(self) -> Any:
        import torch
        import transformers

        version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
        argument = "dtype" if version >= _DTYPE_SINCE else "torch_dtype"
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                self._name, revision=self._revision, **{argument: getattr(torch, self._dtype)}
            )
            return model.to(self._device).eval()
        except Exception as error:  # no such device, no memory, a truncated file
            sentence = (
                f"the verifier {self._name} cannot be loaded on {self._device}: "
                f"{one_line(error_line(error), 300)}"
            )
            raise VerifierError(sentence, "failed", "verifier", self._name) from error

    def _scores(self, rows: list[list[int]]) -> list[list[float]]:
        """Return the log-probabilities of the labels after each row of tokens."""
        import torch

        try:
            return self._forward(rows)
        except torch.cuda.OutOfMemoryError:
            pass
        # After the except clause, whose error would keep the memory.
        torch.cuda.empty_cache()
        if len(rows) == 1:
            rule = "be smaller: the GPU has no room for a prompt of so many tokens"
            raise VerifierError.of("--max-length", "failed", rule, len(rows[0]))
        half = len(rows) // 2
        return [*self._scores(rows[:half]), *self._scores(rows[half:])]

    def _forward(self, rows: list[list[int]]) -> list[list[float]]:
        import torch

        width = max(map(len, rows))
        ids = torch.zeros((len(rows), width), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(rows):
            ids[row, width - len(tokens) :] = torch.tensor(tokens)
            mask[row, width - len(tokens) :] = 1
        inputs = {"input_ids": ids, "attention_mask": mask}
        parameters = inspect.signature(self._model.forward).parameters
        if "position_ids" in parameters:
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        inputs = {key: tensor.to(self._device) for key, tensor in inputs.items()}
        last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        with torch.inference_mode():
            logits = self._model(**inputs, use_cache=False, **last_only).logits[:, -1]
            logprobs = torch.log_softmax(logits.float(), dim=-1)
        scores: list[list[float]] = logprobs[:, list(self._label_tokens.labels)].cpu().tolist()
        return scores


def _window(config: Any, tokenizer: Any) -> int | None:
    """Return a model's context in tokens; None if it is unknown."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        length = getattr(text, name, None)
        if isinstance(length, int) and length > 0:
            return length
    length = getattr(tokenizer, "model_max_length", None)
    return int(length) if isinstance(length, (int, float)) and 0 < length < _NO_LENGTH else None


def _scored(a: float, b: float, c: float) -> Scores | Unjudged:
    """Return one prompt's scores, or why it has none.

    Examples
    --------
    >>> _scored(-0.1, -2.5, -9.0)
    (-0.1, -2.5, -9.0)
    >>> _scored(float("nan"), -2.5, -9.0)
    Unjudged(reason='the scores are no numbers (nan, -2.5, -9.0)')
    """
    if all(-float("inf") < score < float("inf") for score in (a, b, c)):
        return (a, b, c)
    return Unjudged(f"the scores are no numbers ({a}, {b}, {c})")
