"""One trial asked of a server: its request, its answer, and what is said of both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from lm_eval_bayes.harness.logs import get_logger
from lm_eval_bayes.harness.models.openai.answers import Answer, read_answer, read_prompt_bits
from lm_eval_bayes.harness.models.openai.checks import max_gen_toks, token_count
from lm_eval_bayes.harness.models.openai.endpoint import Line
from lm_eval_bayes.harness.models.openai.errors import ExchangeFailed
from lm_eval_bayes.harness.models.openai.payload import Payloads
from lm_eval_bayes.harness.models.openai.transport import Connection, Exchange
from lm_eval_bayes.harness.models.trial_request import Order, Sampled

log = get_logger(__name__)

#: What becomes of an order: a trial, or why there is none.
Outcome: TypeAlias = tuple[Order, Sampled | ExchangeFailed]

#: So many failures in a row, with no answer between them, and nothing more is asked.
_FEWEST_IN_A_ROW = 8

#: A trial does not wait longer for what is only a signal.
_ATTEMPTS_TO_MEASURE = 2


class Asking:
    """Asks for trials over one connection, for as long as the server answers.

    Parameters
    ----------
    payloads : Payloads
        Builds the requests.
    line : Line
        Where they go.
    messages : mapping
        By prompt: what is sent of it, the context or its tokens.
    measure : frozenset of str
        Prompts whose bits per token are wanted.
    at_once : int
        Requests under way at a time.
    think_end_token : str or None
        Ends the think block.
    said : set of str
        What the user was told already; shared by all that is asked of one server.
    """

    def __init__(
        self,
        payloads: Payloads,
        line: Line,
        messages: Mapping[str, Any],
        measure: frozenset[str],
        at_once: int,
        think_end_token: str | None,
        said: set[str],
    ) -> None:
        self._payloads = payloads
        self._line = line
        self._messages = messages
        self._to_measure = set(measure)
        self._at_once = at_once
        self._think_end_token = think_end_token
        self._in_a_row = 0
        self._given_up = False
        self._said = said

    def until_given_up(self, orders: Sequence[Order]) -> Iterator[Order]:
        """Yield the orders while there is a point in asking."""
        for order in orders:
            if self._given_up:
                return
            yield order

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Callable[[Order], Awaitable[Outcome]]]:
        """Open the connection and give the function that asks for one trial."""
        async with Connection(self._line, self._at_once) as connection:

            async def ask(order: Order) -> Outcome:
                return await self._ask(connection, order)

            yield ask

    async def _ask(self, connection: Connection, order: Order) -> Outcome:
        measured = await self._measured(connection, order)
        sent: dict[str, Any] = {}

        def payload() -> dict[str, Any]:
            sent.clear()
            sent.update(self._payloads.of(order, self._messages[order.prompt]))
            return sent

        try:
            exchange = await connection.ask(
                payload,
                lambda body: read_answer(body, self._payloads.chat, sent.get("model")),
                lambda failure: self._payloads.relent(sent, failure),
            )
        except ExchangeFailed as failure:
            if measured is not None:
                self._to_measure.add(order.prompt)
            self._note(failure)
            return order, failure
        self._in_a_row = 0
        return order, self._sampled(order, exchange, measured)

    def _note(self, failure: ExchangeFailed) -> None:
        self._in_a_row += 1
        if failure.hopeless or self._in_a_row >= max(_FEWEST_IN_A_ROW, self._at_once):
            self._given_up = True

    async def _measured(self, connection: Connection, order: Order) -> dict[str, float] | None:
        """Return the bits of the order's prompt, if this is the first to ask for them."""
        wanted = order.prompt in self._to_measure and not self._given_up
        if not wanted or not self._payloads.measures:
            return None
        self._to_measure.discard(order.prompt)
        try:
            exchange = await connection.ask(
                lambda: self._payloads.of_prompt(order, self._messages[order.prompt]),
                lambda body: read_prompt_bits(body, self._payloads.chat),
                lambda failure: False,
                attempts=_ATTEMPTS_TO_MEASURE,
            )
        except ExchangeFailed as failure:
            self._say("prompt", "prompt_bpt is not recorded: %s", failure)
            bits = None
        else:
            bits = exchange.value
            if bits is None:
                self._say("prompt", "prompt_bpt is not recorded: %s", "the server did not tell it")
        if bits is None:
            # A server that cannot tell it for one prompt will not for the next.
            self._to_measure.clear()
            return None
        return {"prompt_bpt": bits}

    def _sampled(
        self, order: Order, exchange: Exchange[Answer], measured: Mapping[str, float] | None
    ) -> Sampled:
        answer = exchange.value
        signals = dict(answer.signals)
        if self._payloads.measures and "completion_bpt" not in signals and answer.text:
            self._say("bits", "completion_bpt is not recorded: the server sent %s", "none")
        if "content_missing" in signals:
            self._say(
                "content",
                "the server sent an answer without content (%s); it is recorded as an empty one. "
                "A reasoning model that used up max_gen_toks does that",
                answer.finish_reason,
            )
        if self._think_end_token:
            signals["think_closed"] = self._think_end_token in answer.text
        elif "reasoning_content" in signals:
            signals["think_closed"] = bool(answer.text)
        tokens = token_count(self._messages[order.prompt])
        if tokens is not None and answer.prompt_tokens is not None:
            signals["prompt_truncated"] = answer.prompt_tokens < tokens
            if signals["prompt_truncated"]:
                self._say(
                    "truncated",
                    "the server read fewer tokens of a prompt than were sent (%s): it cuts prompts",
                    f"{answer.prompt_tokens} of {tokens}",
                )
        wanted, used = max_gen_toks(order), answer.completion_tokens
        if answer.finish_reason == "length" and used is not None and used < wanted:
            self._say(
                "length",
                "the server ended an answer for its length after %s: its own limit is shorter",
                f"{used} tokens of max_gen_toks={wanted}",
            )
        return Sampled(
            text=answer.text,
            signals=signals,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            finish_reason=answer.finish_reason,
            stop_reason=answer.stop_reason,
            queued_s=exchange.waited_s + (answer.queued_s or 0.0),
            generated_s=exchange.took_s if answer.generated_s is None else answer.generated_s,
            concurrency=exchange.under_way,
            prompt_signals=measured,
        )

    def _say(self, topic: str, message: str, what: object) -> None:
        if topic not in self._said:
            self._said.add(topic)
            log.warning(message, what)
