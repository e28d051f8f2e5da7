"""The two images that pods of tests need: a pause image and busybox, made of the machine's own busybox.

They are archives in the user's cache, named after what went into them, and imported on each node.
"""

import hashlib
import platform
from pathlib import Path

from hack.cluster import archives, commands, paths

PAUSE = "registry.local/pause:1"
BUSYBOX = "registry.local/busybox:1"

_BUSYBOX = "/bin/busybox"


def both() -> tuple[Path, Path]:
    """Archives of the pause and the busybox image, made where they are missing."""
    binary = Path(_BUSYBOX).read_bytes()
    applets = commands.run(_BUSYBOX, "--list").split()
    key = hashlib.sha256(binary + Path(archives.__file__).read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16]
    directory = paths.cache() / "images"
    targets = (directory / f"pause-{key}.tar", directory / f"busybox-{key}.tar")
    if not all(target.exists() for target in targets):
        layer = archives.tar(_tree(binary, applets))
        wanted = ((PAUSE, ("/bin/sleep", "infinity")), (BUSYBOX, ("/bin/sh",)))
        for target, (reference, command) in zip(targets, wanted, strict=True):
            archives.store(target, archives.image(reference, layer, command, platform.machine()))
    return targets


def _tree(binary: bytes, applets: list[str]) -> tuple[archives.Entry, ...]:
    people = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
    return (
        *(archives.directory(name) for name in ("bin", "dev", "etc", "proc", "root", "run", "sys", "var")),
        archives.directory("tmp", 0o1777),
        archives.file("etc/passwd", people.encode()),
        archives.file("etc/group", b"root:x:0:\nnogroup:x:65534:\n"),
        archives.file("bin/busybox", binary, 0o755),
        *(archives.link(f"bin/{applet}", "busybox") for applet in sorted(applets) if applet != "busybox"),
    )
