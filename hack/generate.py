"""Generated files from their sources, so that a check can tell which ones are stale. `make generate`.

    api/protos/*.proto -> messages, their types, and stubs (the stubs serve tests and benchmarks only)
    api/crds.py        -> charts/elastic-gpu/crds/*.yaml

Each generator returns path -> text; nothing but `main` writes.
"""

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml
from grpc_tools import protoc

from api import crds as definitions
from api import schema

ROOT = Path(__file__).resolve().parents[1]
Texts = Mapping[Path, str]


def protos() -> Texts:
    """What protoc makes of our protos. Compiled under their own path: two files of one name cannot be loaded together."""
    sources = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "api/protos").glob("*.proto"))]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", f"-I{ROOT}", *outputs, *sources]):
            sys.exit("protoc refuses api/protos, see above")
        made = Path(folder)
        return {ROOT / path.relative_to(made): path.read_text() for path in made.rglob("*.py*")}


def crds() -> Texts:
    """Our CustomResourceDefinitions. Stops where a schema is not structural: the API server would not prune by it."""
    texts = {}
    for crd in definitions.crds():
        for version in crd["spec"]["versions"]:
            if faults := list(schema.faults(version["schema"]["openAPIV3Schema"])):
                sys.exit(f"{crd['metadata']['name']} is not structural: " + "; ".join(faults))
        text = yaml.safe_dump(crd, sort_keys=False, width=120)
        head = "# Generated from the types in api/ by hack/generate.py. Do not edit.\n"
        texts[ROOT / f"charts/elastic-gpu/crds/{crd['spec']['names']['plural']}.yaml"] = head + text
    return texts


GENERATORS: tuple[Callable[[], Texts], ...] = (protos, crds)


def stale() -> list[str]:
    """Files that differ from what their sources say."""
    return [
        str(path.relative_to(ROOT))
        for generator in GENERATORS
        for path, text in sorted(generator().items())
        if not path.exists() or path.read_text() != text
    ]


def main() -> None:
    for generator in GENERATORS:
        for path, text in generator().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


if __name__ == "__main__":
    main()
