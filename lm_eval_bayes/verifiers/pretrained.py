"""What the two local judges share: a name, its configuration and tokenizer, its window."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.hashing import hash_json
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.verifier import LABELS, PROMPT_VERSION
from lm_eval_bayes.stats.validation import check_integer, check_option
from lm_eval_bayes.verifiers.label_tokens import LabelSlot
from lm_eval_bayes.verifiers.protocol import VerifierError

DTYPES = ("auto", "float32", "bfloat16", "float16")

#: Tokenizers say something like 1e30 where they know no longest text.
_NO_LENGTH = 10**9


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
    slot : LabelSlot
        How its prompts become tokens.
    window : int or None
        Tokens that it reads at most; None where its configuration does not say.
    """

    name: str
    revision: str | None
    config: Any
    tokenizer: Any
    slot: LabelSlot
    window: int | None

    def fingerprint(
        self, kind: str, weights: str | None, dtype: str, limit: int | None
    ) -> dict[str, Any]:
        """Return what the scores depend on; a folder by its last name, since it may move."""
        local = Path(self.name).expanduser()
        commit = getattr(self.config, "_commit_hash", None)
        template = getattr(self.tokenizer, "chat_template", None)
        return {
            "kind": kind,
            "name": local.resolve().name if local.exists() else self.name,
            "weights": weights or (f"hub:{commit}" if commit else None),
            "dtype": dtype,
            "chat_template": hash_json(template) if template else None,
            "labels": dict(zip(LABELS, self.slot.labels, strict=True)),
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
    if not isinstance(name, str) or not name.strip():
        raise InvalidInputError.of("verifier", "be a folder or the name of a model", name)
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise VerifierError(
            f"a local verifier needs torch and transformers ({error}): pip install "
            "'lm-eval-bayes[hf]', or judge with a server: --backend server --base-url URL"
        ) from None
    try:
        config = transformers.AutoConfig.from_pretrained(name, revision=revision)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, revision=revision)
    except Exception as error:  # whatever the hub, a file or a model's own code brings
        raise VerifierError(f"the verifier {name} cannot be read: {first_line(error)}") from error
    return Pretrained(
        name=name,
        revision=revision,
        config=config,
        tokenizer=tokenizer,
        slot=LabelSlot(tokenizer, name),
        window=_window(config, tokenizer),
    )


def _window(config: Any, tokenizer: Any) -> int | None:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        found = getattr(text, name, None)
        if isinstance(found, int) and found > 0:
            return found
    found = getattr(tokenizer, "model_max_length", None)
    return int(found) if isinstance(found, (int, float)) and 0 < found < _NO_LENGTH else None


def longest_prompt(max_length: int | None, window: int | None) -> int | None:
    """Return how many tokens a prompt may have.

    Raises
    ------
    InvalidInputError
        If more is asked for than the model reads.
    """
    if max_length is None:
        return window
    number = check_integer("max_length", max_length, 1)
    if window is not None and number > window:
        rule = f"be at most {window:,}, the tokens that this verifier reads"
        raise InvalidInputError.of("max_length", rule, max_length)
    return number


def dtype_of(asked: str, config: Any, on_cpu: bool) -> str:
    """Return the type that a model computes in.

    "auto" is float32 on a CPU, elsewhere what the weights are stored in.
    """
    asked = check_option("dtype", asked, DTYPES)
    if asked != "auto":
        return asked
    if on_cpu:
        return "float32"
    stored = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    return str(stored).removeprefix("torch.") if stored is not None else "float32"


def first_line(error: BaseException) -> str:
    """Return what an error says first, or its kind."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    return said if len(said) <= 300 else said[:297] + "..."
