"""The part of the `kubernetes` package that we use: where the API server is, who we are there, and its TLS context.

The package's `__init__` files import all of it, models, synchronous client, informers and websockets: 19 MiB and 0.2 s
for every process, and none of it used here. So while our few modules are imported, hollow parents stand in for the full
ones; they are gone afterwards, and whoever imports `kubernetes` later gets the whole. The version is pinned to the letter
in pyproject.toml for this file's sake; `tests/kube/test_credentials.py` says when a new one does not fit.
"""

import contextlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

_PARENTS = ("kubernetes", "kubernetes.aio", "kubernetes.aio.client", "kubernetes.aio.utils")


@contextlib.contextmanager
def _hollow_parents() -> Iterator[None]:
    hollow: dict[str, types.ModuleType] = {}
    for name in _PARENTS:
        if name in sys.modules:
            continue
        spec = importlib.util.find_spec(name)
        if spec is None or spec.submodule_search_locations is None:
            raise ImportError(f"{name} is not a package; the version of `kubernetes` is not the one of pyproject.toml")
        module: Any = types.ModuleType(name)
        module.__path__ = list(spec.submodule_search_locations)
        sys.modules[name] = hollow[name] = module
    try:
        yield
    finally:
        for name, module in hollow.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


with _hollow_parents():
    from kubernetes.aio.client import configuration, rest

    _client: Any = sys.modules["kubernetes.aio.client"]
    if not hasattr(_client, "ApiClient"):  # hollow: what its config modules ask for
        _client.Configuration, _client.ApiClient = configuration.Configuration, None
    from kubernetes.aio.config import config_exception, incluster_config, kube_config

Configuration = configuration.Configuration
ConfigException = config_exception.ConfigException
RESTClientObject = rest.RESTClientObject
load_incluster_config = incluster_config.load_incluster_config
load_kube_config = kube_config.load_kube_config
