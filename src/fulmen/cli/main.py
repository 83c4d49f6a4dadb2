"""Entry of the `fulmen` command. Nothing here imports torch: `fulmen --help` answers at once."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fulmen.errors import FulmenError, suggest
from fulmen.version import __version__

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Command:
    """One sub-command.

    Attributes:
        module: Where it is; it has ``add_arguments(parser)`` and ``run(options) -> int``.
        help: One line for ``fulmen --help``.
    """

    module: str
    help: str

    def load(self) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]:
        """Import the module and return its two functions."""
        module = importlib.import_module(self.module)
        return module.add_arguments, module.run


COMMANDS: dict[str, Command] = {
    "ckpt": Command("fulmen.cli.ckpt", "show what a checkpoint holds, or how two of them differ"),
    "env": Command("fulmen.cli.env", "show versions, devices and settings of this machine (for bug reports)"),
}


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command itself; sub-commands have their own, made when they are called."""
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {command.help}" for name, command in sorted(COMMANDS.items()))
    parser = argparse.ArgumentParser(
        prog="fulmen",
        usage="fulmen [--help] [--version] COMMAND ...",
        description="Train PyTorch models.",
        epilog=f"commands:\n{listed}\n\n"
        "`fulmen COMMAND --help` describes a command.\n\n"
        "exit codes:\n"
        f"  {EXIT_OK:<5}done\n"
        f"  {EXIT_ERROR:<5}an error; the message says what to do\n"
        f"  {EXIT_USAGE:<5}wrong usage of the command line\n"
        f"  {EXIT_INTERRUPTED:<5}interrupted (Ctrl-C)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"fulmen {__version__}")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: What stands after ``fulmen``; the process's own if not given.

    Returns:
        The exit code: 0 done, 1 an error, 2 wrong usage, 130 interrupted.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse: help, version, or a usage error it has already printed
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or EXIT_OK
        print(stop.code, file=sys.stderr)
        return EXIT_ERROR
    except FulmenError as error:
        print(f"fulmen: error: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("fulmen: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`fulmen env | head`); the interpreter would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR


def _dispatch(arguments: list[str]) -> int:
    parser = build_parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    name, rest = arguments[0], arguments[1:]
    if name.startswith("-"):
        parser.parse_args(arguments)
        return EXIT_OK
    if name not in COMMANDS:
        print(
            f"fulmen: there is no command {name!r}.{suggest(name, COMMANDS)} Commands: {', '.join(sorted(COMMANDS))}.",
            file=sys.stderr,
        )
        return EXIT_USAGE
    command = COMMANDS[name]
    add_arguments, run = command.load()
    own = argparse.ArgumentParser(prog=f"fulmen {name}", description=f"{command.help}.".capitalize())
    add_arguments(own)
    return run(own.parse_args(rest))
