"""Pages in a real browser: what a reader does, and what is seen then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from support.page_files import HOSTILE, many_tensors, small_model
from weightstore._page.document import document

MOST_ROWS = 300


@pytest.fixture
def page(tmp_path: Path, show):
    weightstore.html_report(small_model(tmp_path / "model.safetensors"), output=tmp_path / "page.html", values=True)
    return show(tmp_path / "page.html")


def labels(page) -> list[str]:
    return page.locator(".row .label").all_inner_texts()


def row(page, label: str):
    return page.locator(".row").filter(has=page.get_by_text(label, exact=True))


def search(page, query: str) -> None:
    page.get_by_role("searchbox").fill(query)


# ---- one file --------------------------------------------------------------------------------------------------------


def test_what_is_seen_first(page):
    assert page.title() == "model.safetensors"
    assert page.locator("h1").inner_text() == "model.safetensors"
    facts = page.locator(".facts").inner_text()
    assert "SafeTensors" in facts
    assert "30 tensors" in facts
    assert "261 K parameters" in facts  # 64000 + 4 * (4 * 64 * 64 + 2 * 64 * 256 + 64) + 128
    assert labels(page)[0] == "embed.weight"
    assert {"layers", "position_ids"} <= set(labels(page))
    assert page.locator(".details").get_by_text("<b>free</b>", exact=True).is_visible()


def test_expand_and_collapse(page):
    layer = row(page, "0")
    assert layer.get_attribute("aria-expanded") == "false"
    layer.click()
    assert layer.get_attribute("aria-expanded") == "true"
    assert {"attn", "mlp", "norm.weight"} <= set(labels(page))
    row(page, "attn").click()
    assert "q_proj.weight" in labels(page)
    row(page, "layers").click()
    assert labels(page) == ["embed.weight", "layers", "position_ids"]
    page.get_by_role("button", name="Expand").click()
    rows = page.get_by_role("treegrid").get_attribute("aria-rowcount")
    assert int(rows) == 30 + 1 + 4 + 8 + 1  # tensors, layers, 0 to 3, attn and mlp in each, and the headings
    page.get_by_role("button", name="Collapse").click()
    assert labels(page) == ["embed.weight", "layers", "position_ids"]


def test_search(page):
    search(page, "layers.2 mlp")
    assert labels(page) == ["layers", "2", "mlp", "down.weight", "up.weight"]
    assert page.get_by_role("status").inner_text() == "2 of 30 tensors"
    search(page, "dtype:i64")
    assert labels(page) == ["position_ids"]
    search(page, "nothing has this name")
    assert labels(page) == []
    page.get_by_role("searchbox").press("Escape")
    assert "embed.weight" in labels(page)
    page.locator(".legend").get_by_role("button", name="F32").click()
    assert page.get_by_role("status").inner_text() == "5 of 30 tensors"
    page.locator(".legend").get_by_role("button", name="F32").click()
    assert page.get_by_role("searchbox").input_value() == ""


def test_sort(page):
    page.get_by_role("button", name="List").click()
    heading = page.get_by_role("columnheader", name="Size")
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert labels(page)[:2] == ["embed.weight", "layers.0.mlp.down.weight"]
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert labels(page)[0] == "layers.0.norm.weight"
    page.get_by_role("columnheader", name="Type").get_by_role("button").click()
    assert page.locator(".row .dtype").first.inner_text() == "F16"


def test_details_of_a_tensor(page, tmp_path):
    search(page, "layers.1.attn.q_proj")
    page.locator(".row.tensor").click()
    text = page.locator(".details").inner_text()
    with weightstore.open(tmp_path / "model.safetensors") as file:
        values = file["layers.1.attn.q_proj.weight"].numpy().astype("f8")
    for fact in ("F16", "64 \u00d7 64", "4,096", "8.19 kB (8,192 bytes)", f"{values.max():.4g}", f"{values.std():.4g}"):
        assert fact in text
    assert page.get_by_role("img", name="Histogram").is_visible()
    assert page.get_by_role("img", name="Image of the matrix").is_visible()
    counts = page.locator(".histogram rect title").all_text_contents()
    assert sum(int(line.split()[0].replace(",", "")) for line in counts) == 4096


def test_a_click_on_a_tile(page):
    page.locator(".tile", has_text="embed.weight").click()
    assert row(page, "embed.weight").get_attribute("aria-selected") == "true"
    assert "64,000" in page.locator(".details").inner_text()
    page.locator(".tile.group", has_text="layers").click(position={"x": 20, "y": 8})
    assert page.locator(".trail").inner_text().startswith("All bytes")
    assert row(page, "layers").get_attribute("aria-selected") == "true"
    page.locator(".trail").get_by_role("button", name="All bytes").click()
    assert page.locator(".tile", has_text="embed.weight").is_visible()


def test_keyboard_alone(page):
    page.keyboard.press("/")
    page.keyboard.type("attn")
    page.keyboard.press("ArrowDown")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    selected = page.locator("[aria-selected=true]")
    assert selected.get_attribute("id") == page.get_by_role("treegrid").get_attribute("aria-activedescendant")
    page.keyboard.press("Home")
    assert page.locator("[aria-selected=true] .label").inner_text() == "layers"
    page.keyboard.press("ArrowLeft")
    assert labels(page) == ["layers"]
    page.keyboard.press("ArrowRight")
    assert len(labels(page)) > 1
    page.keyboard.press("End")
    assert page.locator("[aria-selected=true] .label").inner_text() == labels(page)[-1]
    page.keyboard.press("Tab")  # to the treemap
    page.keyboard.press("Shift+Tab")
    assert page.get_by_role("treegrid").evaluate("e => e === document.activeElement")


def test_keys_in_the_treemap(page):
    tiles = page.locator(".tile")
    assert page.locator(".tile[tabindex='0']").count() == 1
    tiles.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.classList.contains('tile')")
    assert page.locator(".tile[tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    assert page.locator("[aria-selected=true]").count() == 1


def test_everything_has_a_name_for_a_screen_reader(page):
    unnamed = page.evaluate("""() => [...document.querySelectorAll('button, input, canvas, svg, [role=img], section, [role=treegrid]')]
        .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim())).map(e => e.outerHTML)""")
    assert unnamed == []
    grid = page.get_by_role("treegrid")
    assert int(grid.get_attribute("aria-rowcount")) == len(labels(page)) + 1
    layer = row(page, "0")
    assert (layer.get_attribute("aria-level"), layer.get_attribute("aria-expanded")) == ("2", "false")


@pytest.mark.parametrize("dark", [False, True])
def test_text_is_readable_in_both_themes(page, show, tmp_path, dark):
    """The contrast of all text against what is behind it is at least 4.5 (WCAG AA)."""
    shown = show(tmp_path / "page.html", dark=dark)
    search(shown, "layers.1")
    shown.locator(".row.tensor").first.click()
    poor = shown.evaluate(CONTRAST)
    assert poor == []


CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c; }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.getElementById('weightstore'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !e.checkVisibility() || e.closest('title')) continue;
    if (getComputedStyle(e.closest('.tile') ?? e).backgroundImage !== 'none') continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push([walker.currentNode.data, ratio]);
  }
  return poor;
}"""


def test_theme_button(page):
    def background() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = background()
    page.get_by_role("button", name="Colours").click()
    assert background() == light
    page.get_by_role("button", name="Colours").click()
    assert background() != light


def test_phone(page, show, tmp_path):
    phone = show(tmp_path / "page.html", phone=True)
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert row(phone, "layers").bounding_box()["height"] >= 44  # as high as a finger needs
    row(phone, "embed.weight").tap()
    assert "64,000" in phone.locator(".details").inner_text()
    wide = phone.evaluate("""() => [...document.querySelectorAll('#weightstore *')].filter(e => e.checkVisibility() &&
        e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.tiles')).map(e => e.className)""")
    assert wide == []


# ---- two files -------------------------------------------------------------------------------------------------------


def test_compare(tmp_path, show):
    first = small_model(tmp_path / "first.safetensors")
    with weightstore.open(first) as file:
        norm = file["layers.1.norm.weight"].numpy() + np.float32([0.25] + [0] * 63)
        query = file["layers.0.attn.q_proj.weight"].numpy().astype("f4")
    changes = {
        "embed.weight": np.zeros((999, 64), "f4"),
        "layers.1.norm.weight": norm,
        "layers.0.attn.q_proj.weight": query,
        "position_ids": None,
        "lora.weight": np.ones(3, "f4"),
    }
    second = small_model(tmp_path / "second.safetensors", **changes)
    for values, other in ((False, []), (True, [("other values", 1)])):
        weightstore.html_report(first, second, output=tmp_path / "page.html", values=values)
        page = show(tmp_path / "page.html")
        assert page.locator("h1").inner_text() == "first.safetensors → second.safetensors"
        legend = page.locator(".legend button").all_inner_texts()
        expected = [("only in the second", 1), ("only in the first", 1), ("other shape", 1), ("other type", 1), *other]
        expected.append(("same", 31 - sum(count for _, count in expected)))
        assert [text.replace("\n", " ") for text in legend] == [f"{title} {count}" for title, count in expected]
        page.get_by_role("button", name="other type").click()
        page.locator(".row.tensor").click()
        assert "F16" in page.locator(".details").inner_text()
        assert "F32" in page.locator(".details").inner_text()
        search(page, "is:changed")
        assert page.get_by_role("status").inner_text() == f"{4 + len(other)} of 31 tensors"
        if values:
            search(page, "is:values")
            page.locator(".row.tensor").click()
            assert "1 value of 64 differ, by at most 0.25" in page.locator(".details .change").inner_text()


# ---- names that would like to be more --------------------------------------------------------------------------------


@pytest.mark.parametrize("two", [False, True])
def test_names_are_names(tmp_path, show, two):
    path = tmp_path / "x<img src=x onerror=alert(1)>.safetensors"
    metadata = {name or "empty": name for name in HOSTILE}
    tensors = {name: np.arange(64 * (i + 1), dtype="f4").reshape(-1, 8) for i, name in enumerate(HOSTILE)}
    weightstore.numpy.save_file(tensors, path, metadata=metadata)
    weightstore.html_report(path, *([path] if two else []), output=tmp_path / "page.html", values=True)
    page = show(tmp_path / "page.html")
    page.get_by_role("button", name="List").click()
    assert len(labels(page)) == len(HOSTILE)
    assert HOSTILE[0] in labels(page)
    assert "\\u{202e}evil\\u{0}\\u{1b}[31m" in labels(page)
    for i in range(len(HOSTILE)):
        page.locator(f"#row-{i}").click()
        assert page.locator(".details h2").count() == 1
    page.get_by_role("button", name="List").click()
    page.get_by_role("button", name="Expand").click()
    assert page.locator("img, b:not(.facts b), iframe, object, embed").count() == 0
    assert page.locator("script").count() == 2
    assert page.evaluate("Object.prototype.evil === undefined && document.scripts.length === 2")


def test_the_policy_stops_scripts(tmp_path, browser):
    """Should a name ever become markup, the browser would still not run it."""
    markup = "<script>window.ran = 1</script><p onclick='window.ran = 1'>x</p><img src='page.html'>"
    html = document(many_tensors(3), "title").replace("</html>", markup)
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    page = browser.new_page()
    blocked: list[str] = []
    page.on("console", lambda message: blocked.append(message.text))
    page.goto((tmp_path / "page.html").as_uri())
    page.locator("p", has_text="x").last.click()
    assert page.evaluate("window.ran") is None
    assert sum("Content Security Policy" in text for text in blocked) >= 3
    page.close()


def test_a_notebook_shows_the_same(tmp_path, show):
    path = tmp_path / "model.safetensors"
    weightstore.numpy.save_file({HOSTILE[0]: np.ones((4, 4), "f4"), "b.weight": np.ones(3)}, path)
    with weightstore.open(path) as file:
        (tmp_path / "cell.html").write_text(f"<meta charset=utf-8>{file._repr_html_()}", encoding="utf-8")
    page = show(tmp_path / "cell.html")
    frame = page.frame_locator("iframe")
    frame.get_by_role("button", name="List").click()
    assert frame.locator(".row .label").all_inner_texts() == [HOSTILE[0], "b.weight"]
    page.get_by_text("As a table").click()
    assert page.locator("td").first.inner_text() == HOSTILE[0]


# ---- large files -----------------------------------------------------------------------------------------------------


def test_a_hundred_thousand_tensors(tmp_path, show):
    (tmp_path / "page.html").write_text(document(many_tensors(100_000), "many"), encoding="utf-8")
    page = show(tmp_path / "page.html", height=2400)

    def rows() -> int:
        count = page.locator("[role=row]").count()
        assert 1 < count <= MOST_ROWS
        return count

    rows()
    page.get_by_role("button", name="Expand").click()
    rows()
    page.get_by_role("treegrid").focus()
    page.keyboard.press("End")
    rows()
    assert page.locator("[aria-selected=true] .label").inner_text().startswith("up_proj")
    page.get_by_role("button", name="List").click()
    for part in (0.1, 0.5, 1):
        page.locator(".scroller").evaluate(f"e => e.scrollTop = {part} * e.scrollHeight")
        rows()
    page.locator(".row", has_text="layers.249.mlp.experts.99.up_proj.weight").wait_for()
    search(page, "experts.57.up")
    assert page.get_by_role("status").inner_text() == "250 of 100,000 tensors"
    assert rows() > 50
    assert page.locator(".tile").count() < 1000


# ---- odd files -------------------------------------------------------------------------------------------------------


def test_a_file_without_tensors(tmp_path, show):
    weightstore.numpy.save_file({}, tmp_path / "empty.safetensors")
    weightstore.html_report(tmp_path / "empty.safetensors", output=tmp_path / "page.html", values=True)
    page = show(tmp_path / "page.html")
    assert "0 tensors" in page.locator(".facts").inner_text()
    assert labels(page) == []


def test_values_that_are_no_numbers(tmp_path, show):
    tensors = {
        "nan": np.full((3, 3), np.nan, "f4"),
        "inf": np.float32([[np.inf, 1], [-np.inf, 2]]),
        "none": np.zeros((0, 5), "f4"),
        "same": np.ones((2, 2), "f4"),
        "huge": np.float64([[1e308, -1e308], [0, 1]]),
    }
    weightstore.numpy.save_file(tensors, tmp_path / "odd.safetensors")
    weightstore.html_report(tmp_path / "odd.safetensors", output=tmp_path / "page.html", values=True)
    page = show(tmp_path / "page.html")
    for name in tensors:
        row(page, name).click()
        assert page.locator(".details .path").inner_text() == name
    row(page, "inf").click()
    assert "Not finite\n2 infinite" in page.locator(".details").inner_text()
    search(page, "has:nan")
    assert labels(page) == ["nan"]


def test_data_of_another_version_says_so(tmp_path, browser):
    data = many_tensors(3) | {"version": 2}
    (tmp_path / "page.html").write_text(document(data, "later"), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    assert "this viewer reads version 1" in page.get_by_role("alert").inner_text()
    page.close()
