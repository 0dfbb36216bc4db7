"""Pull requests with results in a model's repository on the hub."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lm_eval_bayes._util.text import one_line
from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.export.hub_results import HubResult, library

#: The hub, unless HF_ENDPOINT is set.
ENDPOINT = "https://huggingface.co"
_MAX_MESSAGE = 160


def open_pull_request(
    results: Sequence[HubResult],
    model_id: str,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    overwrite: bool = False,
) -> str:
    """Open one pull request with all results in a model's repository.

    Parameters
    ----------
    results : sequence of HubResult
        The files.
    model_id : str
        The repository.
    token : str, optional
        The hub's token; by default that of HF_TOKEN or of `hf auth login`.
    endpoint : str, optional
        The hub; by default HF_ENDPOINT or huggingface.co.
    overwrite : bool
        Whether the pull request may change existing files.

    Returns
    -------
    str
        The address of the pull request.

    Raises
    ------
    LmEvalBayesError
        If there is no token, the hub cannot be reached or refuses, a file exists, or a pull
        request of the same title is open. No pull request was opened then, unless the connection
        failed while it was.
    """
    hub = library()
    token = token or hub.get_token()
    if not token:
        raise LmEvalBayesError(
            "there is no token for the hub, so nothing was sent: set HF_TOKEN, or log in with "
            "`hf auth login`"
        )
    url = (endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    api = hub.HfApi(endpoint=url, token=token, library_name="lm-eval-bayes")
    title = f"Evaluation results: {', '.join(result.path.split('/')[-1] for result in results)}"
    with _hub_errors(url, "the token was not checked"):
        api.whoami()
    with _hub_errors(url, f"{model_id} was not checked"):
        _check_not_there(api, results, model_id, title, overwrite)
    with _hub_errors(url, f"the pull request to {model_id} was not opened"):
        commit = api.create_commit(
            model_id,
            [
                hub.CommitOperationAdd(result.path, result.text.encode("utf-8"))
                for result in results
            ],
            commit_message=title,
            commit_description=_description(results),
            create_pr=True,
        )
        address = commit.pr_url
    if not address:
        raise LmEvalBayesError(
            f"{model_id} has identical results already, so no pull request was opened"
        )
    return str(address)


def _check_not_there(
    api: Any, results: Sequence[HubResult], model_id: str, title: str, overwrite: bool
) -> None:
    """Raise if a file exists, or a pull request of the same title is open."""
    opened = api.get_repo_discussions(
        model_id, discussion_type="pull_request", discussion_status="open"
    )
    for pull_request in opened:
        if pull_request.title == title:
            raise LmEvalBayesError(
                f"pull request {pull_request.num} of {model_id} is open and has the title "
                f'"{title}": nothing was sent'
            )
    if overwrite:
        return
    for result in results:
        if api.file_exists(model_id, result.path):
            raise LmEvalBayesError(
                f"{model_id} has {result.path} already: nothing was sent; --overwrite changes it"
            )


def _description(results: Sequence[HubResult]) -> str:
    lines = [
        f"- `{result.path}`: {result.value:g}. {one_line(result.notes).replace('`', chr(39))}"
        for result in results
    ]
    return "\n".join([*lines, "", "Written by lm-eval-bayes from a run's logged trials."])


@contextmanager
def _hub_errors(endpoint: str, consequence: str) -> Iterator[None]:
    """Convert errors of the hub and of the network into this package's error."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    # its bases are the network errors of the HTTP library that huggingface_hub uses
    network: tuple[type[Exception], ...] = HfHubHTTPError.__bases__
    try:
        yield
    except LmEvalBayesError:
        raise
    except OfflineModeIsEnabled:
        raise LmEvalBayesError(
            f"{consequence}: HF_HUB_OFFLINE is set, so {endpoint} is not used; unset it for --push"
        ) from None
    except HfHubHTTPError as error:
        raise LmEvalBayesError(f"{consequence}: {endpoint} {_response_text(error)}") from None
    except network as error:
        message = one_line(str(error).split("\n")[0], _MAX_MESSAGE) or type(error).__name__
        raise LmEvalBayesError(f"{consequence}: {endpoint} cannot be reached ({message})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LmEvalBayesError(
            f"{endpoint} gave an unexpected response; probably {consequence}"
        ) from None


def _response_text(error: Any) -> str:
    """Return the status code of the hub's response and its meaning, if known."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    meaning = {
        401: "the token is not valid",
        403: "the token may not do this; it needs the right to write",
        404: "there is no such model, or the token may not see it",
        429: "too many requests; try again later",
    }.get(status or 0)
    if meaning is None:
        message = getattr(error, "server_message", None) or ""
        meaning = one_line(" ".join(str(message).split()), _MAX_MESSAGE)
    return f"answered {status}" + (f": {meaning}" if meaning else "")
