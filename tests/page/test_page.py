"""The page in a real browser: what is seen, clicked and typed, by whom."""

import re
from collections.abc import Callable

from playwright.sync_api import Page, Route, expect

from tests.page.conftest import ADMIN, STRANGER, TENANT, Stage, picture
from tests.view.objects import (
    GI,
    JSON,
    a_card,
    a_claim,
    a_class,
    a_device_class,
    a_driver,
    a_far_claim,
    a_far_slice,
    a_lease,
    a_node,
    a_pod,
    a_pool,
    a_result,
    a_slice,
    name_of,
)

Open = Callable[..., Page]
LEADER = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def a_share(number: int, gib: int, cores: int, **more: str) -> JSON:
    consumed = {"memory": str(gib * GI), "cores": str(cores), "shares": "1"}
    return a_result(number, shareID=f"id-{number}-{gib}", consumedCapacity=consumed, **more)


def a_town(stage: Stage) -> None:
    """Two nodes: a whole card, a shared one, a free one; a lost one; a pod that waits."""
    lost = {"key": "gpu.elasticgpu.io/lost", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    stage.put(
        a_slice(*(a_card(number, shared=True) for number in (1, 2, 3, 4))),
        a_slice(a_card(5, shared=True), a_card(6, shared=True, taints=[lost]), node="node2"),
        a_node("node1"),
        a_node("node2"),
        a_driver("node1"),
        a_driver("node2"),
        a_class(),
        a_class("inference.elasticgpu.io", backend="Share", workloadTypes=["inference"]),
        a_device_class(),
        a_device_class("inference.elasticgpu.io"),
        a_claim("train", a_result(1), pods=("trainer",)),
        a_pod("trainer", claim="train", workload_type="training"),
        a_claim("half", a_share(2, 40, 50), pods=("server",), of_class="inference.elasticgpu.io"),
        a_pod("server", claim="half"),
        a_claim("other", a_share(2, 8, 10), pods=("rival",), namespace="secret", of_class="inference.elasticgpu.io"),
        a_pod("rival", claim="other", namespace="secret"),
        a_claim("wish"),
        a_pod("patient", claim="wish", phase="Pending"),
    )


def test_the_first_screen_shows_sums_cards_waiting_pods_and_problems(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    page = open_page(stage.start())
    expect(page.get_by_role("heading", name="6 cards on 2 nodes")).to_be_visible()
    expect(page.locator(".map a.cell")).to_have_count(6)
    labels = [cell.get_attribute("aria-label") for cell in page.locator(".map a.cell").all()]
    assert labels == [
        "node1, card 0: held",
        "node1, card 1: 60 % booked",
        "node1, card 2: free",
        "node1, card 3: free",
        "node2, card 0: free",
        "node2, card 1: blocked",
    ]
    expect(page.get_by_text("claim wish waits for a card of class training.elasticgpu.io").first).to_be_visible()
    expect(page.locator("main")).to_contain_text("is tainted gpu.elasticgpu.io/lost:NoSchedule")
    expect(page.locator("footer")).to_contain_text("kubectl egpu")
    picture(page, "overview")


def test_from_the_map_to_the_node_to_the_card_to_the_pod_and_back(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    page = open_page(stage.start())
    page.get_by_label("node1, card 1: 60 % booked").click()
    expect(page.get_by_role("heading", name="Node node1")).to_be_visible()
    picture(page, "node")
    page.get_by_role("link", name=name_of(2)).click()
    expect(page.get_by_role("heading", name=f"Card {name_of(2)}")).to_be_visible()
    expect(page.locator("dl")).to_contain_text("32 GiB free of 80 GiB")
    picture(page, "card")
    page.get_by_role("link", name="server").click()
    expect(page.get_by_role("heading", name="Pod ml/server")).to_be_visible()
    expect(page.locator("table").first).to_contain_text("40 GiB")
    picture(page, "pod")
    page.go_back()
    expect(page.get_by_role("heading", name=f"Card {name_of(2)}")).to_be_visible()


def test_room_is_asked_for_by_a_form_and_the_question_is_in_the_address(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    page = open_page(f"{stage.start()}#/fit")
    page.get_by_label("Class").select_option("training.elasticgpu.io")
    page.get_by_label("Cards").fill("2")
    page.get_by_role("button", name="Does it fit?").click()
    expect(page.locator("#answer")).to_contain_text("2 cards of class training.elasticgpu.io")
    assert page.url.endswith("#/fit?class=training.elasticgpu.io&count=2")
    expect(page.locator("footer")).to_contain_text("kubectl egpu fit --class training.elasticgpu.io --count 2")
    picture(page, "fit")


def test_what_is_entered_and_not_sent_stays_when_the_cluster_changes(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    page = open_page(f"{stage.start()}#/fit")
    page.get_by_label("Class").select_option("training.elasticgpu.io")
    page.get_by_label("Cards").fill("2")
    stage.put(a_class("another.elasticgpu.io"), a_device_class("another.elasticgpu.io"))
    expect(page.locator("option")).to_have_count(3)
    expect(page.get_by_label("Class")).to_have_value("training.elasticgpu.io")
    expect(page.get_by_label("Cards")).to_have_value("2")
    assert page.evaluate("document.activeElement.name") == "count", "the focus stays where it was"


def test_a_change_in_the_cluster_shows_without_a_reload(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    page = open_page(stage.start())
    page.get_by_label("node1, card 2: free").focus()
    stage.put(a_claim("late", a_result(3), pods=("latecomer",)), a_pod("latecomer", claim="late"))
    expect(page.get_by_label("node1, card 2: held")).to_be_visible(timeout=60000)
    assert page.evaluate("document.activeElement.dataset.key") == "cell node1 2", "the focus stays where it was"


def test_it_is_used_by_keys_alone(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    page = open_page(stage.start())
    expect(page.locator(".map a.cell")).to_have_count(6)
    page.keyboard.press("/")
    page.keyboard.type("trainer")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Found for trainer")).to_be_visible()
    page.locator("#found a").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Pod ml/trainer")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="6 cards on 2 nodes")).to_be_visible()
    page.locator("a.cell").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.key") == "cell node1 1"


def test_sums_filter_and_the_filter_is_in_the_address(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    address = stage.start()
    page = open_page(address)
    page.get_by_role("link", name=re.compile("Blocked")).click()
    expect(page.locator(".map a.cell")).to_have_count(1)
    assert page.url.endswith("#/?state=Blocked")
    again = open_page(page.url)
    expect(again.locator(".map a.cell")).to_have_count(1)
    none = open_page(f"{address}#/?state=Unknown")
    expect(none.locator("main")).to_contain_text("No node has such cards.")


def test_who_has_one_namespace_sees_every_number_and_no_name_of_others(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    address = stage.start()
    page = open_page(address, TENANT)
    expect(page.get_by_label("node1, card 1: 60 % booked")).to_be_visible()
    page.get_by_label("Namespaces to name").fill("ml,secret")
    page.get_by_label("Namespaces to name").press("Enter")
    expect(page.locator("#scope")).to_contain_text("names of ml;")
    page.goto(f"{address}#/card/{name_of(2)}")
    expect(page.locator("main")).to_contain_text("not shown")
    expect(page.locator("main")).to_contain_text("server")
    assert "rival" not in page.content()
    assert "secret" not in page.locator("main").inner_text()
    page.goto(f"{address}#/pod/secret/rival")
    expect(page.locator("main")).to_contain_text("or it is in a namespace that you may not see")


def test_nobody_sees_anything_without_a_token(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    page = open_page(stage.start(), token="")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("Token").fill("nonsense")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("the API server does not know this token")
    page.get_by_label("Token").fill(STRANGER)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("main")).to_contain_text("stranger may not list resourceslices")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").fill(ADMIN)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="6 cards on 2 nodes")).to_be_visible()


def test_an_answer_that_comes_after_the_sign_out_is_not_drawn(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    page = open_page(stage.start())
    expect(page.get_by_role("heading", name="6 cards on 2 nodes")).to_be_visible()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/api/pods", hold)
    page.get_by_role("link", name="Pods").first.click()
    while not held:
        page.wait_for_timeout(20)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    with page.expect_event("requestfinished"):
        held[0].fulfill(status=403, json={"error": "too late"})
    page.unroute("**/api/pods")
    page.get_by_label("Token").fill(ADMIN)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("main")).to_contain_text("ml/trainer")


def test_names_are_text_whatever_is_in_them(stage: Stage, open_page: Open) -> None:
    model = '<img src=x onerror="document.title=1">\u202egnp.exe\u0007'
    long = "n" * 253
    stage.put(
        a_slice(a_card(1, model=model, shared=True)),
        a_slice(a_card(2, model=model, shared=True), node=long),
        a_node("node1"), a_node(long), a_driver("node1"), a_driver(long), a_class(), a_device_class(),
        a_claim("c", a_result(1), pods=("p" * 253,), namespace="x" * 63),
        a_pod("p" * 253, claim="c", namespace="x" * 63),
    )  # fmt: skip
    address = stage.start()
    page = open_page(address, viewport={"width": 360, "height": 740})
    expect(page.locator("main")).to_contain_text('<img src=x onerror="document.title=1">\\u202egnp.exe\\u0007')
    assert page.locator("main img").count() == 0
    for part in ("", f"#/node/{long}", f"#/card/{name_of(1)}", f"#/pod/{'x' * 63}/{'p' * 253}", "#/pods"):
        page.goto(address + part)
        expect(page.locator("h1")).to_be_visible()
        page.wait_for_timeout(100)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, f"{part or 'overview'} is {width} wide"
        picture(page, f"hostile-{part[2:6] or 'overview'}")


def test_it_says_how_old_the_picture_is_while_the_api_server_is_away(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    page = open_page(stage.start())
    expect(page.get_by_role("heading", name="6 cards on 2 nodes")).to_be_visible()
    stage.do(stage.server.stop())
    expect(page.locator("#banner")).to_contain_text("The API server has not answered for")
    page.get_by_role("link", name="Pods").first.click()
    expect(page.locator("main")).to_contain_text("ml/trainer"), "who was let in may go on looking"
    picture(page, "away")
    stage.do(stage.server.start())
    expect(page.locator("#banner")).to_be_hidden(timeout=60000)


def test_it_says_so_when_the_controller_is_away(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    page = open_page(stage.start())
    expect(page.get_by_role("heading", name="6 cards on 2 nodes")).to_be_visible()
    stage.stop_controller()
    expect(page.locator("#banner")).to_contain_text("The controller does not answer. This is the picture of")
    expect(page.locator(".map a.cell")).to_have_count(6)


def test_five_thousand_nodes_come_as_one_field_a_node(stage: Stage, open_page: Open) -> None:
    nodes = [f"gpu-node-{number:04}" for number in range(5000)]
    stage.put(
        *(
            a_slice(*(a_card(8 * at + one, shared=True) for one in range(8)), node=node)
            for at, node in enumerate(nodes)
        ),
        *map(a_node, nodes),
        *map(a_driver, nodes),
        a_claim("c", *(a_result(one, node=nodes[0]) for one in range(8)), pods=("big",)),
        a_pod("big", claim="c", node=nodes[0]),
    )
    address = stage.start()
    assert len(stage.get("/api/overview", ADMIN)[1]) <= 300 * 1024
    page = open_page(address, color_scheme="dark")
    expect(page.get_by_role("heading", name="40,000 cards on 5,000 nodes")).to_be_visible(timeout=60000)
    expect(page.locator(".many a.cell")).to_have_count(5000)
    expect(page.get_by_label("gpu-node-0000: 0 of 8 cards free, held")).to_be_visible()
    picture(page, "five-thousand")
    page.get_by_label("gpu-node-0000: 0 of 8 cards free, held").click()
    expect(page.locator("main")).to_contain_text("ml/big")


def test_colour_is_never_alone_and_the_contrast_holds(stage: Stage, open_page: Open) -> None:
    """Letters or fields differ for every state, and text keeps 4.5 to 1 on its ground, in both schemes."""
    a_town(stage)
    address = stage.start()
    for scheme in ("light", "dark"):
        page = open_page(address, color_scheme=scheme, reduced_motion="reduce")
        expect(page.locator(".map a.cell")).to_have_count(6)
        texts = page.evaluate(
            "[...document.querySelectorAll('.legend .cell')].map(c => c.textContent + getComputedStyle(c).backgroundImage)"
        )
        assert len(set(texts)) == len(texts) == 6
        for variable in ("--text", "--soft", "--link", "--bad", "--warn", "--good"):
            for ground in ("--ground", "--panel"):
                assert _contrast(page, variable, ground) >= 4.5, (scheme, variable, ground)
        picture(page, f"overview-{scheme}")


def _contrast(page: Page, one: str, other: str) -> float:
    def light(name: str) -> float:
        text = page.evaluate("name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()", name)
        parts = [int(text[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_page_of_a_pod_that_waits_says_what_rules_out_which_cards(stage: Stage, open_page: Open) -> None:
    a_town(stage)
    page = open_page(stage.start() + "#/pod/ml/patient")
    expect(page.get_by_text("Pod ml/patient fits now, on node node1")).to_be_visible()


def a_lab(stage: Stage) -> None:
    """A town, and a pool of three cards: one lent to a pod on a node without cards, one still being given back.

    Another replica leads: ours only shows what it sees.
    """
    a_town(stage)
    lead = {"kind": "Lease", "spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}}
    stage.call(lambda: stage.server.put(f"{LEADER}/elastic-gpu-controller", lead))
    releasing = {"key": "remote.gpu.elasticgpu.io/releasing", "effect": "NoSchedule"}
    stage.put(
        a_far_slice(a_card(7), a_card(8, taints=[releasing]), a_card(9)),
        a_pool(),
        a_pool("attic", reachable="False", why="connection refused"),
        a_far_claim("far", 7, node="laptop", pods=("debugger",), of_class="simulation.elasticgpu.io"),
        a_pod("debugger", claim="far", node="laptop", workload_type="simulation"),
        a_lease(7, claim="far", node="laptop"),
        a_lease(8, claim="gone", namespace="secret", phase="Releasing", reason="its claim is gone"),
    )


def test_remote_pools_are_groups_of_the_map_beside_the_nodes(stage: Stage, open_page: Open) -> None:
    a_lab(stage)
    page = open_page(stage.start(EGPU_REMOTE="true"))
    expect(page.get_by_role("heading", name="9 cards on 2 nodes and in 2 remote pools")).to_be_visible()
    expect(page.get_by_label("pool lab, card 0: held")).to_be_visible()
    expect(page.get_by_label("pool lab, card 1: blocked")).to_be_visible()
    expect(page.locator("main")).to_contain_text("does not answer")
    picture(page, "overview-remote")
    page.get_by_label("pool lab, card 0: held").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.key") == "cell pool/lab 1"
    page.get_by_label("pool lab, card 0: held").click()
    expect(page.get_by_role("heading", name="Remote pool lab")).to_be_visible()
    expect(page.locator("main")).to_contain_text("Releasing: its claim is gone")
    picture(page, "pool")
    page.get_by_role("link", name=name_of(7)).first.click()
    expect(page.get_by_role("heading", name=f"Card {name_of(7)}")).to_be_visible()
    expect(page.locator("dl")).to_contain_text("pool lab")
    expect(page.locator("main")).to_contain_text("Attached")
    picture(page, "card-remote")
    page.get_by_role("link", name="laptop").click()
    expect(page.get_by_role("heading", name="Remote cards that are used here")).to_be_visible()
    page.get_by_role("link", name="ml/debugger").click()
    expect(page.get_by_role("heading", name="Pod ml/debugger")).to_be_visible()
    page.get_by_role("link", name="lab").click()
    expect(page.get_by_role("heading", name="Remote pool lab")).to_be_visible()


def test_a_pool_is_searched_for_and_its_leases_hide_the_names_of_others(stage: Stage, open_page: Open) -> None:
    a_lab(stage)
    address = stage.start(EGPU_REMOTE="true")
    page = open_page(address, TENANT)
    expect(page.locator(".map a.cell")).to_have_count(9)
    page.get_by_label("Namespaces to name").fill("ml")
    page.get_by_label("Namespaces to name").press("Enter")
    expect(page.locator("#scope")).to_contain_text("names of ml;")
    page.keyboard.press("/")
    page.keyboard.type("lab")
    page.keyboard.press("Enter")
    page.locator("#found").get_by_role("link", name="lab").click()
    expect(page.get_by_role("heading", name="Remote pool lab")).to_be_visible()
    expect(page.locator("main")).to_contain_text("ml/far")
    expect(page.locator("main")).to_contain_text("not shown")
    assert "secret" not in page.locator("main").inner_text()


def test_what_was_left_of_remote_cards_that_are_off_is_shown_and_their_leases_are_not_known(
    stage: Stage, open_page: Open
) -> None:
    a_town(stage)
    page = open_page(stage.start())
    stage.put(a_far_slice(a_card(7)))
    expect(page.get_by_label("pool lab, card 0: free")).to_be_visible(timeout=60000)
    expect(page.locator("main")).to_contain_text("leases: remote cards are off in the controller")
