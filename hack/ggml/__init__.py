"""Real compute without a GPU: ggml's RPC server and client on the processor, built once and kept.

    libraries()    folder in the user's cache with ggml's shared libraries, built from source where it is missing
    image(archive) an archive of that image with all of it beside, for pods
    lay_out(into)  these and both programs in a folder that every user may read, as a server of its own user has to
    SERVER         program: serves this host's processor to ggml clients     python3 server.py <libraries> <port>
    MULTIPLY       program: multiplies two matrices, here or on a remote card, and prints a digest of the product

The programs need Python and the libraries alone, so that they run in any image. The server knows no authentication: it
belongs behind a pool's door, and the client reaches it through that door by the lease's certificate.
"""

import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from hack.cluster import commands, errors, images, paths, progress, state

SERVER = Path(__file__).with_name("server.py")
MULTIPLY = Path(__file__).with_name("multiply.py")
IMAGE, PLACE = "registry.local/elastic-gpu-ggml:1", "/opt/ggml"
"""An image with the programs and libraries, and where they are in it."""
VERSION = "0.0.45"
_OPTIONS = "-DGGML_RPC=ON;-DGGML_NATIVE=OFF;-DGGML_OPENMP=OFF"
"""For any x86-64 processor, and without libgomp, which a slim image has not."""


class NotBuilt(errors.ClusterError):
    """ggml cannot be had on this machine: its source is not reached, or does not compile."""


def libraries() -> Path:
    """Made by pip from the source archive of ggml-python, which takes a minute. Raises NotBuilt."""
    kept = paths.cache() / f"ggml-{VERSION}-1"
    building = paths.cache() / "ggml-building"
    with state.locked(building):
        if not kept.exists():
            progress.say(f"building ggml {VERSION} into {kept}: once, about a minute on two cores")
            for stale in building.iterdir():
                shutil.rmtree(stale, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=building) as folder:
                _build(Path(folder)).replace(kept)
    return kept


def lay_out(into: Path) -> Path:
    into.mkdir(mode=0o755, parents=True, exist_ok=True)
    for file in (*libraries().iterdir(), SERVER, MULTIPLY):
        shutil.copyfile(file, into / file.name)
        (into / file.name).chmod(0o644)
    return into


def image(archive: Path) -> Path:
    """An archive of IMAGE, which is the image of `archive` with ggml in it."""
    with tempfile.TemporaryDirectory() as folder:
        return images.with_folder(archive, IMAGE, lay_out(Path(folder, "ggml")), PLACE)


def at_home(times: int = 1) -> str:
    """What MULTIPLY prints when it computes on this host itself."""
    return commands.run(sys.executable, MULTIPLY, libraries(), "here", str(times))


def _build(folder: Path) -> Path:
    source = ("--no-cache-dir", "--no-deps", "--no-binary=ggml-python", "-C", f"cmake.args={_OPTIONS}")
    wheel = (sys.executable, "-m", "pip", "wheel", "-v", "-w", folder / "wheel", *source, f"ggml-python=={VERSION}")
    try:
        commands.follow(*wheel, how_far=_how_far)
    except errors.ClusterError as error:
        raise NotBuilt(f"ggml cannot be built: {error}") from error
    made = folder / "made"
    made.mkdir()
    with zipfile.ZipFile(next((folder / "wheel").glob("*.whl"))) as packed:
        for name in packed.namelist():
            if ".so" in Path(name).name:
                (made / Path(name).name).write_bytes(packed.read(name))
    return made


def _how_far(said: Sequence[str]) -> str:
    steps = [found[1] for line in said if (found := re.search(r"\[(\d+/\d+)\]", line))]
    return f"{steps[-1]} steps of the build" if steps else "its source is fetched and made ready"
