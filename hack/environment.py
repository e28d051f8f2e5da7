"""Makes the virtual environment from pyproject.toml: once, and again when its dependencies change."""

import hashlib
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(folder: Path) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  this very line is what an older Python reaches
        sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}: make PYTHON=python3.11 ...")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    stamp, key = folder / "wanted", hashlib.sha256("\n".join(wanted).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == key:
        return
    print(f"making {folder.name} with {len(wanted)} packages (a minute or two)", flush=True)
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted], check=True)
    stamp.write_text(key)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".venv"))
