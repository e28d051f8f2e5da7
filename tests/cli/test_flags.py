"""What `--help` says is so."""

import re
import shlex

import pytest

from cli import flags


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """No word is parted at the end of a line."""
    monkeypatch.setenv("COLUMNS", "1000")


def help_of(*command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        flags.parser().parse_args([*command, "--help"])
    assert ended.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", flags.COMMANDS)
def test_the_help_of_a_command_says_what_it_does_and_its_example_is_understood(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(command, capsys=capsys)
    assert flags.COMMANDS[command] in text
    examples = re.findall(r"for example: kubectl egpu (.*?) (?:\||options:|positional)", text)
    assert len(examples) == text.count("kubectl egpu") - 1
    for example in examples:
        assert flags.parser().parse_args(shlex.split(example)).command == command


@pytest.mark.parametrize("command", ["explain", "translate", "cordon"])
def test_a_flag_that_means_nothing_to_a_command_is_not_spoken_of_and_does_no_harm(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--watch" not in help_of(command, capsys=capsys)
    what = ["-f", "old.yaml"] if command == "translate" else ["pod/x"]
    assert flags.parser().parse_args([command, *what, "-A", "--no-headers"]).all_namespaces
    assert "--watch" in help_of("cards", capsys=capsys)


def test_the_help_names_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys=capsys)
    assert [name for name in flags.COMMANDS if f" {name} " not in text] == []
