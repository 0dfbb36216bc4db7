"""What commands and options of earlier versions are called now.

One table; it is emptied one release after its entries.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from typer.core import TyperGroup

#: Removed commands, and those that moved.
REMOVED_COMMANDS = MappingProxyType(
    {
        "wrap": "run the task as `TASK_bayes`",
        "formats": "use `doctor --formats`",
        **{
            name: f"use `study {name}`"
            for name in ("convergence", "simulate", "anchors", "rubric", "verify")
        },
        "export csv": "use `export table RUN... -o board.csv`",
        "export json": "use `export table RUN... -o board.json`",
        "export markdown": "use `export table RUN... -o board.md`",
        "export latex": "use `export table RUN... -o board.md`",
        "store verify": "use `store info --check`",
        "store compact": "use `store prune`, which compacts",
        "store snapshot": "use `store merge STORE -o COPY`",
        "store alias": "use the option --model NAME=RUN of the commands that read runs",
    }
)
_NO_SUCCESSOR = (
    "--all-tasks --no-categories --prior-mean --numbering --quantile --audit --correlation "
    "--scheme --gold --subsets --between --epsilon --sweep --temperature --think-end"
)
#: Removed options, by the name alone where no command has the option any more.
REMOVED_OPTIONS = MappingProxyType(
    {
        "--wide": "use --verbose",
        "--interval": "leave it out: intervals are those of the exact posterior",
        **dict.fromkeys(
            ("--plot", "--plots"), "use `report`, which draws its figures into one page"
        ),
        "--confidence": "leave it out: models are distinguishable with 95% confidence",
        "--categories": "use --by COLUMN",
        "--model-a": "use -a",
        "--model-b": "use -b",
        "--pass-at-k": "use --k",
        "--separate": "use --apart",
        "--fail-if-worse": "use `gate --margin`",
        "--fail-if-below": "use `gate --floor`",
        "--gate-on": "use `gate --on`",
        **{
            f"compare {name}": f"use `gate {name}`"
            for name in ("--margin", "--fail-if-unknown", "--junit", "--markdown")
        },
        **{
            f"rank {name}": f"use `study rank {name}`"
            for name in ("--ties", "--method", "--shared", "--paper")
        },
        "study rank --pairs": "use `rank --pairs`",
        **{f"study rank {name}": f"use `rank {name}`" for name in ("--prior", "--prior-strength")},
        "export table --ties": "use `study rank --ties`",
        "export hub --push": "use `hf upload ORG/NAME FOLDER --create-pr`",
        **dict.fromkeys(_NO_SUCCESSOR.split(), "leave it out: it has no successor"),
    }
)


class CommandGroup(TyperGroup):
    """A group of commands that knows what became of removed ones."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the words name."""
        name = " ".join([*ctx.command_path.split(" ")[1:], args[0]])
        if name in REMOVED_COMMANDS:
            ctx.fail(f"`{name}` was removed: {REMOVED_COMMANDS[name]}")
        return super().resolve_command(ctx, args)


def instead_of_option(command: str, option: str) -> str | None:
    """Return the sentence about a removed option of a command; None if there was none."""
    name = f"{command} {option}"
    instead = REMOVED_OPTIONS.get(name) or REMOVED_OPTIONS.get(option)
    return None if instead is None else f"`{name}` was removed: {instead}"
