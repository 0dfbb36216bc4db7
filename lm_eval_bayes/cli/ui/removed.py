"""What commands and options of earlier versions are called now.

One table, which an error of the parser looks up; it is emptied one release after its entries.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

#: Removed commands, and those that moved.
REMOVED_COMMANDS = MappingProxyType(
    {
        "wrap": "run the task as `TASK_bayes`",
        "formats": "use `doctor --formats`",
        **{
            name: f"use `study {name}`"
            for name in ("convergence", "simulate", "anchors", "rubric", "verify")
        },
        **{
            f"export {suffix}": f"use `export table RUN... -o board.{end}`"
            for suffix, end in (("csv", "csv"), ("json", "json"), ("markdown", "md"))
        },
        "export latex": "use `export table RUN... -o board.md`",
        "store verify": "use `store info --check`",
        "store compact": "use `store prune`, which compacts",
        "store snapshot": "use `store merge STORE -o COPY`",
        "store alias": "use the option --model NAME=RUN of the commands that read runs",
    }
)
_NO_INTERVAL = "leave it out: intervals are those of the exact posterior"
_NONE = "leave it out"
_NO_PLOT = "use `report`, which draws its figures into one page"
#: Removed options, by the name alone where no command has the option any more.
REMOVED_OPTIONS = MappingProxyType(
    {
        "--wide": "use --verbose",
        "--interval": _NO_INTERVAL,
        "--plot": _NO_PLOT,
        "--plots": _NO_PLOT,
        "--confidence": "leave it out: models are distinguishable with 95% confidence",
        "--all-tasks": _NONE,
        "--prior-mean": _NONE,
        "--categories": "use --by COLUMN",
        "--no-categories": "leave it out: --by COLUMN shows categories",
        "--model-a": "use -a",
        "--model-b": "use -b",
        "--fail-if-worse": "use `gate --margin`",
        "--fail-if-below": "use `gate --floor`",
        "--gate-on": "use `gate --on`",
        **{
            f"compare {name}": f"use `gate {name}`"
            for name in ("--margin", "--fail-if-unknown", "--junit", "--markdown")
        },
        "--pass-at-k": "use --k",
        **{
            f"rank {name}": f"use `study rank {name}`"
            for name in ("--ties", "--method", "--shared", "--paper")
        },
        "export table --ties": "use `study rank --ties`",
        "--numbering": _NONE,
        "--quantile": _NONE,
        "--audit": _NONE,
        "--correlation": _NONE,
        "--separate": "use --apart",
        "study convergence --scheme": _NONE,
        "study convergence --gold": _NONE,
        "study convergence --subsets": _NONE,
        "study anchors --between": _NONE,
        "study anchors --epsilon": _NONE,
        "study anchors --sweep": _NONE,
        "export hub --push": "use `hf upload ORG/NAME FOLDER --create-pr`",
        "study verify --temperature": _NONE,
        "study verify --think-end": _NONE,
    }
)


def successor(error: Any) -> str | None:
    """Return what to do instead, where the parser does not know a removed command or option.

    Parameters
    ----------
    error : UsageError
        An error of the parser, or any other exception.
    """
    words = error.ctx.command_path.split(" ")[1:] if getattr(error, "ctx", None) else []
    if type(error).__name__ == "NoSuchOption":
        option = str(error.option_name)
        path = " ".join([*words, option])
        instead = REMOVED_OPTIONS.get(path) or REMOVED_OPTIONS.get(option)
        return None if instead is None else f"`{path}` was removed: {instead}"
    name = " ".join([*words, *str(error.message).split("'")[1:2]])
    instead = REMOVED_COMMANDS.get(name)
    if instead is None or not str(error.message).startswith("No such command"):
        return None
    return f"`{name}` was removed: {instead}"
