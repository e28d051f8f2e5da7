"""Certificates as an API server meets them, and when they are renewed."""

import asyncio
import datetime
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as some

from api import errors
from webhook import certificates, rotation

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
HOST = "w.ns.svc"


def really_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


async def handshake(served: certificates.Pair, trusted: str, host: str = HOST) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificates.load(context, served.certificate, served.key)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    client = ssl.create_default_context(cadata=trusted)
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=host)
        writer.close()
    finally:
        server.close()
        await server.wait_closed()


async def test_who_trusts_the_authority_trusts_the_certificate_under_its_names_alone() -> None:
    pair = certificates.issue((HOST, f"{HOST}.cluster.local"), really_now(), DAY)
    await handshake(pair, pair.authority)
    await handshake(pair, pair.authority, f"{HOST}.cluster.local")
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(pair, pair.authority, "other.ns.svc")
    other = certificates.issue((HOST,), really_now(), DAY)
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(pair, other.authority)
    await handshake(pair, other.authority + pair.authority)


async def test_a_clock_that_is_hours_behind_is_no_trouble() -> None:
    pair = certificates.issue((HOST,), really_now() + datetime.timedelta(hours=20), DAY)
    await handshake(pair, pair.authority)


def test_expired_authorities_are_left_out_of_the_trust() -> None:
    old, new = (certificates.issue((HOST,), NOW, lifetime * DAY).authority for lifetime in (1, 9))
    assert certificates.still_valid(old + new, NOW + 2 * DAY) == (new,)
    assert certificates.still_valid("nonsense", NOW) == ()


def test_what_is_no_certificate_is_said() -> None:
    with pytest.raises(errors.Invalid, match="no certificate"):
        certificates.validity("nonsense")
    pair, other = (certificates.issue((HOST,), NOW, DAY) for _ in range(2))
    with pytest.raises(errors.Invalid, match="cannot be served"):
        certificates.load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), pair.certificate, other.key)


def state(age: float, *, staged: bool = False, trusted_for: float | None = None) -> rotation.State:
    """A certificate of 90 days, so many days old; the trust of the bundle so many seconds old."""
    start = NOW - datetime.timedelta(days=age)
    since = None if trusted_for is None else NOW - datetime.timedelta(seconds=trusted_for)
    return rotation.State(start=start, end=start + 90 * DAY, staged=staged, trusted_since=since)


@pytest.mark.parametrize(
    ("found", "step"),
    [
        (state(1), rotation.Step.KEEP),
        (state(59), rotation.Step.KEEP),
        (state(61), rotation.Step.STAGE),
        (state(61, staged=True), rotation.Step.KEEP),
        (state(61, staged=True, trusted_for=5), rotation.Step.KEEP),
        (state(61, staged=True, trusted_for=31), rotation.Step.SWITCH),
        (state(91), rotation.Step.REPLACE),
        (state(91, staged=True), rotation.Step.REPLACE),
        (state(-1), rotation.Step.REPLACE),
        (rotation.State(start=None, end=None, staged=False, trusted_since=None), rotation.Step.REPLACE),
    ],
)
def test_the_next_step(found: rotation.State, step: rotation.Step) -> None:
    assert rotation.step(found, NOW) is step


@given(some.lists(some.floats(0.1, 200_000), min_size=50, max_size=400), some.floats(0, 29))
def test_over_a_year_what_is_served_is_always_trusted_by_an_api_server_that_lags(
    pauses: list[float], lag_s: float
) -> None:
    """Served and trusted as numbers of pairs: an API server acts by the trust of `lag_s` ago."""
    now, issued = NOW, 1
    served, end, staged = 1, now + 90 * DAY, 0
    trust: list[tuple[datetime.datetime, frozenset[int]]] = [(now - DAY, frozenset({1}))]
    since: datetime.datetime | None = now
    for pause in pauses:
        now += datetime.timedelta(seconds=pause)
        found = rotation.State(start=end - 90 * DAY, end=end, staged=bool(staged), trusted_since=since)
        match rotation.step(found, now):
            case rotation.Step.STAGE:
                issued += 1
                staged = issued
                trust.append((now, frozenset({served, staged})))
                since = now
            case rotation.Step.SWITCH:
                served, staged, end = staged, 0, now + 90 * DAY
            case rotation.Step.REPLACE:
                raise AssertionError("it was renewed long before it expired")
            case rotation.Step.KEEP:
                pass
        seen = max(one for one in trust if one[0] <= now - datetime.timedelta(seconds=lag_s))
        assert served in seen[1]
