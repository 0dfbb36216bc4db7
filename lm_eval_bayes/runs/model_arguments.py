"""The arguments of models: which belong to a model's identity, are printed, or name it.

``lm_eval --model_args`` takes names, paths, settings, addresses and keys, and a backend may have
arguments of its own. Every argument has one kind:

========  ==========================================================  ============  ========
kind      meaning                                                     identity      printed
========  ==========================================================  ============  ========
identity  changes the distribution of responses, or names the model   its value     yes
speed     changes speed, memory or place, or which trials are made    no            yes
place     the address of a server                                     redacted      redacted
secret    gives access to something                                   no            no
unknown   not listed in this module                                   a hash of it  no
========  ==========================================================  ============  ========

An argument that is not listed is a secret if its name says so (`names_a_secret`), and unknown
otherwise. User names, passwords and queries of addresses, and keys, are removed from every value
before it is recorded, hashed or printed (`redacted`). An argument is listed under "speed" only if
it cannot change the distribution: two runs of one model are kept apart rather than runs of two
models mixed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from lm_eval_bayes._util.addresses import host_of, plain_address, plain_addresses, secrets_in
from lm_eval_bayes._util.hashing import ALGORITHM, SHA256, hash_json


class Kind(Enum):
    """What an argument is to a model, see the table of this module."""

    IDENTITY = "identity"
    SPEED = "speed"
    PLACE = "place"
    SECRET = "secret"
    UNKNOWN = "unknown"


#: The arguments that may name a model, in the order in which they are asked.
NAMES = ("pretrained", "model", "model_name", "engine", "path")

#: Identity that may be published: how responses came about, and neither paths nor addresses.
PUBLISHED = (
    *("dtype", "revision", "tokenizer_mode", "quantization", "load_in_8bit", "load_in_4bit"),
    *("max_model_len", "max_length", "tensor_parallel_size", "data_parallel_size"),
    *("pipeline_parallel_size", "kv_cache_dtype", "enforce_eager", "trust_remote_code"),
    *("add_bos_token", "enable_thinking", "think_end_token", "backend", "seed"),
)

_IDENTITY = (
    # which weights, and what is done to them
    *NAMES,
    *("backend", "kind", "endpoint", "model_id", "model_type", "revision", "subfolder"),
    *("gguf_file", "peft", "delta", "lora_local_path", "enable_lora", "load", "ckpt_step"),
    *("dtype", "precision", "softmax_dtype", "mixed_precision_dtype", "quantization"),
    *("quantization_config", "load_in_8bit", "load_in_4bit", "bnb_4bit_compute_dtype"),
    *("bnb_4bit_quant_type", "autogptq", "gptqmodel", "kv_cache_dtype", "load_format"),
    *("rope_scaling", "hf_overrides", "api_version", "num_experts_per_tok"),
    # how a prompt becomes tokens
    *("tokenizer", "tokenizer_mode", "tokenizer_revision", "tokenizer_backend", "tokenizer_path"),
    *("tokenizer_type", "tokenizer_model", "tokenized_requests", "add_bos_token"),
    *("prefix_token_id", "custom_prefix_token_id", "chat_template", "chat_template_args"),
    *("enable_thinking", "think_end_token", "truncation", "truncation_side", "truncate"),
    *("skip_tokenizer_init", "eos_token", "bos_token", "pad_token", "unk_token"),
    # how long, and how it samples
    *("max_length", "max_model_len", "max_gen_toks", "max_input_len", "max_output_len"),
    *("max_tokens_to_sample", "context_length", "seq_length", "temperature", "top_p", "top_k"),
    *("generation_config", "generate_params", "guided_decoding_backend", "speculative_config"),
    *("structured_outputs_config", "logits_processors", "override_generation_config"),
    # the biased coin
    *("p", "beta", "file", "boxed", "answer_field"),
    # entries of stored fingerprints that are no arguments
    *("weights", "settings", "mixed_precision", "tokenizer_files", "tokenization", "end_tokens"),
    *("chat", "served", "law", "arguments", "commit"),
    # what a log tells of how its prompts were made
    *("system_instruction", "fewshot_as_multiturn", "num_fewshot"),
)

_SPEED = (
    # which trials, and the file that stores them
    *("store", "trials", "seed", "seed_scheme", "seeds", "synchronous"),
    *("write_out", "logits_cache", "executor", "workers", "gpus_per_worker", "seconds"),
    # batches, concurrency, patience
    *("num_concurrent", "concurrency", "timeout", "max_retries", "max_num_seqs"),
    *("max_num_active_seqs", "max_num_batched_tokens", "max_running_requests"),
    *("max_total_tokens", "async_scheduling", "scheduler_cls"),
    # devices and how a model is spread over them
    *("device", "devices", "device_map", "gpus", "num_nodes", "nnodes", "node_rank"),
    *("parallelize", "tp_plan", "tp_size", "tp_degree", "dp_size", "enable_expert_parallel"),
    *("master_addr", "master_port", "all2all_backend", "disable_custom_all_reduce"),
    # memory
    *("max_memory", "max_memory_per_gpu", "max_cpu_memory", "low_cpu_mem_usage", "swap_space"),
    *("gpu_memory_utilization", "mem_fraction_static", "block_size", "enable_prefix_caching"),
    # kernels and graphs
    *("attn_implementation", "attention_backend", "sampling_backend", "enforce_eager"),
    *("compilation_config", "max_seq_len_to_capture", "disable_cascade_attn"),
    # how weights and tokenizers are fetched and read
    *("trust_remote_code", "use_fast_tokenizer", "download_dir", "cache_dir", "force_download"),
    *("local_files_only", "use_safetensors", "ignore_patterns", "use_tqdm_on_load"),
    # connections and logs
    *("verify_certificate", "ca_cert_path", "eos_string", "served_model_name", "log_level"),
    *("disable_log_stats", "enable_log_requests", "logprobs_mode", "max_logprobs"),
)

#: Names of families of arguments that change speed or memory.
_FAMILIES = re.compile(
    r"(\w+_)?batch_size|\w+_parallel(_\w+)?_(size|backend|address)|distributed_\w+"
    r"|(\w+_)?offload(ing)?_\w+|\w*prefill(s|_size|_tokens|_token_threshold)?|schedul(ing|e)_\w+"
    r"|\w*cuda_?graph(_\w+)?|safetensors_\w+"
)

_PLACES = ("base_url", "api_base", "azure_endpoint", "host", "url")

_SECRETS = (
    *("api_key", "header", "headers", "token", "hf_token", "auth_token", "use_auth_token"),
    *("password", "watsonx_credentials"),
)

_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(_IDENTITY, Kind.IDENTITY),
    **dict.fromkeys(_SPEED, Kind.SPEED),
    **dict.fromkeys(_PLACES, Kind.PLACE),
    **dict.fromkeys(_SECRETS, Kind.SECRET),
}

#: Parts of the name of an argument or setting that gives access to something.
_SECRET_PARTS = re.compile(
    r"(^|[-_.])(key|apikey|token|secrets?|passw(or)?d|passphrase|pwd|credentials?|authorization"
    r"|auth|bearer|cookies?|headers?)$|(api|access|private|secret|subscription)[-_]?key",
    re.IGNORECASE,
)

#: Values that are keys, whatever they are called: of the hub, of APIs, of GitHub, of headers.
_KEY_VALUE = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
    r"|Bearer\s+[\w.~+/-]{8,}=*)"
)
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)

#: What stands in the place of a value that is not printed.
NOT_SHOWN = "(not shown)"


def kind_of(name: str, value: object = "") -> Kind:
    """Return what an argument of a model is.

    Examples
    --------
    >>> [kind_of(name).value for name in ("pretrained", "device", "base_url", "api_key", "depth")]
    ['identity', 'speed', 'place', 'secret', 'unknown']
    >>> kind_of("my_token", "abc").value, kind_of("n_token", 7).value
    ('secret', 'unknown')
    """
    if names_a_secret(name, value):
        return Kind.SECRET
    family = Kind.SPEED if _FAMILIES.fullmatch(name) else Kind.UNKNOWN
    return _KINDS.get(name, family)


def names_a_secret(name: str, value: object = "") -> bool:
    """Return whether the name of an argument or a setting is that of a secret.

    A switch or a number never is: ``use_auth=True`` and ``n_token=7`` are settings.
    """
    if name in _KINDS:
        return _KINDS[name] is Kind.SECRET
    if value is None or isinstance(value, (bool, int, float)):
        return False
    return bool(_SECRET_PARTS.search(name))


def redacted(value: Any) -> Any:
    """Return a JSON value without the secrets in it.

    Of mappings, entries with the name of a secret are left out; of addresses, user names,
    passwords, queries and fragments; values in the form of well-known keys are replaced.

    Examples
    --------
    >>> redacted({"url": "http://me:pw@host:1/v1?key=x", "auth": "x", "eos_token": "</s>"})
    {'url': 'http://host:1/v1', 'eos_token': '</s>'}
    """
    if isinstance(value, Mapping):
        items = {str(name): item for name, item in value.items()}
        return {k: redacted(item) for k, item in items.items() if not names_a_secret(k, item)}
    if isinstance(value, (list, tuple)):
        return [redacted(item) for item in value]
    return _KEY_VALUE.sub(NOT_SHOWN, plain_addresses(value)) if isinstance(value, str) else value


def identity(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a model's arguments tells it from others, without secrets.

    Parameters
    ----------
    arguments : mapping
        As given to the backend. What this function returned may be given again.

    Returns
    -------
    dict
        JSON values. The value of an unknown argument is ``{"hash": ...}``.

    Examples
    --------
    >>> identity({"pretrained": "org/model", "device": "cuda", "api_key": "sk-1"})
    {'pretrained': 'org/model'}
    >>> identity({"depth": 3})
    {'depth': {'hash': 'blake2b-128:c3585b60b755fb13e6e65a16d20f1230'}}
    """
    return _values(arguments, printed=False)


def shown(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's arguments as they may be printed.

    Secrets and unknown arguments are listed without their values.

    Examples
    --------
    >>> shown({"pretrained": "org/model", "device": "cuda", "api_key": "sk-1", "depth": 3})
    {'pretrained': 'org/model', 'device': 'cuda', 'api_key': '(not shown)', 'depth': '(not shown)'}
    """
    return _values(arguments, printed=True)


def _values(arguments: Mapping[str, Any], *, printed: bool) -> dict[str, Any]:
    """Return what is printed of arguments, or what identifies a model by them."""
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        kind = kind_of(name, value)
        if kind is Kind.PLACE:
            is_short = isinstance(value, str) and "://" not in value
            values[name] = plain_address(value) if is_short else redacted(as_json(value))
        elif kind is Kind.IDENTITY or (printed and kind is Kind.SPEED):
            if _holds_arguments(name, value):
                values[name] = _values(value, printed=printed)
            elif name in NAMES and isinstance(value, str):
                values[name] = plain_addresses(value)  # a name may look like a key
            else:
                values[name] = redacted(as_json(value))
        elif printed and _IDENTIFIER.fullmatch(name):
            values[name] = NOT_SHOWN  # another name is a part of some value that was cut in two
        elif not printed and kind is Kind.UNKNOWN:
            hashed = is_hashed(value)
            values[name] = value if hashed else {"hash": hash_json(redacted(as_json(value)))}
    return values


def as_json(value: Any) -> Any:
    """Return a value as JSON; one of another type as it prints."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return repr(value)


def is_hashed(value: object) -> bool:
    """Return whether a recorded value is the hash of an unknown argument."""
    inner = value["hash"] if isinstance(value, Mapping) and set(value) == {"hash"} else ""
    return str(inner).startswith(f"{ALGORITHM}:")


#: The entries that say where weights and tokenizer came from.
SOURCE_OF_WEIGHTS = ("pretrained", "revision", "subfolder", "gguf_file", "peft", "delta")
SOURCE_OF_TOKENIZER = ("tokenizer", "tokenizer_revision")


def keyed(fingerprint: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a fingerprint into what identifies the model and where it came from.

    Weights that are identified by the content of their files are the same under every name, path
    and commit; and what a server reports of its model is the same on every host.

    Examples
    --------
    >>> model, source = keyed({"backend": "hf", "pretrained": "/mnt/a", "weights": "sha256:0a"})
    >>> model, source
    ({'backend': 'hf', 'weights': 'sha256:0a'}, {'pretrained': '/mnt/a'})
    >>> keyed({"backend": "hf", "pretrained": "org/m", "weights": "hub:0a"})[1]
    {}
    >>> keyed({"endpoint": "a:8000/v1/completions", "served": {"id": "m", "root": "org/m"}})[1]
    {'endpoint': 'a:8000/v1/completions'}
    """
    left_out: tuple[str, ...] = ("commit",)
    if is_content(fingerprint.get("weights")):
        left_out += SOURCE_OF_WEIGHTS
    if is_content(fingerprint.get("tokenizer_files")):
        left_out += SOURCE_OF_TOKENIZER
    if isinstance(fingerprint.get("served"), Mapping) and "/" in str(fingerprint.get("endpoint")):
        left_out += ("endpoint",)  # an address; a name that the user gave has no slash
    model = {name: value for name, value in fingerprint.items() if name not in left_out}
    source = {name: v for name, v in fingerprint.items() if name in left_out and v is not None}
    return model, source


def is_content(identity: object) -> bool:
    """Return whether an identity is that of the content of files, wherever they lie."""
    return isinstance(identity, str) and identity.startswith(f"{SHA256}:")


def flat(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a fingerprint with the arguments that are nested in it among its other entries."""
    nested = [value for name, value in fingerprint.items() if _holds_arguments(name, value)]
    own = {name: v for name, v in fingerprint.items() if not _holds_arguments(name, v)}
    return {**{name: item for value in nested for name, item in value.items()}, **own}


def _holds_arguments(name: str, value: object) -> bool:
    return name in ("arguments", "engine") and isinstance(value, Mapping)


# -- names ---------------------------------------------------------------------------------------

#: The models that record the trials of another backend, with that backend where it is fixed.
RECORDING = {"trials": "", "vllm-signals": "vllm", "hf-signals": "hf"}

#: The harness's other names of one backend.
_ALIASES = {"hf-auto": "hf", "huggingface": "hf"}


def backend_and_arguments(model: str, model_args: object) -> tuple[str, dict[str, Any]]:
    """Return the backend that generates the responses, with its own arguments.

    A model that records the trials of another backend is that backend.

    Parameters
    ----------
    model : str
        The harness's `--model`.
    model_args : mapping or str
        Its arguments, which older harnesses wrote as one text; anything else counts as none.

    Examples
    --------
    >>> backend_and_arguments("trials", "backend=biased_coin,p=0.5")
    ('biased_coin', {'p': '0.5'})
    >>> backend_and_arguments("huggingface", {"pretrained": "org/model"})
    ('hf', {'pretrained': 'org/model'})
    """
    arguments, backend = dict(model_args) if isinstance(model_args, Mapping) else {}, model
    if isinstance(model_args, str):
        pairs = (part.partition("=") for part in model_args.split(","))
        arguments = {name.strip(): value for name, sign, value in pairs if sign}
    if model in RECORDING:
        backend = RECORDING[model] or str(arguments.pop("backend", model))
    return _ALIASES.get(backend, backend), arguments


#: What tells one biased coin from another.
_COIN = ("p", "beta", "file", "boxed", "answer_field", "seed")


def model_name(arguments: Mapping[str, Any], backend: str, recorded: str = "") -> str:
    """Return what to call a model.

    Parameters
    ----------
    arguments : mapping
        Those of the model, or its fingerprint in a trial store.
    backend : str
        The harness's name of the backend.
    recorded : str
        The name that the harness recorded, used if an argument names the model.

    Returns
    -------
    str
        The argument that names it (of a path the last part), else the backend with the host of
        its server, else the backend.

    Examples
    --------
    >>> model_name({"pretrained": "/data/checkpoint-500", "api_key": "sk-1"}, "hf")
    'checkpoint-500'
    >>> model_name({"base_url": "http://me:pw@10.0.0.1:8000/v1?key=x"}, "gguf")
    'gguf 10.0.0.1:8000'
    >>> model_name({"api_key": "sk-1", "depth": 3}, "gateway")
    'gateway'
    >>> model_name({"beta": "2:3"}, "biased_coin")
    'biased_coin beta=2:3'
    """
    given, backend = flat(arguments), backend or "model"
    for key in NAMES:
        if isinstance(given.get(key), str) and given[key]:
            name = plain_model_name(recorded or given[key])
            return Path(name).name if key == "path" else name
    host = next(filter(None, (host_of(given.get(key)) for key in _PLACES)), "")
    if backend == "biased_coin" and not host:
        return " ".join([backend, *_coin_settings(given)])
    return f"{backend} {host}".rstrip()


def _coin_settings(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings of a biased coin, or of its fingerprint."""
    law = given.get("law")
    if isinstance(law, Mapping) and "kind" in law:
        values = [str(value) for name, value in law.items() if name != "kind"]
        yield f"{law['kind']}={':'.join(values)}"
        return
    yield from (f"{name}={given[name]}" for name in _COIN if name in given)


def plain_model_name(name: str) -> str:
    """Return a model's name; of a local path the last part, of an address nothing secret.

    Examples
    --------
    >>> plain_model_name("org/model"), plain_model_name("/data/checkpoint-500")
    ('org/model', 'checkpoint-500')
    """
    name = plain_addresses(name)
    local = Path(name).is_absolute() or name.startswith((".", "~"))
    return (Path(name).name or name) if local else name


# -- servers -------------------------------------------------------------------------------------


def secret_texts(*values: object) -> tuple[str, ...]:
    """Return the texts that must not be printed of what goes to a server.

    Parameters
    ----------
    *values : object
        Addresses, of which user name, password and the values of the query count; mappings of
        headers, of which every word of eight letters or more counts; and keys.
    """
    texts: dict[str, None] = {}
    for value in values:
        if isinstance(value, Mapping):
            words = [word for item in value.values() for word in str(item).split()]
            texts.update(dict.fromkeys(word for word in words if len(word) >= 8))
        elif isinstance(value, str) and "://" in value:
            texts.update(dict.fromkeys(secrets_in(value)))
        elif isinstance(value, str) and value:
            texts[value] = None
    return tuple(sorted(texts, key=len, reverse=True))
