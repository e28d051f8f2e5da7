"""What the command line may say: commands, flags, and which of them kubectl is given.

Imported at every start, so it imports nothing but argparse.
"""

import argparse
from collections.abc import Sequence
from typing import Any

COMMANDS = {
    "status": "the whole cluster: sums by model, class, namespace and workload type, and what is wrong (the default)",
    "cards": "every card: its state, what is free of it, and the pods that hold it",
    "card": "one card, by name, UUID or the beginning of it: every holder, with pod, container, request and time",
    "nodes": "cards by node, and whether node and driver answer",
    "pods": "pods with cards, and why a pod waits for one",
    "claims": "claims with the cards, nodes and pods that they have",
    "pools": "remote pools: whether they answer, and their cards by state",
    "leases": "leases of remote cards: claim, pods and node that each is for, and its phase",
    "classes": "classes: how many cards match, are held and are waited for",
    "top": "what is used of each card beside what is booked, or of each claim (top claims)",
    "cordon": "keep new claims off one card: --evict ends the pods that have it",
    "uncordon": "let claims have the card again",
    "release": "free a card that was released by its claim and is kept back (reclaimPolicy: Retain)",
    "doctor": "what is set up wrong in the cluster, and what to do; exit code 0 nothing, 1 something, 2 it cannot be told",
    "explain": "why a pod or claim has no card: verdict, chain, what rules out how many cards, the nearest misses",
    "fit": "how many copies of a pod, claim, template or of plain numbers fit, where, and what stops the next one",
    "claim": "write a ResourceClaimTemplate for a workload type or a class: --count cards, or shares of --cores and --memory",
    "translate": "what manifests that ask for cards by old names become, read from files, without a cluster",
    "completion": "how to have the shell complete all this",
}
_KUBECTL_FLAGS = (
    "kubeconfig", "context", "cluster", "user", "server", "token", "as", "as-group", "as-uid", "request-timeout",
    "certificate-authority", "client-certificate", "client-key", "tls-server-name", "cache-dir",
)  # fmt: skip
_TAKE_VALUE = (
    "-f",
    "--filename",
    "--workload-type",
    "--class",
    "--count",
    "--cores",
    "--memory",
    "--replicas",
    "-n",
    "-l",
    "-o",
    "-s",
    "--namespace",
    "--selector",
    "--output",
    "--color",
    "--node",
)
_EXAMPLES = {
    "card": "card gpu-8a1f6c52",
    "pods": "pods -A",
    "top": "top claims --node gpu-a1",
    "cordon": "cordon gpu-8a1f6c52 --evict",
    "explain": "explain pod/train-1 -n research",
    "fit": "fit --class inference.elasticgpu.io --cores 25 --memory 20Gi --replicas 3",
    "claim": "claim inference --cores 25 --memory 20Gi | kubectl apply -f -",
    "translate": "translate -f old.yaml | kubectl apply -f -",
}
_OF_TABLES = ("-A", "--no-headers", "--color", "-w")
_HIDDEN = {
    **dict.fromkeys(("explain", "fit", "claim"), _OF_TABLES),
    **dict.fromkeys(("cordon", "uncordon", "release"), ("-n", "-o", *_OF_TABLES)),
    "translate": ("-n", "-q", *_OF_TABLES),
    "completion": ("-n", "-o", "-q", *_OF_TABLES),
}
"""Flags that mean nothing to a command: taken all the same, and not spoken of."""
_ABOUT = "Which pod holds which card, what is left of each, why a pod waits, and what is wrong."
_EXIT = "exit codes: 0 answered, 1 what was asked for by name is not there, 2 it cannot be told, 130 interrupted"


def with_command(arguments: Sequence[str]) -> Sequence[str]:
    """Flags may stand before the command, and no command is `status`."""
    for index, word in enumerate(arguments):
        after_flag = index and (
            arguments[index - 1] in _TAKE_VALUE or arguments[index - 1].removeprefix("--") in _KUBECTL_FLAGS
        )
        if word in COMMANDS and not after_flag:
            return [word, *arguments[:index], *arguments[index + 1 :]]
        if not word.startswith("-") and not after_flag:
            return arguments
    if arguments and arguments[0] in ("-h", "--help"):
        return arguments
    return ["status", *arguments]


def of_kubectl(given: argparse.Namespace) -> list[str]:
    found = [f"--{flag}={value}" for flag in _KUBECTL_FLAGS for value in getattr(given, flag.replace("-", "_"))]
    return found + (["--insecure-skip-tls-verify"] if given.insecure_skip_tls_verify else [])


def parser() -> argparse.ArgumentParser:
    common = {hidden: _common(hidden) for hidden in {(), *_HIDDEN.values()}}
    found = argparse.ArgumentParser(prog="kubectl egpu", description=_ABOUT, epilog=_EXIT)
    commands = found.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        example = f"; for example: kubectl egpu {_EXAMPLES[name]}" if name in _EXAMPLES else ""
        parents = [common[_HIDDEN.get(name, ())]]
        command = commands.add_parser(name, help=text, description=text + example, parents=parents, epilog=_EXIT)
        _add_options(command, name)
        if name == "translate":
            _add_translation(command)
        if name in ("pods", "claims", "cards", "nodes"):
            whose = "those with these labels" if name in ("pods", "claims") else "those of nodes with these labels"
            command.add_argument("-l", "--selector", default="", help=whose)
        if name in ("explain", "fit"):
            _add_question(command, fit=name == "fit")
    return found


def _common(hidden: Sequence[str]) -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)

    def add(*flags: str, help: str, **more: Any) -> None:  # noqa: A002  argparse's own word
        common.add_argument(*flags, help=argparse.SUPPRESS if flags[0] in hidden else help, **more)

    add("-n", "--namespace", default="", help="pods and claims of this namespace")
    add("-A", "--all-namespaces", action="store_true", help="pods and claims of all namespaces")
    forms = ["table", "wide", "json", "yaml", "name"]
    add("-o", "--output", default="table", choices=forms, metavar="FORM", help=", ".join(forms))
    add("--no-headers", action="store_true", help="no line with the columns' titles")
    add("--color", default="auto", choices=["auto", "always", "never"], help="NO_COLOR is heeded too")
    add("-w", "--watch", action="store_true", help="look again every two seconds, on a terminal")
    add("-q", "--quiet", action="store_true", help="no warnings on stderr")
    kubectls = common.add_argument_group("kubectl's own flags, passed on to it")
    for flag in _KUBECTL_FLAGS:
        short = ["-s"] if flag == "server" else []
        kubectls.add_argument(*short, f"--{flag}", action="append", default=[], help=argparse.SUPPRESS)
    kubectls.add_argument("--insecure-skip-tls-verify", action="store_true", help=argparse.SUPPRESS)
    kubectls.description = " ".join(f"--{flag}" for flag in _KUBECTL_FLAGS)
    return common


def _add_options(command: argparse.ArgumentParser, name: str) -> None:
    if name in ("card", "cordon", "uncordon", "release"):
        command.add_argument("name", metavar="NAME", help="of a card, its UUID or the beginning of either")
    if name == "cordon":
        command.add_argument("--evict", action="store_true", help="end the pods that have the card")
    if name == "cards":
        command.add_argument("--remote", action="store_true", help="those of remote pools alone, with their leases")
    if name == "top":
        whose = "cards, unless claims is given"
        command.add_argument(
            "name", metavar="WHAT", nargs="?", default="cards", choices=["cards", "claims"], help=whose
        )
        command.add_argument("--node", action="append", default=[], help="of this node; may be repeated")
    if name == "claim":
        command.add_argument("name", metavar="TYPE", help="a workload type such as training, or a class")
        command.add_argument("--count", type=int, default=1, help="how many cards or shares")
        command.add_argument("--cores", type=int, help="percent of a card, for a share")
        command.add_argument("--memory", help="such as 20Gi, for a share")
        command.add_argument("--title", default="", help="the template's name")


def _add_question(command: argparse.ArgumentParser, *, fit: bool) -> None:
    what = "pod/NAME, claim/NAME or template/NAME; a name alone is a pod"
    command.epilog = "exit codes: 0 it fits or has its cards, 1 it does not or is not there, 2 it cannot be told"
    if not fit:
        command.add_argument("name", metavar="WHAT", help=what)
        return
    command.add_argument("name", metavar="WHAT", nargs="?", default="", help=what)
    command.add_argument("-f", "--filename", dest="files", action="append", default=[], help="manifests; - for stdin")
    command.add_argument("--class", dest="class_name", default="", help="plain numbers: cards or shares of this class")
    command.add_argument("--count", type=int, default=1, help="cards or shares in one claim")
    command.add_argument("--cores", type=int, help="percent of a card")
    command.add_argument("--memory", help="such as 20Gi")
    command.add_argument("--replicas", type=int, default=0, help="how many copies are wanted; else all are counted")


def _add_translation(command: argparse.ArgumentParser) -> None:
    command.add_argument("-f", "--filename", action="append", required=True, help="a file of manifests; - for stdin")
    command.add_argument("--workload-type", default="", help="the type of pods that have no such label")
    command.add_argument("--whole-class", default="", help="for whole cards; training.elasticgpu.io unless given")
    command.add_argument("--share-class", default="", help="for shares; inference.elasticgpu.io unless given")
    command.add_argument(
        "--card-memory", default="", help="what a card has, such as 80Gi, for amounts in parts of a card"
    )
    command.add_argument("--gpushare-unit", default="GiB", choices=["GiB", "MiB"], help="of aliyun.com/gpu-mem")
