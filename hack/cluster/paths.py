"""Where things lie on this machine, and the only reader of the environment.

Binaries and images go to the user's cache: they can be made again. Instances go to the user's state directory: they
name processes and namespaces that have to be taken down. Neither may lie where a node hides the machine's own
directories behind its private ones, since programs inside a node open both.
"""

import os
from pathlib import Path

from hack.cluster import errors

PRIVATE = ("/run", "/var/lib", "/var/log")
"""What each node has for itself; `/var/run` is a link to the first."""


def cache() -> Path:
    return _user_directory("XDG_CACHE_HOME", ".cache")


def clusters() -> Path:
    return _user_directory("XDG_STATE_HOME", ".local/state") / "clusters"


def failed() -> Path:
    """Where the logs of an instance that did not come up are kept."""
    return _user_directory("XDG_STATE_HOME", ".local/state") / "failed"


def environment(**more: str) -> dict[str, str]:
    """The caller's environment with some variables set anew."""
    return {**os.environ, **more}


def _user_directory(variable: str, default: str) -> Path:
    chosen = os.environ.get(variable)
    path = (Path(chosen) if chosen else Path.home() / default).resolve() / "elastic-gpu"
    if any(path.is_relative_to(private) for private in PRIVATE):
        raise errors.ClusterError(
            f"{path} is hidden inside the nodes: set {variable} to a directory outside /run, /var/lib and /var/log"
        )
    return path
