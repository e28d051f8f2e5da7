"""How clients of remote cards are set up, as data: which variable says where the card is, and how it is reached.

A profile is named by the pool with each lease. One that is not known, or that cannot keep strangers out, is refused:
whoever reaches a remote card's server without proof of who he is would own the card.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from api import errors

MTLS = "mtls"
DIRECTORY = "/run/elastic-gpu"
"""Where credentials are seen in a container: a directory for each request of each claim below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """`endpoints`: the variable that lists host:port of all cards. `most`: how many of them it takes. `native`: the client
    itself shows a certificate, from the directory that `credentials` names; else something in front of it has to.
    """

    name: str
    endpoints: str
    most: int
    native: bool
    credentials: str = ""


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            name="fake",
            endpoints="REMOTE_GPU_ENDPOINTS",
            most=64,
            native=True,
            credentials="REMOTE_GPU_CREDENTIALS",
        ),
        Profile(name="lupine", endpoints="LUPINE_SERVER", most=16, native=False),
        Profile(name="cricket", endpoints="REMOTE_GPU_ADDRESS", most=1, native=False),
        Profile(name="ggml-rpc", endpoints="GGML_RPC_SERVERS", most=64, native=False),
    )
}


def chosen(
    name: str, auth_modes: Sequence[str], count: int, *, insecure: bool, relay: bool, where: str
) -> tuple[Profile, bool]:
    """The profile of a request's cards, and whether a relay has to stand before them. Raises Invalid where they cannot
    be had safely.
    """
    profile = PROFILES.get(name)
    if profile is None:
        raise errors.Invalid(f"{where}: client profile {name!r} is not known here; known: {', '.join(PROFILES)}")
    if count > profile.most:
        raise errors.Invalid(f"{where}: {count} cards, and clients of profile {name} take {profile.most} at most")
    if MTLS not in auth_modes:
        if insecure:
            return profile, False
        raise errors.Invalid(
            f"{where}: the pool's server asks nobody who he is; set allowInsecure on the RemotePool if its network is "
            "yours alone"
        )
    if not profile.native and not relay:
        raise errors.Invalid(
            f"{where}: clients of profile {name} show no certificate, which the pool asks for; the chart's remote.relay "
            "puts a relay before them"
        )
    return profile, not profile.native
