"""What is in the image, for who has to know: `python -m hack.sbom dist/wheels > sbom.json`, as CycloneDX 1.6.

wheels --> name, version, licence from their metadata; SHA-256 of each file --> components

The image installs from that directory alone and has no network, so the list is complete but for its base.
"""

import argparse
import email.parser
import hashlib
import json
import sys
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

_PRODUCT = "elastic-gpu"


def document(wheels: Path) -> dict[str, Any]:
    """The same for the same files: no time, no serial number. Raises ValueError where there is no wheel, or not ours."""
    found = {component["name"]: component for path in sorted(wheels.glob("*.whl")) for component in [_component(path)]}
    product = found.pop(_PRODUCT, None)
    if product is None:
        raise ValueError(f"{wheels} holds no wheel of {_PRODUCT}; make them as the Dockerfile says")
    components = sorted(found.values(), key=lambda component: str(component["name"]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**product, "type": "application"}},
        "components": components,
    }


def _component(path: Path) -> dict[str, Any]:
    about = _metadata(path)
    name, version = about["Name"], about["Version"]
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    licence = about["License-Expression"] or next(
        (text.rpartition(":: ")[2] for text in about.get_all("Classifier", ()) if text.startswith("License ::")), ""
    )
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
    } | ({"licenses": [{"license": {"name": licence}}]} if licence else {})


def _metadata(path: Path) -> Message:
    with zipfile.ZipFile(path) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1)
        return email.parser.Parser().parsestr(wheel.read(name).decode(), headersonly=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="sbom", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("wheels", type=Path)
    try:
        print(json.dumps(document(parser.parse_args().wheels), indent=1))
    except ValueError as error:
        sys.exit(f"sbom: {error}")


if __name__ == "__main__":
    main()
