"""The plans of many pools: the same writes as when all are planned anew, and only what changed is read for them."""

import collections
import dataclasses

import hypothesis
import pytest
from hypothesis import strategies as st

from api.resource import Device, Pool, Taint
from kube import slices
from kube.plans import Plans
from kube.slices import Delete, Replace, Scope, SeenSlice

SCOPE = Scope(driver="remote.example.io")
NOTHING: frozenset[str] = frozenset()
TAINT = Taint(key="example.io/sick", effect="NoSchedule")
read: collections.Counter[str] = collections.Counter()


class Watched(SeenSlice):
    """A slice that counts how often it is read, by its pool."""

    @property
    def spec(self) -> slices.JSON:
        read[self.pool] += 1
        return SeenSlice.spec.fget(self)  # type: ignore[attr-defined, no-any-return]


class Server:
    """Keeps what is written; `turn` is what a publisher does with a plan."""

    def __init__(self, *pools: Pool) -> None:
        self.plans, self.held, self.version = Plans(), dict[str, SeenSlice](), 0
        while self.turn(*pools):
            pass
        read.clear()

    def turn(self, *pools: Pool, scope: Scope = SCOPE, dropped: frozenset[str] = NOTHING) -> list[slices.Write]:
        done = []
        for write in self.plans.writes(pools, tuple(self.held.values()), scope, dropped):
            self.version += 1
            if isinstance(write, Delete):
                del self.held[write.name]
            else:
                meta = {"uid": write.name} | write.body["metadata"] | {"resourceVersion": str(self.version)}
                seen = slices.seen(write.body | {"metadata": meta})
                fields = {field.name: getattr(seen, field.name) for field in dataclasses.fields(seen)}
                self.held[write.name] = Watched(**fields)
            done.append(write)
        return done


def a_pool(name: str, *, count: int = 200, tainted: int = 0) -> Pool:
    return Pool(
        name=name,
        devices=tuple(Device(name=f"d{n}", taints=(TAINT,) if n < tainted else ()) for n in range(count)),
    )


def test_for_one_changed_card_only_its_pools_slices_are_read_and_each_once_a_plan() -> None:
    pools = [a_pool(f"p{number}") for number in range(20)]
    server = Server(*pools)
    pools[7] = a_pool("p7", tainted=1)
    assert server.turn(*pools)
    assert read == {"p7": 2}
    read.clear()
    after = len([item for item in server.held.values() if item.pool == "p7"])
    assert server.turn(*pools) == []
    assert read == {"p7": after}, "what was written is looked at once"
    read.clear()
    assert server.turn(*pools) == []
    assert not read


def test_a_slice_that_somebody_altered_is_put_right_and_no_other_pool_is_read() -> None:
    pools = [a_pool(f"p{number}") for number in range(3)]
    server = Server(*pools)
    name = next(item.name for item in server.held.values() if item.pool == "p1")
    server.held[name] = dataclasses.replace(
        server.held[name], resource_version="9999", packed=slices.packed({"driver": "other"})
    )
    assert [(type(write), write.name) for write in server.turn(*pools)] == [(Replace, name)]
    assert set(read) == {"p1"}


@pytest.mark.parametrize(
    ("scope", "dropped"),
    [(Scope(driver="other.example.io"), NOTHING), (SCOPE, frozenset({"devices.taints"}))],
    ids=["owner", "what the server keeps"],
)
def test_who_publishes_and_what_the_server_keeps_are_reasons_to_plan_anew(
    scope: Scope, dropped: frozenset[str]
) -> None:
    pools = (a_pool("p0", tainted=1), a_pool("p1", tainted=1))
    server = Server(*pools)
    assert {write.name[-10:] for write in server.turn(*pools, scope=scope, dropped=dropped)} >= {
        slices.slice_name(scope, pool.name, 0)[-10:] for pool in pools
    }


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    st.lists(
        st.tuples(
            st.lists(
                st.builds(
                    a_pool, st.sampled_from("abc"), count=st.sampled_from([0, 1, 130]), tainted=st.sampled_from([0, 1])
                ),
                unique_by=lambda pool: pool.name,
            ),
            st.sampled_from([NOTHING, frozenset({"devices.taints"})]),
            st.sets(st.integers(0, 5)),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_the_writes_are_those_of_a_plan_of_everything(
    story: list[tuple[list[Pool], frozenset[str], set[int]]],
) -> None:
    """Each chapter wants other pools of a server that keeps more or less, and loses slices to a foreign hand before it."""
    server = Server()
    for pools, dropped, lost in story:
        for name in [name for index, name in enumerate(sorted(server.held)) if index in lost]:
            del server.held[name]
        for _ in range(2):
            whole = slices.plan(tuple(pools), tuple(server.held.values()), SCOPE, dropped)
            assert tuple(server.turn(*pools, dropped=dropped)) == whole
