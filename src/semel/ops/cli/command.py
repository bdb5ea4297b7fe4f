"""
Command: what every command takes, and what it is handed.

`--json` and `--project` stand before or after the command. A command gets a Desk: the options,
the settings behind them, and the ways to say something. It never reads the environment itself.
"""

import inspect
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Annotated, Any
from uuid import UUID

import psycopg
import typer

from semel import config
from semel.config.settings import PROJECT
from semel.core.projects import list_projects
from semel.db.execute import run
from semel.db.stops import STOPS
from semel.errors import BadConfig
from semel.ops import place
from semel.ops.cli import screen

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Answer in JSON; a list is one line for each item.")
]
ProjectName = Annotated[
    str | None,
    typer.Option("--project", metavar="P", help="The project; otherwise that of semel.toml."),
]

#: The project of settings that name none.
UNCONFIGURED = config.Settings().project


def parse_id(written: str) -> UUID:
    """*written* as an id."""
    try:
        return UUID(written)
    except ValueError:
        raise typer.BadParameter(
            f"{written[:80]!r} is no id: it has the form 01234567-89ab-7cde-8f01-23456789abcd"
        ) from None


Id = Annotated[UUID, typer.Argument(metavar="ID", parser=parse_id)]


@dataclass(kw_only=True)
class Desk:
    """What a command works with."""

    json: bool
    told: str | None  # --project

    @cached_property
    def settings(self) -> config.Settings:
        """The settings in force, without the sources' secrets."""
        return _checked_stop(config.load(secrets=False))

    @cached_property
    def serving(self) -> config.Settings:
        """The settings of a process that takes requests: every secret must be there."""
        return _checked_stop(config.load())

    @property
    def project(self) -> str:
        """The project of a command that needs one."""
        return self.told or self.settings.project

    @property
    def scope(self) -> str | None:
        """The project of a list; None, every project, where none is told or configured."""
        configured = self.settings.project
        return self.told or (configured if configured != UNCONFIGURED else None)

    @contextmanager
    def connection(self) -> Generator[psycopg.Connection[Any], None, None]:
        """A connection to a database with our schema."""
        with place.connection(self.settings) as conn:
            yield conn

    def projects(self, conn: psycopg.Connection[Any]) -> list[str]:
        """The projects of a list: one, or all there are."""
        return [self.scope] if self.scope else run(conn, list_projects())

    @property
    def where(self) -> str:
        """The scope in words."""
        return f"project {self.scope}" if self.scope else "any project"

    def answer(self, value: Mapping[str, Any], said: str | None = None) -> None:
        """One answer: JSON where asked for, else *said*, or its names and values."""
        if self.json:
            screen.document(value)
        elif said is not None:
            screen.text(said)
        else:
            screen.pairs(value)

    def listing(
        self, items: Sequence[Mapping[str, Any]], columns: Sequence[str], none: str
    ) -> None:
        """A list: JSON lines where asked for, else a table, or *none* when it is empty."""
        if self.json:
            for item in items:
                screen.line(item)
        elif items:
            screen.table(items, columns)
        else:
            screen.text(none)


def command(
    group: typer.Typer, name: str, *, hidden: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the function below, which takes a Desk first, as command *name* of *group*."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def called(
            *, context: typer.Context, json: bool, project: str | None, **told: Any
        ) -> None:
            before: Desk = context.find_root().obj
            desk = Desk(json=json or before.json, told=checked(project) or before.told)
            function(desk, **told)

        own = list(inspect.signature(function).parameters.values())[1:]
        added = [
            inspect.Parameter(
                "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
            ),
            inspect.Parameter(
                "json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonFlag
            ),
            inspect.Parameter(
                "project", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ProjectName
            ),
        ]
        kept = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        vars(called).pop("__wrapped__")  # whose signature would be read instead of this
        vars(called).update(__signature__=inspect.Signature([*kept, *added]))
        called.__annotations__ = {p.name: p.annotation for p in [*kept, *added]}
        group.command(name, hidden=hidden)(called)
        return function

    return register


def _checked_stop(settings: config.Settings) -> config.Settings:
    """*settings*, if the place where a test wants this process killed is one."""
    told = os.environ.get("SEMEL_STOP_AT")
    if told and told.partition("#")[0] not in STOPS:
        raise BadConfig(f"SEMEL_STOP_AT is {told[:80]!r}: one of {', '.join(STOPS)}")
    return settings


def checked(project: str | None) -> str | None:
    """*project*, if it can be one."""
    if project is not None and not PROJECT.fullmatch(project):
        raise BadConfig(f"--project is {project[:80]!r}: write 1 to 64 of a-z, 0-9, _ and -")
    return project


def group(help_text: str) -> typer.Typer:
    """A noun, whose commands are its verbs."""
    return typer.Typer(
        help=help_text, no_args_is_help=True, rich_markup_mode=None, add_completion=False
    )
