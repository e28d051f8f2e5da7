"""Real compute without a GPU: ggml's RPC server and client on the processor, built once and kept.

    libraries()   folder with ggml's shared libraries, which every user may read
    SERVER        program: serves this host's processor to ggml clients     python3 server.py <libraries> <port>
    MULTIPLY      program: multiplies two matrices, here or on a remote card, and prints a digest of the product

The programs need Python and the libraries alone, so that they run in any image. The server knows no authentication: it
belongs behind a pool's door, and the client reaches it through that door by the lease's certificate.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SERVER = Path(__file__).with_name("server.py")
MULTIPLY = Path(__file__).with_name("multiply.py")
VERSION = "0.0.45"
_OPTIONS = "-DGGML_RPC=ON;-DGGML_NATIVE=OFF;-DGGML_OPENMP=OFF"
"""For any x86-64 processor, and without libgomp, which a slim image has not."""


def libraries() -> Path:
    """Made by pip from the source archive of ggml-python, which takes a minute; kept in a place that others may read."""
    kept = Path(tempfile.gettempdir()) / f"egpu-ggml-{os.getuid()}-{VERSION}-1"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as folder:
            what = (
                "--no-cache-dir",
                "--no-deps",
                "--no-binary=ggml-python",
                "-C",
                f"cmake.args={_OPTIONS}",
                f"ggml-python=={VERSION}",
            )
            subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "-w", folder, *what], check=True)
            made = Path(tempfile.mkdtemp(dir=kept.parent))
            with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
                for name in wheel.namelist():
                    if ".so" in Path(name).name:
                        (made / Path(name).name).write_bytes(wheel.read(name))
            made.chmod(0o755)
            try:
                made.rename(kept)
            except OSError:  # another run was quicker
                shutil.rmtree(made)
    if kept.stat().st_uid != os.getuid():
        sys.exit(f"{kept} is somebody else's; remove it")
    return kept
