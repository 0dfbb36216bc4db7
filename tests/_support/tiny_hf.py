"""Little random models for transformers, made in seconds, and the recording class over them.

In the word tokenizer every token is one word, so a text has one tokenization; in the byte
tokenizer every token is one byte, so strings span many tokens.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import transformers
from lm_eval.models.huggingface import HFLM
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from _support.trial_requests import stream_of, trial_request
from lm_eval_bayes.harness.models.api_seeds import trial_seed
from lm_eval_bayes.harness.models.hf import sampling as hf_module
from lm_eval_bayes.harness.models.hf.sampling import HFSampling

SPECIAL = ["<pad>", "<bos>", "<eos>", "<turn>"]
PAD, BOS, EOS, TURN = range(4)
PROMPTS = ["w4 w5 w6", "w7", "w8 w9 w10 w11 w12 w13 w14", "w15 w4"]
SAMPLED = {
    "do_sample": True,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "until": [],
    "max_gen_toks": 24,
}
GREEDY = {**SAMPLED, "do_sample": False, "temperature": 0.0}


class TinyHF(HFSampling, HFLM):
    """As `--model trials backend=hf` makes it, without the recording."""

    backend_name = "hf"


def word_tokenizer(words=60):
    vocabulary = {word: i for i, word in enumerate(SPECIAL)}
    for i in range(len(SPECIAL), words):
        vocabulary[f"w{i}"] = i
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _fast(tokenizer)


def byte_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _fast(tokenizer)


def _fast(tokenizer):
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        additional_special_tokens=["<turn>"],
        clean_up_tokenization_spaces=False,
    )


def shape(vocabulary, **changes):
    return {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.35,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        **changes,
    }


def save_llama(folder, tokenizer=None, seed=0, dtype=torch.float32, **changes):
    """Save a random Llama and its tokenizer; return the folder as text."""
    tokenizer = tokenizer or word_tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(**shape(len(tokenizer), **changes))
        transformers.LlamaForCausalLM(config).to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def tiny_model(folder, **arguments):
    return TinyHF(pretrained=str(folder), device="cpu", **{"batch_size": 16, **arguments})


def requests_for(prompts, trials, kwargs):
    """Trial-major orders with the seeds that a run would give them."""
    return [
        trial_request(
            i * len(prompts) + j, prompt, prompt, i, trial_seed(1234, i, prompt), dict(kwargs)
        )
        for i in range(trials)
        for j, prompt in enumerate(prompts)
    ]


def run(lm, orders, measure=()):
    """Sample and return what came, by place."""
    return {o.index: got for o, got in lm.sample(stream_of(orders), frozenset(measure))}


def recorded_tokens(monkeypatch):
    """Return a dict that is filled with the tokens of each finished row, by place."""
    tokens = {}
    original = hf_module.read_trial

    def spy(row, *args):
        tokens[row.request.index] = list(row.tokens)
        return original(row, *args)

    monkeypatch.setattr(hf_module, "read_trial", spy)
    return tokens


def reference_logits(lm, ids):
    """Logits after each token, by a forward pass of its own without cache, mask or padding."""
    with torch.no_grad():
        return lm.model(torch.tensor([ids]), use_cache=False).logits[0].double().numpy()


def reference_bits(lm, prompt_ids, tokens):
    """Mean bits of tokens after a prompt, in float64 from the logits on."""
    logits = reference_logits(lm, [*prompt_ids, *tokens])[len(prompt_ids) - 1 : -1]
    shifted = logits - logits.max(-1, keepdims=True)
    logprobs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return -logprobs[np.arange(len(tokens)), tokens].mean() / math.log(2)


def reference_probabilities(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """Softmax after temperature, top_k, top_p and min_p, by the definitions of the papers."""
    scores = np.asarray(logits, dtype=np.float64) / temperature
    probabilities = np.exp(scores - scores.max())
    probabilities /= probabilities.sum()
    falling = np.argsort(-probabilities)
    if top_k:
        probabilities[falling[top_k:]] = 0
        probabilities /= probabilities.sum()
    if top_p < 1:
        # the smallest set of the likeliest tokens that has top_p (Holtzman 2020)
        size = int(np.searchsorted(np.cumsum(probabilities[falling]), top_p)) + 1
        probabilities[falling[size:]] = 0
        probabilities /= probabilities.sum()
    if min_p:
        probabilities[probabilities < min_p * probabilities.max()] = 0
        probabilities /= probabilities.sum()
    return probabilities
