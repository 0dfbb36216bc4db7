"""The base of the judges that run on this computer: configuration, tokenizer, label tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from lm_eval_bayes._util.hashing import hash_json
from lm_eval_bayes._util.packages import pip_install_extra
from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.verifier_prompt import (
    CONTENT_FREE_INPUT,
    LABELS,
    PLAIN_SLOT,
    PROMPT_VERSION,
    verifier_prompt,
)
from lm_eval_bayes.verifiers.judge import Scores, Unjudged, VerifierError

DTYPES = ("auto", "float32", "bfloat16", "float16")

#: Tokenizers have a maximal length like 1e30 if none is known.
_NO_LENGTH = 10**9


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
        special = [
            str(token) for token in added_tokens.values() if getattr(token, "special", False)
        ]
        tokens = dict.fromkeys([*getattr(tokenizer, "all_special_tokens", []), *special])
        self.control_tokens = tuple(
            token for token in tokens if isinstance(token, str) and len(token) > 1
        )
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
        reasons = []
        for lead in ("", " ") if self.chat else (" ", ""):
            after = [self._encode(text + lead + label) for label in LABELS]
            suffixes = [tuple(ids[len(before) :]) for ids in after]
            sizes = list(map(len, suffixes))
            if any(ids[: len(before)] != before for ids in after):
                reasons.append("a label changes the tokens before it")
            elif set(sizes) != {1}:
                pairs = zip(LABELS, sizes, strict=True)
                reasons.append(f"tokens per label: {', '.join(f'{y} {n}' for y, n in pairs)}")
            elif len(set(suffixes)) < len(LABELS):
                reasons.append("labels share a token")
            else:
                return lead, tuple(token for (token,) in suffixes)
        sentence = (
            f"the tokenizer of {name} does not encode each of the labels A, B and C as a token of "
            f"its own at the beginning of the answer ({reasons[0]}), so {name} cannot be a verifier"
        )
        raise VerifierError(sentence, "unsupported", "verifier", name)


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model by name, before its weights are read.

    Attributes
    ----------
    name : str
        A folder, or a name on the Hugging Face hub.
    revision : str or None
        Branch, tag or commit.
    config, tokenizer : object
        As transformers loads them.
    label_tokens : LabelTokens
        How its prompts become tokens.
    window : int or None
        Its context length in tokens; None if it is unknown.
    """

    name: str
    revision: str | None
    config: Any
    tokenizer: Any
    label_tokens: LabelTokens
    window: int | None

    def fingerprint(
        self, kind: str, weights: str | None, dtype: str, limit: int | None
    ) -> dict[str, Any]:
        """Return what the scores depend on; of a folder the last part, since it may be moved."""
        local = Path(self.name).expanduser()
        commit = getattr(self.config, "_commit_hash", None)
        template = getattr(self.tokenizer, "chat_template", None)
        return {
            "kind": kind,
            "name": local.resolve().name if local.exists() else self.name,
            "weights": weights or (f"hub:{commit}" if commit else None),
            "dtype": dtype,
            "chat_template": hash_json(template) if template else None,
            "labels": dict(zip(LABELS, self.label_tokens.labels, strict=True)),
            "prompt": PROMPT_VERSION,
            "max_length": limit,
        }


def read_pretrained(name: str, revision: str | None = None) -> Pretrained:
    """Load a model's configuration and tokenizer.

    Raises
    ------
    VerifierError
        If there is no such model, or its tokenizer does not fit a verifier.
    """
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        sentence = (
            f"a local verifier needs torch and transformers ({error}): {pip_install_extra('hf')}, "
            "or judge with a server: --backend server --base-url URL"
        )
        raise VerifierError(sentence, "not-installed", "--backend") from None
    try:
        config = transformers.AutoConfig.from_pretrained(name, revision=revision)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, revision=revision)
    except Exception as error:  # of the hub, a file or a model's own code
        sentence = f"the verifier {name} cannot be read: {first_line(error)}"
        raise VerifierError(sentence, "path", "verifier", name) from error
    return Pretrained(
        name=name,
        revision=revision,
        config=config,
        tokenizer=tokenizer,
        label_tokens=LabelTokens(tokenizer, name),
        window=_window(config, tokenizer),
    )


def _window(config: Any, tokenizer: Any) -> int | None:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        length = getattr(text, name, None)
        if isinstance(length, int) and length > 0:
            return length
    length = getattr(tokenizer, "model_max_length", None)
    return int(length) if isinstance(length, (int, float)) and 0 < length < _NO_LENGTH else None


def longest_prompt(max_length: int | None, window: int | None) -> int | None:
    """Return the maximal length of a prompt in tokens.

    Raises
    ------
    InvalidInputError
        If `max_length` is larger than the model's context.
    """
    if max_length is None or window is None:
        return max_length or window
    if max_length > window:
        rule = f"be at most {window:,}, the tokens that this verifier reads"
        raise InvalidInputError.of("max_length", "range", rule, max_length)
    return max_length


def dtype_of(dtype: str, config: Any, on_cpu: bool) -> str:
    """Return the floating-point type of a model's computations.

    "auto" is float32 on a CPU, elsewhere the type in which the weights are stored.
    """
    if dtype != "auto":
        return dtype
    if on_cpu:
        return "float32"
    stored = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    return str(stored).removeprefix("torch.") if stored is not None else "float32"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return one_line(lines[0] if lines else type(error).__name__, 300)


def scored(row: Sequence[float]) -> Scores | Unjudged:
    """Return one prompt's scores, or why it has none.

    Examples
    --------
    >>> scored([-0.1, -2.5, -9.0])
    (-0.1, -2.5, -9.0)
    >>> scored([float("nan"), -2.5, -9.0])
    Unjudged(reason='the scores are no numbers (nan, -2.5, -9.0); try another --dtype')
    """
    a, b, c = row
    if all(-float("inf") < score < float("inf") for score in row):
        return (a, b, c)
    shown = ", ".join(str(score) for score in row)
    return Unjudged(f"the scores are no numbers ({shown}); try another --dtype")


class LocalJudge(ABC):
    """A judge whose prompts are tokenized here; a subclass loads and runs the model.

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
    dtype : str
        "auto", "float32", "bfloat16" or "float16", see :func:`dtype_of`.
    max_length : int or None
        The maximal length of a prompt in tokens; by default the model's context.

    Raises
    ------
    VerifierError
        If the model cannot be a verifier.
    InvalidInputError
        If an argument breaks its rule.
    """

    #: The backend's name in the fingerprint.
    kind: ClassVar[str]
    #: Tokens of the model's context that the label takes.
    label_room: ClassVar[int] = 0
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
    ) -> None:
        self._device = self._choose_device(device)
        self._pretrained = pretrained = read_pretrained(name, revision)
        self._dtype = dtype_of(dtype, pretrained.config, self._device == "cpu")
        window = None if pretrained.window is None else pretrained.window - self.label_room
        self.limit = longest_prompt(max_length, window)
        self.control_tokens = pretrained.label_tokens.control_tokens
        self.length = pretrained.label_tokens.length
        fingerprint = pretrained.fingerprint(self.kind, weights, self._dtype, self.limit)
        self.fingerprint: Mapping[str, Any] = MappingProxyType(fingerprint)
        self._model: Any = None

    def scores(self, prompts: Sequence[str]) -> list[Scores | Unjudged]:
        """Return the log-probabilities of the labels, see :meth:`Judge.scores`."""
        if self._model is None:
            self._model = self._load()
        label_tokens = self._pretrained.label_tokens
        return [scored(row) for row in self._scores([label_tokens.tokens(p) for p in prompts])]

    @abstractmethod
    def _choose_device(self, device: str | None) -> str:
        """Return the device that the model will run on."""

    @abstractmethod
    def _load(self) -> Any:
        """Return the model with its weights."""

    @abstractmethod
    def _scores(self, rows: list[list[int]]) -> list[list[float]]:
        """Return the log-probabilities of the labels after each row of tokens."""

    def close(self) -> None:
        """Release the model; further scores would load it again."""
        self._model = None
