"""The `fulmen` command: help without torch, clear errors, documented exit codes, `fulmen env`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import pytest

from fulmen.cli import env, main
from fulmen.errors import MisconfigurationException
from fulmen.version import __version__


def run_in_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys\nfrom fulmen.cli.main import main\ncode = main(sys.argv[1:])\n"
        "heavy = [m for m in ('torch', 'numpy', 'rich', 'yaml') if m in sys.modules]\n"
        "print('HEAVY', heavy, file=sys.stderr)\nsys.exit(code)"
    )
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("argument", ["--help", "--version", "nothing-of-the-kind"])
def test_answers_without_torch(argument: str) -> None:
    done = run_in_process(argument)
    assert "HEAVY []" in done.stderr


def test_help_lists_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, command in main.COMMANDS.items():
        assert name in text
        assert command.help in text
    for code in ("0 ", "1 ", "2 ", "130 "):
        assert f"\n  {code}" in text


@pytest.mark.parametrize("name", sorted(main.COMMANDS))
def test_every_listed_command_exists_and_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([name, "--help"]) == 0
    assert f"usage: fulmen {name}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out == f"fulmen {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evn"], ["no command 'evn'", "Did you mean 'env'?"]),
        (["xyzzy"], ["no command 'xyzzy'", "Commands: ckpt, env"]),
        (["--nothing"], ["unrecognized arguments: --nothing"]),
        (["env", "--nothing"], ["unrecognized arguments: --nothing"]),
        ([], ["usage: fulmen", "commands:"]),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for word in words:
        assert word in captured.err


@pytest.mark.parametrize(
    ("raised", "code", "word"),
    [
        (MisconfigurationException("the value is wrong"), 1, "error: the value is wrong"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (SystemExit(3), 3, ""),
        (SystemExit("a message"), 1, "a message"),
    ],
)
def test_exit_codes(
    raised: BaseException, code: int, word: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(options: argparse.Namespace) -> int:
        raise raised

    monkeypatch.setattr(env, "run", fail)
    assert main.main(["env"]) == code
    assert word in capsys.readouterr().err


def test_other_exceptions_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(options: argparse.Namespace) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(env, "run", fail)
    with pytest.raises(ZeroDivisionError):
        main.main(["env"])


def test_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m fulmen.cli env | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_env_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    monkeypatch.setenv("UNRELATED", "x")
    assert main.main(["env", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["fulmen"] == __version__
    assert facts["torch"]["version"] == torch.__version__
    assert facts["torch"]["devices"][0].startswith("cpu")
    assert facts["environment"] == {"PL_GLOBAL_SEED": "7"}
    assert "torchmetrics" in facts["packages"]
    assert "no-such-package" not in facts["packages"]


def test_env_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["env"]) == 0
    text = capsys.readouterr().out
    for word in (f"fulmen{'':<2}", "python", "torch", "device", "no FULMEN_* or PL_* variables set"):
        assert word in text


def test_env_shows_a_torch_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main.main(["env"]) == 0
    assert "cannot be imported: ModuleNotFoundError" in capsys.readouterr().out
