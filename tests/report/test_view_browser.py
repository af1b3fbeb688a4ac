"""The page of `netconv view` in a real browser: `make test-browser`."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import converter
from converter.commands.view.page import render
from report.conftest import Barriers, find, resize
from report.views import blocks, integers
from verify.nets import copy_of, resnet

pytestmark = pytest.mark.browser
ENTER, ESCAPE, DOWN, UP = "\ue007", "\ue00c", "\ue015", "\ue013"


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("view") / "one.html"
    path.write_text(render([("models/vision/resnet.onnx", resnet(np.random.default_rng(0)))]))
    return path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    good = resnet(np.random.default_rng(0))
    bad = copy_of(good)
    node = next(n for n in bad.ir.graph if n.op_type == "MaxPool")
    node.attributes["pads"] = ir.AttrInt64s("pads", [0, 1, 2, 1])
    result = converter.verify(good, bad, tensors="all")
    path = tmp_path_factory.mktemp("view") / "two.html"
    models = [("models/vision/resnet.onnx", good), ("converted/resnet.xml", bad)]
    path.write_text(render(models, result))
    return path


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("view") / "quantized.html"
    path.write_text(render([("net.tflite", integers())]))
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10,000 layers."""
    path = tmp_path_factory.mktemp("view") / "large.html"
    path.write_text(render([("large.onnx", blocks(2000))]))
    return path


def boxes(browser: Any, host: int = 0) -> list[Any]:
    found: list[Any] = browser.find_elements("css selector", ".host")[host].find_elements(
        "css selector", ".box"
    )
    return found


def box(browser: Any, text: str, host: int = 0) -> Any:
    """The box that says this in one of its lines, seen or not."""
    return browser.execute_script(
        "return [...document.querySelectorAll('.host')[arguments[1]].querySelectorAll('.box')]"
        ".find((b) => [...b.querySelectorAll('text.sub')].some((t) => t.textContent === "
        "arguments[0]))",
        text,
        host,
    )


def reach(browser: Any, text: str, host: int) -> None:
    """Move a drawing to a layer."""
    script = "const d = drawings[arguments[1]]; d.centre(d.nodes.find((i) => i.node.n === "
    browser.execute_script(f"{script} arguments[0]))", text, host)


def details(browser: Any) -> str:
    found: str = find(browser, "aside").text
    return found


def test_a_click_shows_a_layer(browser: Any, single: Path) -> None:
    browser.get(single.as_uri())
    assert "image float32[1,3,24,24]" in details(browser)  # before anything is chosen
    find(browser, "#unfold").click()
    box(browser, "stem").click()
    text = details(browser)
    for part in ("Conv stem", "strides", "[2,2]", "float[1,8,12,12]", "float[8,3,7,7]", "mean"):
        assert part in text
    bars = browser.find_elements("css selector", "aside .weight .bars i")
    assert len(bars) >= 24 and max(b.size["height"] for b in bars) > 40
    assert "chosen" in box(browser, "stem").get_attribute("class")
    browser.find_element("xpath", "//aside//button[text()='stem_bn']").click()
    assert "BatchNormalization stem_bn" in details(browser)


def test_scopes_fold_and_unfold(browser: Any, single: Path) -> None:
    browser.get(single.as_uri())
    find(browser, "#unfold").click()
    everything = len(boxes(browser))
    find(browser, "#fold").click()
    folded = len(boxes(browser))
    assert folded < everything
    scope = find(browser, ".box.scope")
    assert scope.get_attribute("aria-expanded") == "false" and "layers" in details_of(scope)
    name = scope.text.split("\n")[0].removeprefix("▸ ")
    scope.click()
    assert len(boxes(browser)) > folded and name in details(browser)
    opened = next(b for b in boxes(browser) if "open" in b.get_attribute("class"))
    opened.send_keys(ENTER)
    assert len(boxes(browser)) == folded


def details_of(box: Any) -> str:
    label: str = box.get_attribute("aria-label")
    return label


def test_layers_are_searched(browser: Any, single: Path) -> None:
    browser.get(single.as_uri())
    find(browser, "#fold").click()
    field = find(browser, "input[type=search]")
    field.send_keys("block2_a Conv")  # operators, layers and tensors, in any order
    hits = browser.find_elements("css selector", "#hits button")
    assert [h.text for h in hits] == ["Conv block2_a", "Conv block2_b"]  # which reads block2_a_relu
    assert find(browser, "header output").text == "2 found"
    field.send_keys(ENTER)
    assert not find(browser, "#hits").is_displayed()
    assert "Conv block2_a" in details(browser)
    shown = box(browser, "block2_a").rect  # unfolded, and in the middle of the drawing
    host = find(browser, ".host").rect
    assert abs(shown["x"] + shown["width"] / 2 - host["x"] - host["width"] / 2) < 60
    field.clear()
    field.send_keys("relu")
    field.send_keys(DOWN)
    assert browser.execute_script("return document.activeElement.closest('#hits') !== null")
    browser.execute_script("return document.activeElement").send_keys(ESCAPE)
    assert not find(browser, "#hits").is_displayed()
    browser.get(single.as_uri() + "#block1_sum")  # an address of a layer
    browser.refresh()
    assert "Add block1_sum" in details(browser)


def test_the_keyboard_follows_the_tensors(browser: Any, single: Path) -> None:
    browser.get(single.as_uri())
    find(browser, "#unfold").click()
    assert len([b for b in boxes(browser) if b.get_attribute("tabindex") == "0"]) == 1
    browser.execute_script("arguments[0].focus()", box(browser, "stem"))
    for expected in ("BatchNormalization stem_bn", "Relu stem_relu", "MaxPool stem_pool"):
        browser.execute_script("return document.activeElement").send_keys(DOWN)
        assert expected in details(browser)
    browser.execute_script("return document.activeElement").send_keys(UP)
    assert "Relu stem_relu" in details(browser)
    assert "stem_relu" in find(browser, ".tip").text
    before = find(browser, ".host svg > g").get_attribute("transform")
    browser.execute_script("return document.activeElement").send_keys("+")
    assert find(browser, ".host svg > g").get_attribute("transform") != before


def test_it_is_moved_and_zoomed(browser: Any, single: Path) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    browser.get(single.as_uri())
    host, stage = find(browser, ".host svg"), find(browser, ".host svg > g")
    first = stage.get_attribute("transform")
    ActionChains(browser).move_to_element_with_offset(
        host, 300, 200
    ).click_and_hold().move_by_offset(-80, 30).release().perform()
    moved = stage.get_attribute("transform")
    assert moved != first and moved.split("scale")[1] == first.split("scale")[1]
    ActionChains(browser).scroll_from_origin(ScrollOrigin.from_element(host), 0, -300).perform()
    assert stage.get_attribute("transform").split("scale")[1] != first.split("scale")[1]
    assert browser.execute_script("return scrollY") == 0


def test_two_models_go_together(browser: Any, pair: Path) -> None:
    browser.get(pair.as_uri())
    legend = find(browser, ".legend").text
    assert "1 wrong ✕" in legend and "in structure" not in legend  # zeros are left out
    assert "1 layer is wrong" in details(browser) and "pads [1,1,1,1]" in details(browser)
    find(browser, "#next").click()
    text = details(browser)
    assert "MaxPool stem_pool" in text and "pads [1,1,1,1] became [0,1,2,1]" in text
    assert "error introduced here" in text and "and in converted/resnet.xml" in text
    for host in (0, 1):
        chosen = box(browser, "stem_pool", host)
        assert {"chosen", "wrong"} <= set(chosen.get_attribute("class").split())
        reach(browser, "prob", host)
        assert "inherited" in box(browser, "prob", host).get_attribute("class")
    browser.execute_script(
        "arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true, "
        "clientX: arguments[0].getBoundingClientRect().x + 5, clientY: "
        "arguments[0].getBoundingClientRect().y + 5}))",
        box(browser, "prob", 1),
    )
    assert "chosen" in box(browser, "prob", 0).get_attribute("class")


def test_thousands_of_layers_open_at_once(
    browser: Any, large: Path, processor_seconds: Callable[[], float]
) -> None:
    browser.get(large.as_uri())
    assert 10 < len(boxes(browser)) < 200
    assert processor_seconds() < 3
    field = find(browser, "input[type=search]")
    field.send_keys("stage.73/block.4/Tanh")
    field.send_keys(ENTER)
    assert "Tanh /net/stage.73/block.4/Tanh" in details(browser)
    assert len(boxes(browser)) < 400
    assert processor_seconds() < 6


MOVES = """
const [scale, across, down, count] = arguments, drawing = drawings[0];
drawing.scale = scale;
drawing.centre(drawing.nodes[5000]);
let most = 0;
for (let i = 0; i < count; i++) {
  drawing.at.x -= across;
  drawing.at.y -= down;
  drawing._move();
  most = Math.max(most, document.querySelectorAll(".box, .edge").length);
}
return [drawing.placed.length, most];
"""


@pytest.mark.parametrize("scale", [1, 0.3, 0.05])
def test_ten_thousand_layers_side_by_side_stay_fluid(
    browser: Any, large: Path, scale: float, processor_seconds: Callable[[], float]
) -> None:
    """The document holds the boxes on the screen alone, so that a step takes less than a frame."""
    browser.get(large.as_uri())
    find(browser, "#unfold").click()
    before, steps = processor_seconds(), 100
    placed, most = browser.execute_script(MOVES, scale, 3, 40, steps)
    assert placed > 10_000 and 2 < most < 2000
    assert (processor_seconds() - before) / steps < 0.016
    find(browser, "#fold").click()
    assert len(boxes(browser)) < 30
    assert processor_seconds() < 20


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("which", ["single", "pair", "large"])
def test_a_drawing_opens_with_texts_that_can_be_read(
    browser: Any, request: pytest.FixtureRequest, which: str, width: int
) -> None:
    resize(browser, width)
    browser.get(request.getfixturevalue(which).as_uri())
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('.host svg text')].map((t) => "
        "parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a)"
    )
    assert len(sizes) > 10 and min(sizes) >= 11
    assert browser.execute_script(  # and with something in sight
        "return drawings.every((d) => d.placed.some((i) => i.left * d.scale + d.at.x >= 0 && "
        "(i.left + i.width) * d.scale + d.at.x <= d.svg.clientWidth && "
        "i.top * d.scale + d.at.y > 0))"
    )


def test_boxes_have_colors_of_families_and_edges_have_shapes(browser: Any, single: Path) -> None:
    browser.get(single.as_uri())
    find(browser, "#unfold").click()
    browser.execute_script("drawings[0].fit()")
    legend = find(browser, ".legend").text
    assert "convolution 7" in legend and "pooling and resizing 2" in legend
    fills = {
        kind: browser.execute_script(
            "return getComputedStyle(arguments[0].querySelector('rect')).fill", box(browser, kind)
        )
        for kind in ("stem", "stem_bn", "stem_relu")
    }
    assert len(set(fills.values())) == 3
    shapes = [t.text for t in browser.find_elements("css selector", ".edge text")]
    assert "1×3×24×24" in shapes and "1×8×12×12" in shapes


def test_the_keys_are_listed(browser: Any, single: Path) -> None:
    browser.get(single.as_uri())
    body, keys = find(browser, "body"), find(browser, "#keys")
    assert not keys.is_displayed()
    body.send_keys("?")
    assert keys.is_displayed() and "follow a tensor" in keys.text
    browser.execute_script("return document.activeElement").send_keys(ESCAPE)
    assert not keys.is_displayed()
    body.send_keys("/")
    assert browser.execute_script("return document.activeElement.type") == "search"
    find(browser, "#help").click()
    find(browser, "#keys button").click()
    assert not keys.is_displayed()


def test_a_drawing_is_saved_as_a_picture(browser: Any, single: Path) -> None:
    browser.get(single.as_uri())
    find(browser, "#unfold").click()
    browser.execute_script("window.saved = []; save = (blob, name) => saved.push([blob, name]);")
    find(browser, "[aria-label='save as SVG']").click()
    find(browser, "[aria-label='save as PNG']").click()
    svg, names, png = browser.execute_async_script(
        "const done = arguments[0], wait = async () => {"
        "  if (saved.length < 2) return setTimeout(wait, 20);"
        "  const head = new Uint8Array(await saved[1][0].arrayBuffer()).slice(0, 4);"
        "  done([await saved[0][0].text(), saved.map((s) => s[1]), [...head]]);"
        "}; wait();"
    )
    assert names == ["resnet.onnx.svg", "resnet.onnx.png"] and png == [0x89, *b"PNG"]
    root = ET.fromstring(svg)
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"stem", "block1_sum", "prob"} <= set(texts)  # the whole drawing
    assert "var(" not in svg and "color(" not in svg and "class=" not in svg


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("which", ["single", "pair"])
def test_nothing_is_wider_than_the_screen_and_no_word_is_broken(
    browser: Any,
    overflow: Callable[[Any, Path, int], list[str]],
    request: pytest.FixtureRequest,
    which: str,
    width: int,
) -> None:
    assert overflow(browser, request.getfixturevalue(which), width) == []
    graphs = browser.find_elements("css selector", ".host")
    assert all(g.size["height"] > 200 and g.size["width"] > 250 for g in graphs)


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("which", ["single", "pair", "quantized"])
def test_axe_finds_no_barrier(
    browser: Any, barriers: Barriers, request: pytest.FixtureRequest, which: str, scheme: str,
    width: int,
) -> None:  # fmt: skip
    assert barriers(browser, request.getfixturevalue(which), scheme, width) == []


def test_a_quantized_layer_shows_bits_and_scales(browser: Any, quantized: Path) -> None:
    browser.get(quantized.as_uri())
    assert [b.text.split("\n")[0] for b in boxes(browser)][1] == "QuantizeLinear"
    box(browser, "dense").click()
    text = details(browser)
    for part in ("int8[1,4], scale 0.5, zero point 3", "int8[4,2]", "DequantizeLinear", "0.25 2"):
        assert part in text


def test_the_first_difference_is_seen_at_once(browser: Any, pair: Path) -> None:
    browser.get(pair.as_uri())
    for host in (0, 1):
        shown = box(browser, "stem_pool", host).rect
        around = browser.find_elements("css selector", ".host")[host].rect
        assert abs(shown["y"] + shown["height"] / 2 - around["y"] - around["height"] / 2) < 60
    assert "image float32[1,3,24,24]" in details(browser)


def test_screen_readers_find_their_way(browser: Any, pair: Path) -> None:
    browser.get(pair.as_uri())
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    known = [
        (n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]
    ]
    roles = {role for role, _ in known}
    assert {"banner", "main", "search", "complementary", "region", "heading"} <= roles
    assert [r for r, name in known if r in ("button", "searchbox", "region") and not name] == []
    assert any(
        r == "button" and "stem_pool (MaxPool)" in name and "wrong" in name for r, name in known
    )
