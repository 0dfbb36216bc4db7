"""Write the pages of docs/commands/ from the command objects, so that each command has a page.

python make_docs.py            # say which pages are up to date
python make_docs.py --check    # the same; exit code 1 if one is not
python make_docs.py --write    # write them
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

PROGRAM = "lm-eval-bayes"
DOCS = Path(__file__).resolve().parent / "docs"
MADE = f"<!-- Made by examples/make_docs.py from the text of `{PROGRAM} --help`. -->"

COMPLETION = f"""\
## Completion

Commands, options and the values of options complete with the tab key in bash, zsh and fish:

```bash
{PROGRAM} --install-completion
```

This adds a few lines to the start-up file of the shell it is called from; they take effect in the
next shell. `{PROGRAM} --show-completion` prints them instead, to put them where you like.
"""


# -- command pages -----------------------------------------------------------------------------


def root_command() -> Any:
    import typer

    from lm_eval_bayes.cli.main import app

    return typer.main.get_command(app)


def command_pages() -> dict[str, str]:
    """Return every page of a command by its file name, and the index as README.md."""
    root = root_command()
    pages = {f"{name}.md": page(name, command) for name, command in root.commands.items()}
    return {"README.md": index(root), **pages}


def index(root: Any) -> str:
    lines = [MADE, "", "# Commands", "", text(root.help), ""]
    lines += ["| command | what it does |", "|---|---|"]
    for name, command in root.commands.items():
        inner = getattr(command, "commands", {})
        names = f" ({', '.join(f'`{inner_name}`' for inner_name in inner)})" if inner else ""
        lines.append(f"| [`{PROGRAM} {name}`]({name}.md){names} | {text(summary(command))} |")
    lines += ["", "## Options", "", OPTIONS_HEAD, *option_rows(root).values(), ""]
    lines += ["## Common options", "", "Those that a command has are named on its page.", ""]
    lines += [OPTIONS_HEAD, *sorted(common_rows()), "", COMPLETION, *exit_codes(root)]
    return "\n".join(lines).rstrip() + "\n"


def page(name: str, command: Any) -> str:
    lines = [MADE, "", f"# {PROGRAM} {name}", ""]
    inner = getattr(command, "commands", None)
    if inner is None:
        lines += section(f"{PROGRAM} {name}", command, "##")
    else:
        lines += [text(command.help), ""]
        for inner_name, sub in inner.items():
            lines += [f"## {PROGRAM} {name} {inner_name}", ""]
            lines += section(f"{PROGRAM} {name} {inner_name}", sub, "###")
    lines.append("[All commands, and their exit codes](README.md)")
    return "\n".join(lines).rstrip() + "\n"


def section(path: str, command: Any, heading: str) -> list[str]:
    """Return summary, usage, description, arguments, options and examples of one command."""
    prose, examples = help_parts(command)
    lines = [text(prose[0]), "", "```text", usage(path, command), "```", ""]
    for paragraph in prose[1:]:
        lines += [text(paragraph), ""]
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    if arguments:
        lines += [f"{heading} Arguments", "", "| argument | meaning |", "|---|---|"]
        for argument in arguments:
            lines.append(f"| {code(argument_name(argument))} | {text(argument.help or '')} |")
        lines.append("")
    rows, common = option_rows(command), common_rows()
    own = [row for row in rows.values() if row not in common]
    lines += [f"{heading} Options", "", OPTIONS_HEAD, *own, ""]
    names = ", ".join(f"`{name}`" for name, row in rows.items() if row in common)
    if names:
        lines += [f"And of the [common options](README.md#common-options) {names}.", ""]
    if examples:
        lines += [f"{heading} Examples", "", "```bash", *examples, "```", ""]
    return lines


def help_parts(command: Any) -> tuple[list[str], list[str]]:
    """Return the paragraphs of a help text, and the lines of its examples."""
    prose: list[str] = []
    examples: list[str] = []
    help_text = (command.help or "").partition("\f")[0]
    for paragraph in re.split(r"\n\s*\n", help_text.strip()):
        lines = [line.rstrip() for line in paragraph.strip("\n").splitlines()]
        if lines and lines[0].strip() == "\b":
            lines = lines[1:]
            if lines and lines[0].strip() == "Examples:":
                indent = min(len(line) - len(line.lstrip()) for line in lines[1:] if line.strip())
                examples += [line[indent:] for line in lines[1:]]
                continue
        prose.append(" ".join(line.strip() for line in lines))
    return prose, examples


def summary(command: Any) -> str:
    """Return what stands beside a command in a list: the first paragraph, whole."""
    return command.short_help or help_parts(command)[0][0]


def usage(path: str, command: Any) -> str:
    words = [path]
    options = [param for param in command.params if param.param_type_name == "option"]
    words += [
        f"{flag(option)} {value(option, command)}".rstrip() for option in options if option.required
    ]
    words.append("[OPTIONS]")
    words += [
        argument_name(param) for param in command.params if param.param_type_name == "argument"
    ]
    if command.context_settings.get("ignore_unknown_options"):
        words.append("[ARGUMENTS OF lm_eval run]...")
    return " ".join(words)


OPTIONS_HEAD = "| option | default | meaning |\n|---|---|---|"
#: An option is common if so many commands have it, with the same text.
COMMON = 8


def option_rows(command: Any) -> dict[str, str]:
    """Return a row of a table for every option that is not hidden, by its name."""
    rows = {}
    for param in command.params:
        if param.param_type_name == "option" and not param.hidden:
            names = ", ".join([*param.opts, *param.secondary_opts])
            description, shown = default(param)
            named = code(f"{names} {value(param, command)}".strip())
            rows[flag(param)] = f"| {named} | {shown} | {text(description)} |"
    return rows | {"--help": "| `-h, --help` |  | Show the help text and exit. |"}


@cache
def common_rows() -> frozenset[str]:
    """Return the rows of the options that many commands have."""
    counts = Counter(
        row for command in leaves(root_command()) for row in option_rows(command).values()
    )
    return frozenset(row for row, n in counts.items() if n >= COMMON)


def leaves(command: Any) -> list[Any]:
    """Return the commands that do something, of a group or of one that is none."""
    inner = getattr(command, "commands", None)
    return [command] if inner is None else [leaf for sub in inner.values() for leaf in leaves(sub)]


def argument_name(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return f"{name}..." if param.nargs == -1 and not name.endswith("...") else name


def flag(param: Any) -> str:
    return max(param.opts, key=len)


def value(param: Any, command: Any) -> str:
    """Return what stands for an option's value in a help text."""
    if param.is_flag:
        return ""
    if param.metavar:
        return str(param.metavar)
    # How an option keeps its type differs between releases of typer; this is what --help shows.
    context = command.make_context(command.name, [], resilient_parsing=True)
    return str(param.get_help_record(context)[0]).rpartition(" ")[2].strip("[]<>")


def default(param: Any) -> tuple[str, str]:
    """Return an option's help text without its default, and the default."""
    description = param.help or ""
    named = re.search(r"\s*\[default: (.*)\]$", description)
    if named:
        return description[: named.start()], code(named[1])
    if param.required:
        return description, "required"
    if (
        param.is_flag
        or param.default is None
        or callable(param.default)
        or param.default in ((), [])
    ):
        return description, ""
    return description, code(str(getattr(param.default, "value", param.default)))


def exit_codes(root: Any) -> list[str]:
    lines = ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    for number, meaning in re.findall(r"^ +(\d+) +(.*)$", root.epilog, flags=re.MULTILINE):
        lines.append(f"| {number} | {text(meaning)} |")
    return lines


# -- Markdown ------------------------------------------------------------------------------------


def text(words: str) -> str:
    """Return prose with nothing in it that Markdown would take for its own, options as code."""
    parts = re.split(r"(`[^`]*`|(?<![\w-])--[a-z][\w-]*)", " ".join(words.split()))
    return "".join(
        code(part.strip("`")) if number % 2 else re.sub(r"([*_<>\[\]|~])", r"\\\1", part)
        for number, part in enumerate(parts)
    )


def code(words: str) -> str:
    """Return text as code, also within a table, where sites show the escape of a bar in code."""
    return f"`{words}`".replace("|", "`\\|`") if words else ""


# -- files ---------------------------------------------------------------------------------------


def pages() -> dict[Path, str]:
    """Return every page that comes from the code."""
    return {DOCS / "commands" / name: page for name, page in command_pages().items()}


def gone(pages_by_path: dict[Path, str]) -> list[Path]:
    """Return pages of commands that are no more."""
    return sorted(set((DOCS / "commands").glob("*.md")) - set(pages_by_path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="end with 1 if a page is not current")
    action.add_argument("--write", action="store_true", help="write the pages")
    options = parser.parse_args()
    pages_by_path = pages()
    stale = 0
    for path, page in pages_by_path.items():
        same = path.is_file() and path.read_text(encoding="utf-8") == page
        stale += not same
        if options.write and not same:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page, encoding="utf-8")
        state = "up to date" if same else "written" if options.write else "not up to date"
        print(f"{path.relative_to(DOCS)}: {state}")
    for path in gone(pages_by_path):
        stale += 1
        if options.write:
            path.unlink()
        print(f"{path.relative_to(DOCS)}: {'removed' if options.write else 'of no command'}")
    if options.check and stale:
        sys.exit("the pages differ from the code: run python examples/make_docs.py --write")


if __name__ == "__main__":
    main()
