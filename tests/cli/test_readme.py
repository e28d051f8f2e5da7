"""The capture in the README is what a terminal shows. EGPU_REGENERATE=1 makes it anew."""

import os
import re
from pathlib import Path

from tests.cli.conftest import put
from tests.cli.terminal import User
from tests.fakes.apiserver import FakeAPIServer
from tests.page.company import a_company

README = Path(__file__).resolve().parents[2] / "README.md"
ANEW = os.environ.get("EGPU_REGENERATE") == "1"


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
