"""Runs of `lm_eval` whose arguments hold secrets: the files that they wrote, and their stores.

Everything happens in this process and on the loopback address. The harness writes what it was
given into its own files; what this package makes of those files may hold none of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _support import scripted_server
from _support.harness_command import lm_eval_command
from _support.scripted_server import Act, error, running

TASK = "demo_arithmetic_bayes"
QUESTIONS, TRIALS = 4, 2

#: Every secret, by the name of its cell. No two share eight characters.
SECRETS = {
    "api_key": "sk-live-Qm7Zt0vXw2Ly",
    "url_password": "hunter2-Rb4Kd9Gs",
    "url_query": "qk-Vn3Pf8Jc6Ht",
    "header": "tok-Ya5Wu1Ee7Ox",
    "bare_header": "hdr-Uz2Il6Mo0Cr",
    "my_token": "my-Tk8Bq4Hw1Sd",
    "password": "pw-Lg9Xn5Rv3Za",
    "auth_token": "at-Ei6Yc2Pk7Fj",
    "hf_token": "hf_Wd1Om4Us8Gt5Nb9Qx",
    "unknown": "lg-Kr3Va7Zf0Bu",
    "proxy": "px-Jh8Ct2Ex6Dm",
    "nested": "ns-Fo4Qi9Yl1Tw",
    "listed": "ls-Sv7Gp3Nz5Ka",
    "gen_kwargs": "gk-Xb0Ur6Mj4We",
    "gen_header": "gh-Cl5Di1Ry8Po",
    "metadata": "md-Hz2Bs9Vt7Qf",
}

#: Those that go into one run together.
TOKENS = ("my_token", "password", "auth_token", "hf_token")

#: The same, as a later run would give them after all keys were changed.
ROTATED = {name: f"{secret[:3]}{secret[:2:-1]}" for name, secret in SECRETS.items()}


@dataclass(frozen=True)
class Scene:
    """A run: the harness's name of its model, and arguments that hold secrets."""

    model: str
    model_args: dict[str, Any]
    gen_kwargs: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


def scenes(address: str, secrets: Mapping[str, str]) -> dict[str, Scene]:
    """Return the runs, by name; `address` is the server's host and port."""
    server = {"tokenizer_backend": None, "tokenized_requests": False}
    return {
        "keys": Scene(
            "gateway",
            {
                "api_key": secrets["api_key"],
                "headers": {"Authorization": f"Bearer {secrets['bare_header']}"},
                **{name: secrets[name] for name in TOKENS},
                "options": {"session": {"secret": secrets["nested"]}},
                "hosts": [{"name": "a", "cookie": secrets["listed"]}],
            },
        ),
        "url_password": Scene(
            "gguf", {"base_url": f"http://me:{secrets['url_password']}@{address}"}
        ),
        "url_query": Scene(
            "local-completions",
            {
                **server,
                "model": "org/hash",
                "base_url": f"http://{address}/v1/completions?key={secrets['url_query']}",
            },
        ),
        "header": Scene(
            "sglang-generate",
            {
                **server,
                "model": "org/hash",
                "base_url": f"http://{address}/generate",
                "header": {"Authorization": f"Bearer {secrets['header']}"},
            },
        ),
        "unknown": Scene("gateway", {"login": secrets["unknown"]}),
        "settings": Scene(
            "gateway",
            {"pretrained": "org/settings", "proxy": f"http://me:{secrets['proxy']}@h:1/"},
            gen_kwargs={
                "api_key": secrets["gen_kwargs"],
                "extra_headers": {"Authorization": f"Bearer {secrets['gen_header']}"},
            },
            metadata={"api_key": secrets["metadata"]},
        ),
    }


#: The run in which each secret goes in.
RUN_OF = {
    **{name: name for name in ("url_password", "url_query", "header", "unknown")},
    **dict.fromkeys(("api_key", "bare_header", *TOKENS, "nested", "listed"), "keys"),
    **dict.fromkeys(("proxy", "gen_kwargs", "gen_header", "metadata"), "settings"),
}


def answer(number: int) -> str:
    """Return a text that is now right, now wrong: most of the demo's answers are small."""
    return f"Attempt {number}: the answer is $\\boxed{{{number % 13}}}$."


class Server(scripted_server.Server):
    """Answers as gguf's server, OpenAI's completions, SGLang's generate and a judge do."""

    def __init__(self) -> None:
        super().__init__(lambda number, body: None, {})

    @property
    def asked(self) -> int:
        return len(self.requests)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def planned(self, number: int, path: str, body: dict[str, Any]) -> Act:
        if path.startswith("/down"):
            return Act(drop=True)
        if path.startswith("/quoting"):
            return error(400, f"no such key: {path} {self.keys[number]}")
        text = answer(body.get("seed", number + 1))
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": "stop"}
        if path.startswith("/judge/"):
            choice["logprobs"] = {"top_logprobs": [{" A": -0.5, " B": -1.5, " C": -2.5}]}
        usage = {"completion_tokens": 4}
        return Act(content={"choices": [choice], "text": text, "usage": usage})


@contextmanager
def serving() -> Iterator[Server]:
    with running(Server()) as server:
        yield server


def run_harness(scene: Scene, folder: Path, store: Path | None, limit: int = QUESTIONS) -> str:
    """Run `lm_eval`; return what this package logged meanwhile.

    Parameters
    ----------
    scene : Scene
        The model and its arguments.
    folder : Path
        The harness's `--output_path`.
    store : Path or None
        The trial store; without one, the model runs as it is.
    """
    model, model_args = scene.model, dict(scene.model_args)
    if store is not None:
        model_args = {"backend": model, "store": str(store), **model_args}
        model = "trials"
    arguments = ["--model", model, "--model_args", json.dumps(model_args), "--tasks", TASK]
    arguments += ["--limit", str(limit), "--log_samples", "--output_path", str(folder)]
    if scene.gen_kwargs:
        arguments += ["--gen_kwargs", json.dumps(scene.gen_kwargs)]
    arguments += ["--metadata", json.dumps({"bayes_n": TRIALS, **scene.metadata})]
    with logged_by_us() as lines:
        lm_eval_command(*arguments)
    return "\n".join(lines)


@contextmanager
def logged_by_us() -> Iterator[list[str]]:
    """Collect the messages of this package's loggers."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "lm_eval_bayes" in record.pathname:
                lines.append(record.getMessage())

    handler, root = Collector(), logging.getLogger()
    loggers = [root, logging.getLogger("lm_eval_bayes"), logging.getLogger("lm_eval")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield lines
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


@dataclass(frozen=True)
class SavedRuns:
    """What the runs left behind.

    Attributes
    ----------
    plain, recorded : dict of str to Path
        By run, the harness's output folders: of the backend as it is, and of `--model trials`.
    stores : dict of str to Path
        By run, the trial store.
    logged : str
        What this package logged during the runs.
    address : str
        Host and port of the server.
    """

    plain: dict[str, Path]
    recorded: dict[str, Path]
    stores: dict[str, Path]
    logged: str
    address: str

    def of(self, kind: str) -> dict[str, Path]:
        """Return the inputs of a kind, "plain", "recorded" or "store", by run."""
        return {"plain": self.plain, "recorded": self.recorded, "store": self.stores}[kind]


def save_runs(folder: Path, server: Server, secrets: Mapping[str, str]) -> SavedRuns:
    """Run every scene, with and without a store."""
    plain, recorded, stores, logged = {}, {}, {}, []
    for name, scene in scenes(server.address, secrets).items():
        plain[name] = folder / "plain" / name
        recorded[name] = folder / "recorded" / name
        stores[name] = folder / f"{name}.sqlite"
        logged.append(run_harness(scene, plain[name], None))
        logged.append(run_harness(scene, recorded[name], stores[name]))
    return SavedRuns(plain, recorded, stores, "\n".join(logged), server.address)
