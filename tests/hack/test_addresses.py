"""Names and addresses of instances: pure arithmetic, told on examples."""

import ipaddress
import itertools

import pytest

from hack.cluster import addresses, errors


def routes(*texts: str) -> list[ipaddress.IPv4Network]:
    return [ipaddress.IPv4Network(text) for text in texts]


def test_the_first_instance_gets_the_first_number():
    assert addresses.free_number([], []) == 0


def test_a_number_in_use_is_passed_over():
    assert addresses.free_number([0, 1, 3], []) == 2


@pytest.mark.parametrize("route", ["10.97.0.0/24", "10.97.0.8/32", "10.128.0.0/16", "10.128.7.0/24"])
def test_a_number_whose_network_is_routed_elsewhere_is_passed_over(route):
    assert addresses.free_number([], routes(route)) == 1


def test_a_machine_without_a_free_network_is_told_so():
    with pytest.raises(errors.ClusterError, match="no free network"):
        addresses.free_number([], routes("10.0.0.0/8"))


def test_no_two_instances_share_a_network_or_a_device():
    every = [addresses.Addresses(number=number) for number in addresses.NUMBERS]
    networks = [one.nodes for one in every] + [one.pods for one in every] + routes(addresses.SERVICES)
    networks.sort()
    assert all(not left.overlaps(right) for left, right in itertools.pairwise(networks))
    assert len({one.host_device for one in every}) == len(every)


def test_device_names_fit_the_kernels_fifteen_characters():
    assert max(len(addresses.Addresses(number=number).host_device) for number in addresses.NUMBERS) <= 15


def test_nodes_pods_control_plane_guest_and_machine_have_addresses_of_their_own():
    place = addresses.Addresses(number=5)
    nodes = [place.node(index) for index in range(1, addresses.MOST_NODES + 1)]
    others = (place.control_plane, place.guest, place.host)
    assert len({*nodes, *others}) == addresses.MOST_NODES + 3
    assert all(ipaddress.ip_address(address) in place.nodes for address in (*nodes, *others))
    assert place.node_pods(addresses.MOST_NODES).subnet_of(place.pods)


@pytest.mark.parametrize("name", ["demo", "e2e-1", "a", "x" * 20])
def test_plain_names_are_accepted(name):
    addresses.check_name(name)


@pytest.mark.parametrize("name", ["", "Demo", "-a", "a-", "a_b", "a/b", "..", "x" * 21, "a\n"])
def test_names_that_could_escape_a_path_or_a_limit_are_refused(name):
    with pytest.raises(errors.ClusterError, match="cannot name an instance"):
        addresses.check_name(name)


def test_nodes_that_are_not_mentioned_have_no_cards():
    assert addresses.card_counts([4], nodes=3) == (4, 0, 0)


@pytest.mark.parametrize("cards", [[1, 2, 3], [-1], [17]])
def test_card_counts_that_do_not_fit_are_refused(cards):
    with pytest.raises(errors.ClusterError, match="one number from 0 to 16"):
        addresses.card_counts(cards, nodes=2)


@pytest.mark.parametrize("count", [0, 33])
def test_a_number_of_nodes_out_of_range_is_refused(count):
    with pytest.raises(errors.ClusterError, match="1 to 32"):
        addresses.node_names(count)
