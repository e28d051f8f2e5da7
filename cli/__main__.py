"""`kubectl egpu`: which pod holds which card, what is left of each, and what is wrong.

    command line --> commands --> exit code

What a command needs is imported when it runs. Flags of kubectl's own go along with every question that is asked.
"""

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli import commands

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
_EXIT = "exit codes: 0 answered, 1 what was asked for by name is not there, 2 it cannot be told, 130 interrupted"


def main() -> None:
    """The entry point `kubectl-egpu`, which kubectl finds in PATH as `kubectl egpu`."""
    gc.disable()  # it ends within seconds, and a large cluster is a million objects that stay
    try:
        code = _run(_with_command(sys.argv[1:]))
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # whoever read it has enough
        sys.stderr.close()
        code = 0
    sys.exit(code)


def _run(arguments: Sequence[str]) -> int:
    if arguments[0] == "__complete":
        from cli import completion  # noqa: PLC0415

        return completion.complete(arguments[1:], COMMANDS)
    given = _parser().parse_args(arguments)
    if given.command == "completion":
        from cli import completion  # noqa: PLC0415

        return completion.explain()
    if given.command in _OWN_WAY:
        return _OWN_WAY[given.command](given)
    import datetime  # noqa: PLC0415
    import functools  # noqa: PLC0415

    from api import errors  # noqa: PLC0415
    from cli import commands, kubectl, settings, templates  # noqa: PLC0415

    clock = functools.partial(datetime.datetime.now, datetime.UTC)  # noqa: TID251  the one clock, handed on from here
    asked = commands.Asked(
        command=given.command,
        way=kubectl.Kubectl(_kubectl_flags(given)),
        output=settings.output(given.color),
        now=clock(),
        form=given.output,
        namespace=given.namespace,
        everywhere=given.all_namespaces,
        labels=getattr(given, "selector", ""),
        headers=not given.no_headers,
        quiet=given.quiet,
        name=getattr(given, "name", ""),
        nodes=getattr(given, "node", ()),
        evict=getattr(given, "evict", False),
        remote=getattr(given, "remote", False),
        title=getattr(given, "title", ""),
        size=templates.Size(
            count=getattr(given, "count", 1), cores=getattr(given, "cores", None), memory=getattr(given, "memory", None)
        ),
    )
    try:
        if given.watch:
            from cli import watching  # noqa: PLC0415

            return watching.follow(asked, _answering(given.command), clock)
        return _answering(given.command)(asked)
    except errors.ElasticGPUError as error:
        sys.stderr.write(f"{error}\n")
        return commands.UNTOLD


def _answering(command: str) -> "Callable[[commands.Asked], int]":
    """Each brings its own imports."""
    match command:
        case "top":
            from cli import top  # noqa: PLC0415

            return top.run
        case "cordon" | "uncordon" | "release":
            from cli import cordon  # noqa: PLC0415

            return cordon.run
        case "doctor":
            from cli import doctor  # noqa: PLC0415

            return doctor.run
        case _:
            from cli import commands  # noqa: PLC0415

            return commands.run


def _explain(given: argparse.Namespace) -> int:
    import datetime  # noqa: PLC0415

    from api import errors  # noqa: PLC0415
    from cli import explaining, kubectl  # noqa: PLC0415

    options = ("files", "class_name", "count", "cores", "memory", "replicas") if given.command == "fit" else ()
    asked = explaining.Asked(
        way=kubectl.Kubectl(_kubectl_flags(given)),
        now=datetime.datetime.now(datetime.UTC),  # noqa: TID251  handed on from here
        form=given.output,
        namespace=given.namespace,
        quiet=given.quiet,
        name=given.name,
        **{option: getattr(given, option) for option in options},
    )
    try:
        return explaining.fit(asked) if given.command == "fit" else explaining.explain(asked)
    except errors.ElasticGPUError as error:
        sys.stderr.write(f"{error}\n")
        return explaining.UNTOLD


def _translate(given: argparse.Namespace) -> int:
    from api import errors  # noqa: PLC0415
    from cli import translating  # noqa: PLC0415

    options = ("workload_type", "whole_class", "share_class", "card_memory", "gpushare_unit")
    form = "json" if given.output == "json" else "yaml"
    wanted = translating.Wanted(
        files=given.filename, form=form, **{option: getattr(given, option) for option in options}
    )
    try:
        return translating.translate(wanted)
    except errors.ElasticGPUError as error:
        sys.stderr.write(f"{error}\n")
        return 2


_OWN_WAY = {"translate": _translate, "explain": _explain, "fit": _explain}


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-n", "--namespace", default="", help="pods and claims of this namespace")
    common.add_argument("-A", "--all-namespaces", action="store_true", help="pods and claims of all namespaces")
    forms = ["table", "wide", "json", "yaml", "name"]
    common.add_argument("-o", "--output", default="table", choices=forms, metavar="FORM", help=", ".join(forms))
    common.add_argument("--no-headers", action="store_true", help="no line with the columns' titles")
    common.add_argument("--color", default="auto", choices=["auto", "always", "never"], help="NO_COLOR is heeded too")
    common.add_argument("-w", "--watch", action="store_true", help="look again every two seconds, on a terminal")
    common.add_argument("-q", "--quiet", action="store_true", help="no warnings on stderr")
    kubectls = common.add_argument_group("kubectl's own flags, passed on to it")
    for flag in _KUBECTL_FLAGS:
        short = ["-s"] if flag == "server" else []
        kubectls.add_argument(*short, f"--{flag}", action="append", default=[], help=argparse.SUPPRESS)
    kubectls.add_argument("--insecure-skip-tls-verify", action="store_true", help=argparse.SUPPRESS)
    kubectls.description = " ".join(f"--{flag}" for flag in _KUBECTL_FLAGS)
    parser = argparse.ArgumentParser(prog="kubectl egpu", description=__doc__.partition("\n")[0], epilog=_EXIT)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text, parents=[common], epilog=_EXIT)
        _add_options(command, name)
        if name == "translate":
            _add_translation(command)
        if name in ("pods", "claims", "cards", "nodes"):
            whose = "those with these labels" if name in ("pods", "claims") else "those of nodes with these labels"
            command.add_argument("-l", "--selector", default="", help=whose)
        if name in ("explain", "fit"):
            _add_question(command, fit=name == "fit")
    return parser


def _add_options(command: argparse.ArgumentParser, name: str) -> None:
    if name in ("card", "cordon", "uncordon", "release"):
        command.add_argument("name", metavar="NAME")
    if name == "cordon":
        command.add_argument("--evict", action="store_true", help="end the pods that have the card")
    if name == "cards":
        command.add_argument("--remote", action="store_true", help="those of remote pools alone, with their leases")
    if name == "top":
        command.add_argument("name", metavar="WHAT", nargs="?", default="cards", choices=["cards", "claims"])
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


def _with_command(arguments: Sequence[str]) -> Sequence[str]:
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


def _kubectl_flags(given: argparse.Namespace) -> list[str]:
    found = [f"--{flag}={value}" for flag in _KUBECTL_FLAGS for value in getattr(given, flag.replace("-", "_"))]
    return found + (["--insecure-skip-tls-verify"] if given.insecure_skip_tls_verify else [])


if __name__ == "__main__":
    main()
