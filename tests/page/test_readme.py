"""The picture and the capture of the README are what the program shows. EGPU_REGENERATE=1 makes both anew."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.page.company import a_company
from tests.page.conftest import Stage
from tests.view.objects import a_class

ROOT = Path(__file__).resolve().parents[2]
README, IMAGE = ROOT / "README.md", ROOT / "docs" / "page.png"
ANEW = os.environ.get("EGPU_REGENERATE") == "1"
SIZE = {"width": 1180, "height": 640}


def test_the_readmes_picture_is_of_this_page(stage: Stage, open_page: Callable[..., Page], tmp_path: Path) -> None:
    stage.put(
        *a_company(),
        a_class(),
        a_class(
            "inference.elasticgpu.io", backend="Share", workloadTypes=["inference"], share={"memory": "BestEffort"}
        ),
    )
    page = open_page(stage.start(), viewport=SIZE)
    expect(page.locator(".map a.cell")).to_have_count(48)
    fresh = tmp_path / "page.png"
    page.screenshot(path=fresh)
    if ANEW:
        IMAGE.write_bytes(fresh.read_bytes())
    assert _size(IMAGE) == _size(fresh) == (SIZE["width"], SIZE["height"])
    assert f"({IMAGE.relative_to(ROOT)})" in README.read_text()


def _size(image: Path) -> tuple[int, int]:
    width, height = struct.unpack(">II", image.read_bytes()[16:24])
    return width, height
