"""`kubectl egpu`: which pod holds which card, what is left of each, and what is wrong.

    command line --> commands --> exit code

What a command needs is imported when it runs. Flags of kubectl's own go along with every question that is asked.
"""

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cli import flags

if TYPE_CHECKING:
    from cli import commands


def main() -> None:
    """The entry point `kubectl-egpu`, which kubectl finds in PATH as `kubectl egpu`."""
    gc.disable()  # it ends within seconds, and a large cluster is a million objects that stay
    try:
        code = _run(flags.with_command(sys.argv[1:]))
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

        return completion.complete(arguments[1:], flags.COMMANDS)
    given = flags.parser().parse_args(arguments)
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
        way=kubectl.Kubectl(flags.of_kubectl(given)),
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
        way=kubectl.Kubectl(flags.of_kubectl(given)),
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


if __name__ == "__main__":
    main()
