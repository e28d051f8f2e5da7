"""kubectl on one cluster, for the demo and the end-to-end tests: what a user types, with its own words on failure."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.cluster import paths


class KubectlError(Exception):
    """kubectl said no; the text is the command and what it wrote to stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    program: str
    kubeconfig: Path

    def __call__(self, *arguments: str, text: str = "", limit_s: float = 300) -> str:
        """Run it and return its output; `text` is what it reads from `-f -`."""
        done = subprocess.run(
            [self.program, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=limit_s,
            env=paths.environment(KUBECONFIG=str(self.kubeconfig)),
            check=False,
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        """The items of `kubectl get <arguments>`; a single object is a list of one."""
        found = json.loads(self("get", *arguments, "-o", "json", "--ignore-not-found") or "{}")
        items: list[dict[str, Any]] = found.get("items", [found] if found else [])
        return items
