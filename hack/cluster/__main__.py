"""`python3 -m hack.cluster <verb>`; results go to stdout, what happens meanwhile to stderr."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from hack.cluster import build, cluster, errors, images, lifecycle, nodes, pin, processes, requirements, state


def main() -> int:
    try:
        options = _parser().parse_args()
        options.act(options)
    except errors.ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m hack.cluster", description="A real Kubernetes on this machine.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    lacks = _verb(verbs, "requirements", "name what this machine lacks", _requirements)
    lacks.add_argument("--install", action="store_true", help="install what Debian's packages bring")
    lacks.add_argument("--tests", action="store_true", help="also what tests alone need")
    for verb, told, act in (
        ("build", "build all programs into the cache", _build),
        ("up", "bring an instance up", _up),
    ):
        _verb(verbs, verb, told, act).add_argument(
            "--kubernetes", type=build.named, default=build.KUBERNETES, metavar="VERSION", help="such as 1.36"
        )
    up = _named(verbs.choices["up"])
    up.add_argument("--feature-gates", default="", metavar="NAME=true,...", help="of all its programs")
    up.add_argument("--nodes", type=int, default=2, metavar="N")
    up.add_argument("--cards", type=_counts, default=(4, 0), metavar="N,N", help="cards of each node (default 4,0)")
    which = _verb(verbs, "down", "take instances down and leave nothing", _down).add_mutually_exclusive_group(
        required=True
    )
    which.add_argument("--name")
    which.add_argument("--all", action="store_true")
    _verb(verbs, "status", "list instances", _status).add_argument(
        "-o", "--output", choices=("text", "json"), default="text"
    )
    inside = _on_node(_verb(verbs, "node-exec", "run a command on a node", _node_exec))
    inside.add_argument("command", nargs="+", metavar="-- COMMAND")
    for verb in ("stop-kubelet", "start-kubelet", "restart-kubelet", "restart-containerd"):
        one = _on_node(_verb(verbs, verb, f"{verb.replace('-', ' the ')} of a node", _act_on_node))
        one.set_defaults(method=verb.replace("-", "_"))
    for verb in ("stop-apiserver", "start-apiserver"):
        whole = _named(_verb(verbs, verb, f"{verb.split('-')[0]} the API server", _act_on_control_plane))
        whole.set_defaults(method=verb.replace("-", "_"))
    another = _verb(
        verbs, "pin", "add a version of Kubernetes to those that can be built", lambda o: print(pin.pin(o.version))
    )
    another.add_argument("version")
    load = _named(_verb(verbs, "load-image", "import an image archive on every node", _load_image))
    load.add_argument("archive", type=Path)
    _verb(verbs, "base-image", "make the Debian base of the driver's image", lambda _: print(images.base_image()))
    image = _verb(verbs, "image", "build the driver's image from the project's Dockerfile", _image)
    image.add_argument("--context", type=Path, default=Path.cwd(), help="the project's checkout (default: here)")
    image.add_argument("--tag", required=True)
    return parser


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    told: str,
    act: Callable[[argparse.Namespace], object],
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=told, description=told)
    parser.set_defaults(act=act)
    return parser


def _named(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--name", required=True, help="the instance")
    return parser


def _on_node(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    _named(parser).add_argument("--node", required=True, help="node1, node2, ...")
    return parser


def _counts(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _found(options: argparse.Namespace) -> cluster.Cluster:
    found = cluster.Cluster.find(options.name)
    if found is None:
        raise errors.ClusterError(f"{options.name} is not up, only {', '.join(state.names()) or 'none'}")
    return found


def _act_on_node(options: argparse.Namespace) -> None:
    getattr(_found(options), options.method)(options.node)


def _act_on_control_plane(options: argparse.Namespace) -> None:
    getattr(_found(options), options.method)()


def _requirements(options: argparse.Namespace) -> None:
    if options.install:
        requirements.install(tests=options.tests)
    requirements.check()
    print("nothing is missing")


def _build(options: argparse.Namespace) -> None:
    requirements.check()
    print(build.build(options.kubernetes))


def _up(options: argparse.Namespace) -> None:
    up = cluster.Cluster.up(
        options.name,
        nodes=options.nodes,
        cards=options.cards,
        kubernetes=options.kubernetes,
        feature_gates=options.feature_gates,
    )
    print(f"export KUBECONFIG={up.kubeconfig} PATH={up.bin}:$PATH")


def _down(options: argparse.Namespace) -> None:
    for name in state.names() if options.all else (options.name,):
        lifecycle.down(name)


def _status(options: argparse.Namespace) -> None:
    found = [_describe(instance) for instance in map(state.load, state.names()) if instance]
    if options.output == "json":
        print(json.dumps(found, indent=1))
        return
    print("\n\n".join(map(_table, found)) or "no instance")


def _table(described: dict[str, object]) -> str:
    """One line a fact; a fact of several parts has one line for each."""
    lines = []
    for key, value in described.items():
        parts = [f"{name} {part}" for name, part in value.items()] if isinstance(value, dict) else [value]
        lines += [f"{key if part is parts[0] else '':12} {part}" for part in parts]
    return "\n".join(lines)


def _describe(instance: state.Instance) -> dict[str, object]:
    alive = {name: processes.running(instance.directory, name) for name in processes.known(instance.directory)}
    return {
        "name": instance.name,
        "up": instance.ready and all(alive.values()),
        "kubernetes": instance.kubernetes,
        "kubeconfig": str(instance.kubeconfig),
        "bin": str(instance.bin),
        "api": instance.addresses.api_url,
        "nodes": {node.name: f"{instance.addresses.node(node.index)}, {node.cards} cards" for node in instance.nodes},
        "pids": alive,
    }


def _node_exec(options: argparse.Namespace) -> None:
    found = _found(options)
    words = (*nodes.entering(found.instance, found.instance.node(options.node)), *options.command)
    os.execvp(words[0], words)


def _load_image(options: argparse.Namespace) -> None:
    _found(options).load_image(options.archive)


def _image(options: argparse.Namespace) -> None:
    print(images.build_driver_image(options.context, options.tag))


if __name__ == "__main__":
    sys.exit(main())
