"""A judge on a server with OpenAI's completions or chat API that returns log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from lm_eval_bayes._util.addresses import check_address
from lm_eval_bayes._util.http import Client, RequestFailed, api_of
from lm_eval_bayes._util.packages import pip_install_extra
from lm_eval_bayes.rubric.verifier_prompt import (
    CONTENT_FREE_INPUT,
    LABELS,
    PLAIN_SLOT,
    PROMPT_VERSION,
    verifier_prompt,
)
from lm_eval_bayes.runs.log_fields import mapping
from lm_eval_bayes.runs.model_arguments import secret_texts
from lm_eval_bayes.verifiers.judge import Scores, Unjudged, VerifierError

#: Number of likeliest tokens that are requested, and the number if the server refuses the first.
_TOP, _FEWER = 20, 5

#: Tokens that a chat template adds to a prompt, and the label, at most.
_CHAT_TOKENS = 64

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


class ServerJudge:
    """Scores labels by a server's list of likeliest next tokens.

    A label that is not on the list gets the lowest score of the list, which is an upper bound;
    a prompt without any label on the list cannot be judged. Lengths are counted in bytes, as no
    token is shorter than one.

    Parameters
    ----------
    name : str
        The server's name of the model.
    base_url : str
        The server's API, such as http://127.0.0.1:8000/v1, whose chat completions are used, or
        the full path of /chat/completions or /completions.
    key : str or None
        Sent with every request, and never shown.
    max_length : int or None
        The maximal length of a prompt; by default the context that the server reports.
    batch_size : int
        Number of concurrent requests.

    Raises
    ------
    InvalidInputError
        If `base_url` is not an address, or contains a user name or password.
    VerifierError
        If the server cannot be reached, lacks the model, or gives no scores of the labels.
    """

    control_tokens: tuple[str, ...] = ()
    unit = "bytes"

    def __init__(
        self,
        name: str,
        base_url: str,
        key: str | None = None,
        *,
        max_length: int | None = None,
        batch_size: int = 8,
    ) -> None:
        self._name, self._concurrency, self._top = name, batch_size, _TOP
        self._address = check_address(base_url)
        path = urlsplit(base_url).path.rstrip("/")
        self._chat = not path.endswith("/completions") or path.endswith("/chat/completions")
        self._client = Client(
            f"{api_of(base_url)}/{'chat/' if self._chat else ''}completions",
            {"Authorization": f"Bearer {key}"} if key else {},
            secret_texts(base_url, key),
            changed=self._changed,
        )
        (models,) = self._answers(self._client.get, [f"{api_of(base_url)}/models"])
        served = self._served = self._entry(models)
        room = served.get("max_model_len")
        self.limit = max_length or (room - _CHAT_TOKENS if isinstance(room, int) else None)
        self._lead = self._find_lead()
        self.fingerprint: Mapping[str, Any] = MappingProxyType(
            {
                "kind": "server",
                "name": name,
                "chat": self._chat,
                "prompt": PROMPT_VERSION,
                "root": served.get("root"),
                "owned_by": served.get("owned_by"),
                "top": self._top,
                "max_length": self.limit,
            }
        )

    def length(self, prompt: str) -> int:
        """Return the number of a prompt's bytes."""
        return len(prompt.encode())

    def scores(self, prompts: Sequence[str]) -> list[Scores | Unjudged]:
        """Return the log-probabilities of the labels, see :meth:`Judge.scores`."""
        scores = dict(self._answers(self._score, enumerate(prompts)))
        return [scores[number] for number in range(len(prompts))]

    def close(self) -> None:
        """Do nothing: the connections are closed after every batch."""

    def _answers(
        self, do: Callable[[_Job], Awaitable[_Result]], jobs: Iterable[_Job]
    ) -> list[_Result]:
        try:
            return list(self._client.results(jobs, do, self._concurrency))
        except RequestFailed as failure:
            sentence = f"the server at {self._address} cannot judge: {failure}"
            raise VerifierError(sentence, "failed", "--base-url", failure.status) from failure
        except ImportError as error:
            sentence = f"--base-url needs aiohttp ({error}): {pip_install_extra('api')}"
            raise VerifierError(sentence, "not-installed", "--base-url") from None

    def _entry(self, models: Any) -> Mapping[str, Any]:
        """Return what the server says about the model, if it lists its models."""
        entries = mapping(models).get("data")
        listed = [mapping(entry) for entry in (entries if isinstance(entries, list) else [])]
        named = {str(entry.get("id")): entry for entry in listed}
        if named and self._name not in named:
            rule = f"be a model of the server, {', '.join(sorted(named)[:5])}"
            raise VerifierError.of("verifier", "choice", rule, self._name)
        return named.get(self._name, {})

    def _changed(self, models: Any) -> str | None:
        root = self._entry(models).get("root")
        if root == self._served.get("root"):
            return None
        return f"the model is {root} now and was {self._served.get('root')}"

    def _payload(self, prompt: str) -> dict[str, Any]:
        body = {"model": self._name, "max_tokens": 1, "temperature": 0}
        if self._chat:
            message = {"role": "user", "content": prompt}
            return {**body, "messages": [message], "logprobs": True, "top_logprobs": self._top}
        return {**body, "prompt": prompt + PLAIN_SLOT, "logprobs": self._top}

    def _likeliest(self, body: Any) -> dict[str, float]:
        """Return the likeliest next tokens of an answer and their log-probabilities."""
        likeliest: dict[str, float] = {}
        try:
            logprobs = body["choices"][0]["logprobs"]
            if self._chat:
                entries = logprobs["content"][0]["top_logprobs"]
                pairs = [(entry["token"], entry["logprob"]) for entry in entries]
            else:
                pairs = logprobs["top_logprobs"][0].items()
            for token, value in pairs:
                score = float(value)
                # neither NaN nor -9999, which some servers write for -inf
                if -9999.0 < score < math.inf:
                    likeliest[str(token)] = max(score, likeliest.get(str(token), score))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            sentence = (
                f"the server at {self._address} returns no log-probabilities of the likeliest "
                "tokens, which a verifier needs"
            )
            raise VerifierError(sentence, "unsupported", "--base-url") from None
        return likeliest

    def _find_lead(self) -> str:
        """Return the text before a label in its token."""

        def fewer(failure: RequestFailed) -> bool:
            refused = failure.status in (400, 422) and self._top == _TOP
            self._top = _FEWER if refused else self._top
            return refused

        async def ask(prompt: str) -> dict[str, float]:
            payload = lambda: self._payload(prompt)  # noqa: E731
            return (await self._client.ask(payload, self._likeliest, fewer)).value

        (likeliest,) = self._answers(ask, [verifier_prompt(CONTENT_FREE_INPUT)])
        for lead in ("", " ") if self._chat else (" ", ""):
            if all(lead + label in likeliest for label in LABELS):
                return lead
        listed = ", ".join(map(repr, likeliest)) or "none"
        sentence = (
            f"{self._name} does not have each of the labels A, B and C among its {self._top} "
            f"likeliest tokens at the beginning of the answer ({listed}), so it cannot be a "
            "verifier"
        )
        raise VerifierError(sentence, "unsupported", "verifier", self._name)

    async def _score(self, job: tuple[int, str]) -> tuple[int, Scores | Unjudged]:
        number, prompt = job
        try:
            answer = await self._client.ask(lambda: self._payload(prompt), self._likeliest)
        except RequestFailed as failure:
            if failure.status not in (400, 413, 422):
                raise
            return number, Unjudged(str(failure))
        labels = [self._lead + label for label in LABELS]
        if not any(label in answer.value for label in labels):
            return number, Unjudged(f"no label is among the {self._top} likeliest tokens")
        least = min(answer.value.values())
        a, b, c = (answer.value.get(label, least) for label in labels)
        return number, (a, b, c)
