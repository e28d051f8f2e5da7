"""The README's commands are there, and its capture is what a terminal shows. EGPU_REGENERATE=1 makes it anew."""

import os
import re
from pathlib import Path

from cli.flags import COMMANDS
from tests.cli.conftest import put
from tests.cli.terminal import User
from tests.fakes.apiserver import FakeAPIServer
from tests.page.company import a_company

README = Path(__file__).resolve().parents[2] / "README.md"
ANEW = os.environ.get("EGPU_REGENERATE") == "1"


def test_every_command_that_the_readme_names_is_there_and_none_is_left_out() -> None:
    text = README.read_text()
    named = set(re.findall(r"`kubectl\segpu ([a-z]+)", text))
    table = text.partition("| tells also |")[2].partition("\n\n")[0]
    named |= {
        word for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for word in re.findall(r"`([a-z]+)", row)
    }
    assert sorted(named) == sorted(COMMANDS.keys() - {"status", "completion"})


async def test_the_readmes_capture_is_what_a_terminal_shows(server: FakeAPIServer, user: User) -> None:
    server.store.objects.clear()
    put(server, *a_company())
    lines = (await user.sees("cards", "--color=never", width=120)).splitlines()
    capture = "\n".join(["$ kubectl egpu cards", *lines[:5], "...", *lines[25:29]])
    text = README.read_text()
    found = re.search(r"```\n(\$ kubectl egpu cards\n.*?)\n```", text, re.DOTALL)
    assert found, "the README has no capture of kubectl egpu cards"
    if ANEW:
        README.write_text(text.replace(found[1], capture))
    else:
        assert found[1] == capture
