"""Pins another version of Kubernetes: writes the module that `build` takes it from, for somebody who adds one.

Kubernetes' own module replaces its staging modules by folders; published, they are modules with the same minor and
patch version, so here each is replaced by that.
"""

import json
import re
from pathlib import Path

from hack.cluster import build, commands, errors, paths, progress


def pin(version: str) -> Path:
    """Write go.mod, go.sum and tools.go for this version, next to the others."""
    if not re.fullmatch(r"v1\.\d+\.\d+", version):
        raise errors.ClusterError(f"{version!r} is not a version of Kubernetes such as {build.KUBERNETES}")
    target = build.MODULES / "kubernetes" / version
    target.mkdir(exist_ok=True)
    progress.say(f"pinning Kubernetes {version} in {target}")
    published = json.loads(_go(target, "mod", "download", "-json", f"k8s.io/kubernetes@{version}"))
    upstream = Path(published["GoMod"]).read_text(encoding="utf-8")
    (target / "go.mod").write_text(module_file(version, upstream), encoding="utf-8")
    (target / "tools.go").write_bytes((build.MODULES / "kubernetes" / build.KUBERNETES / "tools.go").read_bytes())
    _go(target, "mod", "tidy")
    return target


def module_file(version: str, upstream: str) -> str:
    """The module that requires this version, made from the published one's own text."""
    staged = re.findall(r"^\s+(k8s\.io/\S+) => \./staging/", upstream, re.MULTILINE)
    go = re.search(r"^go .+$", upstream, re.MULTILINE)
    godebug = re.search(r"^godebug default=\S+$", upstream, re.MULTILINE)
    replaced = "".join(f"\t{name} => {name} v0.{version.removeprefix('v1.')}\n" for name in staged)
    parts = [
        "module elasticgpu.io/build/kubernetes",
        *(found.group() for found in (go, godebug) if found),
        f"require k8s.io/kubernetes {version}",
        f"replace (\n{replaced})",
    ]
    return "\n\n".join(parts) + "\n"


def _go(directory: Path, *arguments: str) -> str:
    return commands.run("go", *arguments, cwd=directory, env=paths.environment(GOWORK="off", GOFLAGS="-mod=mod"))
