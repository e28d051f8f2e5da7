"""Image archives in the OCI layout, made of files at hand: what a container runtime imports where no registry is.

The same content gives the same bytes, so an archive can be named after what went into it.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

Entry = tuple[tarfile.TarInfo, bytes]


def directory(name: str, mode: int = 0o755) -> Entry:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    return entry, b""


def file(name: str, content: bytes, mode: int = 0o644) -> Entry:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size = mode, len(content)
    return entry, content


def link(name: str, target: str) -> Entry:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
    return entry, b""


def tar(entries: Iterable[Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry, content in entries:
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def image(reference: str, layer: bytes, command: tuple[str, ...], machine: str) -> bytes:
    """An archive with one image of one layer."""
    settings = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], "Cmd": list(command)}
    config = _json({
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}"]},
    })  # fmt: skip
    manifest = _json({
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _descriptor(_CONFIG, config),
        "layers": [_descriptor(_LAYER, layer)],
    })  # fmt: skip
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
    index = _json({"schemaVersion": 2, "manifests": [{**_descriptor(_MANIFEST, manifest), "annotations": names}]})
    blobs = (file(f"blobs/sha256/{_digest(blob)}", blob) for blob in (layer, config, manifest))
    return tar((file("oci-layout", _json({"imageLayoutVersion": "1.0.0"})), file("index.json", index), *blobs))


def store(path: Path, content: bytes) -> Path:
    """Write an archive so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(content)
    return fresh.replace(path)


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": f"sha256:{_digest(blob)}", "size": len(blob)}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()
