"""Options that several commands share, each declared once.

A group of options is a frozen dataclass whose fields are annotated as parameters of a typer
command, or a class with a method `parameters`. A command decorated with :func:`expand_options`
takes the group as one parameter; in its `--help` the group's options stand in its place. It also
takes options with a choice of texts, which are annotated as `Literal`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer.core import TyperCommand

from lm_eval_bayes.cli.ui.errors import named_as_typed
from lm_eval_bayes.errors import InvalidInputError

if TYPE_CHECKING:
    from lm_eval_bayes.stats import IntervalSpec

#: The groups of options in a help text; the last is shown by `--help-all` alone.
OPTIONS, READING, MORE = "Options", "Reading files", "More options"
#: What `--output` takes for standard output.
STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


#: What a posterior is about: the benchmark's questions, or their population.
Scope: TypeAlias = Literal["benchmark", "population"]
#: How the analyses after every batch of trials are corrected for.
Correction: TypeAlias = Literal["none", "pocock", "obrien-fleming", "anytime"]


def option(metavar: str | None, help_text: str, *names: str, panel: str = OPTIONS) -> Any:
    """Return the declaration of an option; its name is that of the parameter unless `names`.

    A flag, and a choice, whose names are shown, have no metavar.
    """
    return typer.Option(*names, metavar=metavar, help=help_text, rich_help_panel=panel)


class HelpCommand(TyperCommand):
    """A command whose `--help` shows the usual options, and `--help-all` all of them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command line."""
        ctx.meta[MORE] = "--help-all" in args
        return super().parse_args(ctx, ["--help" if w == "--help-all" else w for w in args])

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error names its argument as it is typed."""
        with named_as_typed(ctx):
            return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options by their groups."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], OPTIONS: []}
        for param in self.get_params(ctx):
            panel = getattr(param, "rich_help_panel", None) or OPTIONS
            title = "Arguments" if param.param_type_name == "argument" else panel
            record = param.get_help_record(ctx)
            if record is not None:
                groups.setdefault(title, []).append(record)
        if MORE in groups and not ctx.meta[MORE]:
            groups[OPTIONS].append(("--help-all", f"Show {len(groups.pop(MORE))} more options."))
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


# -- single options ------------------------------------------------------------------------------

Level = Annotated[float, option("P", "Posterior mass of the credible intervals.", panel=MORE)]
Seed = Annotated[int, option("N", "Seed of all random draws.", panel=MORE)]
Json = Annotated[bool, option(None, "Print JSON.", "--json")]
Verbose = Annotated[bool, option(None, "Show all rows and notes, and names in full.", "--verbose")]
Overwrite = Annotated[bool, option(None, "Replace existing files.", "--overwrite")]


# -- groups of options ---------------------------------------------------------------------------


@dataclass(frozen=True)
class IntervalOptions:
    """The settings of credible intervals; a scope of None stands for both."""

    level: Level = 0.95
    scope: Annotated[
        Scope | None,
        option(
            None,
            "What scores are about: these questions, or the population that they are a sample of. "
            "By default the benchmark; `summary` and records of Every Eval Ever have both.",
        ),
    ] = None
    seed: Seed = 0

    def spec(self) -> IntervalSpec:
        """Check the settings, before any run is read.

        Raises
        ------
        InvalidInputError
            If a setting breaks its rule; the message names the option.
        """
        from lm_eval_bayes.stats import IntervalSpec

        return IntervalSpec(self.level, self.scope or "benchmark", seed=self.seed)


def expand_options(command: Callable[..., None], tables: bool = False) -> Callable[..., None]:
    """Replace groups of options by their options, and `Literal` by what every typer takes.

    With `tables` the command has the option --verbose: without it tables are one block that fits.
    """
    groups: dict[str, tuple[Any, list[inspect.Parameter]]] = {}
    parameters: list[inspect.Parameter] = []
    # unlike get_type_hints, signature puts no Optional around the annotation of a default of None
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        annotation = parameter.annotation
        if hasattr(annotation, "parameters"):
            options = annotation.parameters()
        elif is_dataclass(annotation):
            hints = get_type_hints(annotation, include_extras=True)
            options = [keyword(f.name, f.default, hints[f.name]) for f in fields(annotation)]
        else:
            parameters.append(keyword(parameter.name, parameter.default, annotation))
            continue
        groups[parameter.name] = annotation, options
        parameters += options

    if tables:
        before_json = len(parameters) - (parameters[-1].name == "as_json")
        parameters.insert(before_json, keyword("verbose", False, Verbose))

    @functools.wraps(command)
    def expanded(*, verbose: bool = True, **values: Any) -> None:
        from lm_eval_bayes.cli.ui.output import tables_with_all_columns

        values = {k: v.value if isinstance(v, Enum) else v for k, v in values.items()}
        for name, (group, options) in groups.items():
            values[name] = group(**{option.name: values.pop(option.name) for option in options})
        # a program gets all warnings
        with tables_with_all_columns(verbose or bool(values.get("as_json"))):
            command(**values)

    vars(expanded)["__signature__"] = inspect.Signature(parameters)
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


prints_tables = functools.partial(expand_options, tables=True)
#: Enum, whose members mypy would have as literals.
_enum: Any = Enum


def keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    """Return a parameter; typer takes a choice of texts as an Enum, and Literal since 0.19."""
    value_type, *option = get_args(annotation) or (annotation,)
    for choice in (value_type, *get_args(value_type)):
        if get_origin(choice) is Literal:
            enum = _enum("Choice", {text: text for text in get_args(choice)}, type=str)
            annotation = Annotated[enum if choice is value_type else enum | None, option[0]]
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


# -- lists of numbers ----------------------------------------------------------------------------


def parse_integers(option: str, text: str) -> list[int]:
    """Parse `1,2,4` into increasing integers.

    Raises
    ------
    InvalidInputError
        If it is not a list of integers of at least 1.

    Examples
    --------
    >>> parse_integers("--k", "1, 2,8")
    [1, 2, 8]
    """
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < 1:
        rule = "be integers of at least 1, separated by commas, as in 1,2,4"
        raise InvalidInputError.of(option, "format", rule, text)
    return numbers


def parse_numbers(option: str, text: str) -> list[float]:
    """Parse `.4,.45`.

    Raises
    ------
    InvalidInputError
        If it is not a list of numbers.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        rule = "be numbers separated by commas, as in .4,.45"
        raise InvalidInputError.of(option, "format", rule, text) from None


def parse_pair(
    option: str, text: str, rule: str, within: Callable[[float, float], bool]
) -> tuple[float, float]:
    """Parse `0.01:0.5`; `within` tells whether two numbers follow the rule.

    Raises
    ------
    InvalidInputError
        With this rule, if it is not two such numbers with a colon between them.
    """
    first, _, second = text.partition(":")
    with suppress(ValueError):
        if within(float(first), float(second)):
            return float(first), float(second)
    raise InvalidInputError.of(option, "format", rule, text)
