"""A host beside the nodes: on their network, and no part of the cluster. One an instance.

Like a node it has a network of its own and its own /run, /var/lib and /var/log, from its directory; what runs there is in
the control plane's group, so that taking the instance down needs to know nothing of it.
"""

from dataclasses import dataclass
from pathlib import Path

from hack.cluster import cgroups, commands, controlplane, errors, network, nodes, processes, state

NAME = "guest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """One that is up."""

    instance: state.Instance

    @property
    def address(self) -> str:
        return self.instance.addresses.guest

    def path(self, inside: str) -> Path:
        """Where this machine sees a file of its own."""
        return nodes.seen_from_outside(self.instance.directory / NAME, inside)

    @property
    def entering(self) -> tuple[str, ...]:
        """The words before a command that is to run there."""
        keeper = processes.running(self.instance.directory, NAME)
        if keeper is None:
            raise errors.ClusterError(f"the guest of {self.instance.name} is not up")
        return processes.entering(keeper, mounts=True)

    def run(self, *argv: str) -> str:
        """Run a command there and return what it printed."""
        return commands.run(*self.entering, *argv)

    def start(self, program: str, *argv: str) -> None:
        """Start a program that stays; one that runs already is left alone."""
        processes.start(
            processes.Program(
                directory=self.instance.directory,
                name=_name(program),
                argv=argv,
                group=_group(self.instance),
                wrapper=self.entering,
            )
        )

    def stop(self, program: str) -> None:
        processes.stop(self.instance.directory, _name(program))

    def runs(self, program: str) -> bool:
        return processes.running(self.instance.directory, _name(program)) is not None

    def last_words(self, program: str) -> str:
        return processes.tail(self.instance.directory / "logs" / f"{_name(program)}.log")


def up(instance: state.Instance) -> Guest:
    """Bring it up, or complete what a crash left; repeatable."""
    keeper = processes.running(instance.directory, NAME)
    if keeper is None or not _wired(keeper):
        processes.stop(instance.directory, NAME)
        for name in ("run", "lib", "log"):
            (instance.directory / NAME / name).mkdir(parents=True, exist_ok=True)
        network.wire_guest(instance, nodes.start_apart(instance, NAME, _group(instance)), controlplane.keeper(instance))
    return Guest(instance=instance)


def _wired(keeper: int) -> bool:
    try:
        return "default" in commands.run(*processes.entering(keeper, mounts=False), "ip", "-4", "route")
    except errors.ClusterError:
        return False


def _group(instance: state.Instance) -> Path:
    return cgroups.leaf(controlplane.group(instance))


def _name(program: str) -> str:
    return f"{NAME}.{program}"
