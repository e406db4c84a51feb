"""The list of commands, in groups, and the first page of help.

Each command is a function of another module; this one only lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from everturn.cli import backup, bench, change, check, doctor, golden, inspect, log, serve, transfer, verify
from everturn.cli.demo import demo

GROUPS: dict[str, dict[str, Callable[..., Any]]] = {}
TITLE = "Agent memory that cannot lose a turn: look inside, take it back, prove it."


class CommandList(TyperGroup):
    """The commands, shown by group and on one screen."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        lines = ["Usage: everturn COMMAND URL ...", "", TITLE, ""]
        for group, commands in GROUPS.items():
            for place, name in enumerate(commands):
                command = self.get_command(ctx, name)
                brief = command.get_short_help_str(limit=58) if command else ""
                lines.append(f"  {'' if place else group:<6} {name:<10} {brief}")
        lines += [
            "",
            "A URL names a store: memory.db, sqlite:///memory.db, redis://host,",
            "redis+cluster://host, redis+sentinel://host/service, postgresql://host/db.",
            "everturn COMMAND --help explains a command, with examples.",
            "Completion in your shell: everturn --install-completion.",
        ]
        formatter.write("\n".join(lines) + "\n")


class PlainHelpCommand(TyperCommand):
    """A command whose help has no Python types: Typer writes `<list[Path]>` for an option that may be repeated."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)
        for param in params:
            shown = getattr(param, "display_type_rich", None)  # not in every Typer
            if shown is not None and "list[" in (shown(ctx=ctx) or ""):
                param.display_type_rich = lambda *, ctx, shown=shown: (
                    shown(ctx=ctx).replace("list[", "").replace("]", "")
                )
        return params


app = typer.Typer(
    cls=CommandList,
    rich_markup_mode=None,  # plain help, like a manual page: it can be piped, and examples keep their lines
    pretty_exceptions_enable=False,  # a mistake of the user is one line; a bug of ours needs its whole traceback
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from everturn.backends.sqlite.doctor import library

        typer.echo(f"everturn {version('everturn')} (SQLite {library()})")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def everturn(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _register(group: str, **commands: Callable[..., Any]) -> None:
    GROUPS[group] = {name.rstrip("_").replace("_", "-"): command for name, command in commands.items()}
    for name, command in GROUPS[group].items():
        app.command(name, cls=PlainHelpCommand)(command)


# A new command: a function in a module beside this one, and its name in one of these lines.
_register("Try", demo=demo)
_register(
    "Look",
    sessions=inspect.sessions,
    show=inspect.show,
    log=log.log,
    snapshots=inspect.snapshots,
    diff=inspect.diff,
    tail=inspect.tail,
    serve=serve.serve,
)
_register(
    "Act",
    snapshot=change.snapshot,
    rollback=change.rollback,
    undo=change.undo,
    fork=change.fork,
    trim=change.trim,
    clear=change.clear,
    erase=change.erase,
    set_ttl=change.set_ttl,
    compact=change.compact,
)
_register("Move", export=transfer.export, import_=transfer.import_, copy=transfer.copy, backup=backup.backup)
_register("Trust", verify=verify.verify, doctor=doctor.doctor, bench=bench.bench, check=check.check)
app.add_typer(golden.app, name="golden")
GROUPS["Trust"]["golden"] = golden.app
