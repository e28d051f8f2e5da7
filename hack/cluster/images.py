"""The driver's image, built from the project's own Dockerfile without a registry.

    base          Debian with Python, by debootstrap, kept in a store of buildah's in the user's cache
    wheels        the project's, and those of its dependencies for the base's Python, in dist/wheels of a copy of the tree
    the archive   named after everything that went into it, so an unchanged tree builds nothing

Whatever Python runs this, the wheels are those of the base. The build itself needs no network.
"""

import hashlib
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from hack.cluster import commands, paths, progress, state

_SUITE, _PYTHON, _GLIBC_MINOR = "bookworm", "3.11", 36
_PACKAGES = "ca-certificates,python3"
_BASE = f"localhost/egpu-base:{_SUITE}-1"
_UNNEEDED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists")
_KEPT = 3


def build_driver_image(context: Path, tag: str) -> Path:
    """Return an archive with the image of the tree at `context` under this tag; an unchanged tree builds nothing."""
    context = context.resolve()
    directory = paths.cache() / "images"
    archive = directory / f"driver-{_key(context, tag)}.tar"
    with state.locked(paths.cache() / "buildah"):
        if not archive.exists():
            directory.mkdir(parents=True, exist_ok=True)
            _ensure_base()
            trees = paths.cache() / "buildah/trees"
            shutil.rmtree(trees, ignore_errors=True)  # what a crash left
            trees.mkdir()
            with tempfile.TemporaryDirectory(dir=trees) as temporary:
                _build(context, Path(temporary), tag, archive)
            _prune(directory)
        archive.touch()
    return archive


def base_image() -> str:
    """The name of the Debian base in the store, made where it is missing."""
    with state.locked(paths.cache() / "buildah"):
        _ensure_base()
    return _BASE


def with_folder(archive: Path, tag: str, folder: Path, place: str) -> Path:
    """An archive under this tag of the image in `archive` with a folder of this machine at `place`."""
    names = "".join(f"{path.name} {path.stat().st_size}" for path in sorted(folder.iterdir()))
    key = hashlib.sha256(f"{archive.name} {tag} {place} {names}".encode()).hexdigest()[:16]
    made = archive.with_name(f"more-{key}.tar")
    with state.locked(paths.cache() / "buildah"):
        if not made.exists():
            container = _buildah("from", f"oci-archive:{archive}").strip()
            try:
                _buildah("copy", "--quiet", container, str(folder), place)
                _buildah("commit", "--quiet", container, tag)
            finally:
                _buildah("rm", container)
            fresh = made.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            _buildah("push", "--compression-format=zstd", tag, f"oci-archive:{fresh}:{tag}")
            fresh.replace(made)
    return made


def inputs(context: Path) -> tuple[Path, ...]:
    """The files of a tree that go into its image, by the project's own word on what it packs."""
    project = tomllib.loads((context / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    single = (context / name for name in ("Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "LICENSE"))
    packed = (path for package in packages for path in (context / package).rglob("*") if not _is_product(path))
    return tuple(sorted(path for path in (*single, *packed) if path.is_file()))


def _is_product(path: Path) -> bool:
    return not {"__pycache__", "build"}.isdisjoint(path.parts)


def _key(context: Path, tag: str) -> str:
    digest = hashlib.sha256(f"{_BASE} {_PYTHON} {tag}".encode() + Path(__file__).read_bytes())
    for path in inputs(context):
        digest.update(f"\0{path.relative_to(context)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _ensure_base() -> None:
    if _BASE in _buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
        return
    progress.say(f"making {_BASE}: once, about a minute")
    _buildah("rm", "--all")
    container = _buildah("from", "scratch").strip()
    root = Path(_buildah("mount", container).strip())
    commands.follow("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, root, how_far=_last)
    for name in _UNNEEDED:
        shutil.rmtree(root / name, ignore_errors=True)
    _buildah("commit", "--quiet", container, _BASE)
    _buildah("rm", container)


def _build(context: Path, temporary: Path, tag: str, archive: Path) -> None:
    progress.say(f"building {tag} from {context / 'Dockerfile'}")
    for path in inputs(context):
        copy = temporary / path.relative_to(context)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    _wheels(temporary)
    progress.say("  the image itself")
    store = (*_store(), "build", "--isolation=chroot", f"--build-arg=BASE={_BASE}", "--pull-never", f"--tag={tag}")
    commands.follow("buildah", *store, f"--file={temporary}/Dockerfile", temporary, how_far=_last)
    fresh = archive.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    _buildah("push", "--compression-format=zstd", tag, f"oci-archive:{fresh}:{tag}")
    _buildah("rmi", tag)
    fresh.replace(archive)
    progress.say(f"built {tag}: {archive.stat().st_size >> 20} MiB")


def _wheels(tree: Path) -> None:
    """Put the project's wheel and those of its dependencies, pip's among them, into dist/wheels of the tree."""
    into = tree / "dist/wheels"
    progress.say("  wheels of the project and of what it depends on")
    commands.run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", into, tree)
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(_GLIBC_MINOR, 16, -1)]
    target = (
        "--only-binary=:all:",
        "--implementation=cp",
        f"--python-version={_PYTHON}",
        *platforms,
        "--platform=manylinux2014_x86_64",
    )
    wheel = next(into.glob("*.whl"))
    commands.follow(sys.executable, "-m", "pip", "download", *target, "--dest", into, wheel, "pip", how_far=_last)


def _buildah(*arguments: str) -> str:
    return commands.run("buildah", *_store(), *arguments)


def _store() -> tuple[str, ...]:
    directory = paths.cache() / "buildah"
    return (f"--root={directory}/root", f"--runroot={directory}/run", "--storage-driver=vfs")


def _last(lines: Sequence[str]) -> str:
    return lines[-1][:100] if lines else "nothing said yet"


def _prune(directory: Path) -> None:
    archives: Iterable[Path] = sorted(
        directory.glob("driver-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    for old in tuple(archives)[_KEPT:]:
        old.unlink()
