"""What looks for secrets finds them."""

from pathlib import Path

import pytest

from tests.fakes import secrets


@pytest.mark.parametrize("word", secrets.WORDS)
def test_a_secret_is_found_in_any_file_but_its_own(tmp_path: Path, word: str) -> None:
    for name in ("tls.key", "keys/tls.pem.1", "own-token"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(word)
    secrets.none_below(tmp_path)
    (tmp_path / "objects.json").write_text(f"before {word} after")
    with pytest.raises(AssertionError, match=r"objects\.json"):
        secrets.none_below(tmp_path)
    with pytest.raises(AssertionError, match="the log"):
        secrets.none_in({"the log": "one by one"}, "by one")
