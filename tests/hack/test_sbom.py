"""The list of what is in the image."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from hack import sbom


def a_wheel(folder: Path, name: str, *lines: str) -> Path:
    path = folder / f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
    text = "\n".join(("Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *lines, "", "words"))
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name.replace('-', '_')}-1.0.dist-info/METADATA", text)
    return path


def test_each_wheel_is_named_with_version_hash_and_licence(tmp_path: Path) -> None:
    a_wheel(tmp_path, "elastic-gpu", "License-Expression: Apache-2.0")
    other = a_wheel(tmp_path, "other", "Classifier: License :: OSI Approved :: MIT License")
    found = sbom.document(tmp_path)
    assert found["metadata"]["component"]["licenses"] == [{"license": {"name": "Apache-2.0"}}]
    assert found["components"] == [
        {
            "type": "library",
            "bom-ref": "pkg:pypi/other@1.0",
            "name": "other",
            "version": "1.0",
            "purl": "pkg:pypi/other@1.0",
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(other.read_bytes()).hexdigest()}],
            "licenses": [{"license": {"name": "MIT License"}}],
        }
    ]
    assert sbom.document(tmp_path) == found


def test_a_folder_without_our_wheel_is_refused(tmp_path: Path) -> None:
    a_wheel(tmp_path, "other")
    with pytest.raises(ValueError, match="holds no wheel of elastic-gpu"):
        sbom.document(tmp_path)
