import re
from pathlib import Path
from types import ModuleType

import pytest

README = Path(__file__).parents[2] / "kubeletplugin" / "README.md"


@pytest.fixture(scope="session")
def lamps() -> ModuleType:
    """The driver that the README shows."""
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert code is not None
    module = ModuleType("lamps")
    exec(compile(code[1], str(README), "exec"), module.__dict__)
    return module
