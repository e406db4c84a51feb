"""The list of commands, in groups, and the first page of help.

Each command is a function of another module. That module is imported when the command is run or explained:
`everturn --version` imports none of them.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import everturn as package
from everturn.errors import InvalidInput

# A new command: a function in a module beside this one, and its name here, with `module:function`.
GROUPS: dict[str, dict[str, str]] = {
    "Try": {"demo": "demo:demo", "init": "init:init"},
    "Look": {
        "sessions": "inspect:sessions",
        "show": "inspect:show",
        "log": "log:log",
        "snapshots": "inspect:snapshots",
        "diff": "inspect:diff",
        "effects": "effects:effects",
        "tail": "inspect:tail",
        "serve": "serve:serve",
    },
    "Act": {
        "snapshot": "change:snapshot",
        "rollback": "change:rollback",
        "undo": "change:undo",
        "fork": "change:fork",
        "trim": "change:trim",
        "clear": "change:clear",
        "erase": "erase:erase",
        "retain": "erase:retain",
        "set-ttl": "change:set_ttl",
        "compact": "change:compact",
    },
    "Move": {
        "export": "transfer:export",
        "import": "transfer:import_",
        "copy": "transfer:copy",
        "backup": "backup:backup",
    },
    "Trust": {
        "verify": "verify:verify",
        "doctor": "doctor:doctor",
        "bench": "bench:bench",
        "check": "check:check",
        "golden": "golden:app",
    },
    "Read": {"docs": "docs:docs"},
}
COMMANDS = {name: place for commands in GROUPS.values() for name, place in commands.items()}
# Words of other tools, for the command that does it here.
OTHER_WORDS = {
    **dict.fromkeys(("ls", "list"), "sessions"),
    **dict.fromkeys(("cat", "get", "history", "info", "messages", "view"), "show"),
    **dict.fromkeys(("changes", "graph", "versions"), "log"),
    **dict.fromkeys(("find", "grep", "inspect", "search", "ui", "web"), "serve"),
    **dict.fromkeys(("branch", "clone"), "fork"),
    **dict.fromkeys(("checkout", "reset", "restore", "revert"), "rollback"),
    **dict.fromkeys(("checkpoint", "save", "tag"), "snapshot"),
    **dict.fromkeys(("del", "delete", "remove", "rm"), "erase"),
    **dict.fromkeys(("expire", "ttl"), "set-ttl"),
    **dict.fromkeys(("cleanup", "prune"), "retain"),
    **dict.fromkeys(("gc", "vacuum"), "compact"),
    **dict.fromkeys(("create", "migrate"), "init"),
    **dict.fromkeys(("contract", "test"), "check"),
    **dict.fromkeys(("health", "status"), "doctor"),
    "dump": "export",
    "load": "import",
    "try": "demo",
    "watch": "tail",
}
TITLE = "Agent memory that cannot lose a turn: look inside, take it back, prove it."
SETTINGS: dict[str, Any] = {
    "rich_markup_mode": None,  # plain help, like a manual page: it can be piped, and examples keep their lines
    "pretty_exceptions_enable": False,  # a mistake of the user is one line; a bug of ours needs its whole traceback
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}


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


class CommandList(TyperGroup):
    """The commands, shown by group and on one screen, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _imported(cmd_name)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments begin with. Raises InvalidInput, with near names, if it is none."""
        name = args[0] if args else ""
        if name not in COMMANDS and name[:1].isalpha() and not ctx.resilient_parsing:  # that is a shell's completion
            near = [OTHER_WORDS[name]] if name in OTHER_WORDS else get_close_matches(name, COMMANDS)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise InvalidInput(f"{name!r} is none; {hint}everturn --help lists them", path="command")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        lines = ["Usage: everturn COMMAND URL ...", "", TITLE, ""]
        for group, commands in GROUPS.items():
            for place, name in enumerate(commands):
                brief = self.get_command(ctx, name).get_short_help_str(limit=58)
                lines.append(f"  {'' if place else group:<6} {name:<10} {brief}")
        lines += [
            "",
            "A URL names a store: memory.db, sqlite:///memory.db, redis://host,",
            "redis+cluster://host, redis+sentinel://host/service, postgresql://host/db,",
            "dynamodb://table.",
            "everturn COMMAND --help explains a command, with examples.",
            "Completion in your shell: everturn --install-completion.",
        ]
        formatter.write("\n".join(lines) + "\n")


def _imported(name: str) -> Any:
    """Import the module of a command, and make click's command of its function."""
    module, _, function = COMMANDS[name].partition(":")
    found = getattr(import_module(f"everturn.cli.{module}"), function)
    if not isinstance(found, typer.Typer):  # `golden` is a group of its own
        single = typer.Typer(add_completion=False, **SETTINGS)
        single.command(name, cls=PlainHelpCommand)(found)
        found = single
    command = get_command(found)
    command.name = name
    return command


app = typer.Typer(cls=CommandList, **SETTINGS)


def _show_version(wanted: bool) -> None:
    if wanted:
        from everturn.backends.sqlite import library

        typer.echo(f"everturn {package.__version__} (SQLite {library()})")
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
