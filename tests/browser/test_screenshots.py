"""Pictures of pages: light, dark, and on a phone. `make test-browser` leaves them in build/screenshots, to be looked at; docs/images has
two of them: page-light as page.png, compare-phone-dark as page-compare.png, reduced to 256 colours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weightstore
import weightstore.numpy

ml_dtypes = pytest.importorskip("ml_dtypes")


def model(path: Path, *, tuned: bool = False) -> Path:
    """A small mixture of experts with element types as such models have them."""
    random = np.random.default_rng(7)
    wide, hidden, experts = 192, 96, 6

    def weights(dtype: Any, *shape: int) -> np.ndarray:
        # Some columns stand out, as in trained models.
        scale = 0.02 * (1 + 4 * (random.random(shape[-1]) > 0.97))
        return (random.normal(0, 1, shape) * scale).astype(dtype)

    tensors: dict[str, np.ndarray] = {
        "model.embed_tokens.weight": weights(ml_dtypes.bfloat16, 3000, wide),
        "model.norm.weight": np.ones(wide, "f4"),
        "lm_head.weight": weights("f2", 3000, wide),
        "model.position_ids": np.arange(4096),
    }
    for layer in range(8):
        prefix = f"model.layers.{layer}"
        for name in "qkvo":
            tensors[f"{prefix}.self_attn.{name}_proj.weight"] = weights(ml_dtypes.bfloat16, wide, wide)
        for expert in range(experts):
            for name, shape in (("up", (hidden * 4, wide)), ("gate", (hidden * 4, wide)), ("down", (wide, hidden * 4))):
                tensors[f"{prefix}.mlp.experts.{expert}.{name}_proj.weight"] = weights(ml_dtypes.float8_e4m3fn, *shape)
        tensors[f"{prefix}.mlp.router.weight"] = weights("f4", experts, wide)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{name}.weight"] = np.ones(wide, "f4")
    if tuned:
        for layer in (5, 6, 7):
            for name in "qv":
                key = f"model.layers.{layer}.self_attn.{name}_proj.weight"
                tensors[key] = (tensors[key].astype("f4") + random.normal(0, 1e-3, (wide, wide))).astype(
                    ml_dtypes.bfloat16
                )
            tensors[f"model.layers.{layer}.self_attn.q_proj.lora_A"] = weights("f4", 8, wide)
        for expert in range(3):
            key = f"model.layers.2.mlp.experts.{expert}.up_proj.weight"
            tensors[key] = tensors[key].astype(ml_dtypes.bfloat16)
        tensors["lm_head.weight"] = weights("f2", 3008, wide)
        del tensors["model.position_ids"]
    metadata = {"format": "pt", "license": "apache-2.0", "training_step": "120000"}
    weightstore.numpy.save_file(tensors, path, metadata=metadata)
    return path


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # a page shows the path as it was given
        first, second = model(Path("moe-base.safetensors")), model(Path("moe-tuned.safetensors"), tuned=True)
        weightstore.html_report(first, output="one.html", values=True)
        weightstore.html_report(first, second, output="two.html", values=True)
    return folder / "one.html", folder / "two.html"


@pytest.mark.parametrize("number", [0, 1], ids=["one", "two"])
@pytest.mark.parametrize("look", ["light", "dark", "phone", "phone-dark"])
def test_screenshot(pages, show, tmp_path, look, number):
    page = show(pages[number], height=960, dark="dark" in look, phone="phone" in look)
    if number == 0 and "phone" not in look:
        page.locator(".row").filter(has=page.get_by_text("0", exact=True)).click()
        page.locator(".row").filter(has=page.get_by_text("self_attn", exact=True)).click()
        page.locator(".row", has_text="q_proj.weight").click()
    folder = Path(os.environ.get("WEIGHTSTORE_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"{('page', 'compare')[number]}-{look}.png"
    page.screenshot(path=picture)
    assert picture.stat().st_size > 20_000  # an empty page is smaller
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
