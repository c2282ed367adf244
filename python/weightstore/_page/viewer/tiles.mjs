// The treemap: tiles that are buttons.

import { dtypeColour, statusColour } from "./colours.mjs";
import { element } from "./dom.mjs";
import { STATUSES } from "./table.mjs";
import { plural, printable, shareText, sizeText } from "./text.mjs";
import { dtypeShares, mainDtype } from "./tree.mjs";
import { layoutTiles } from "./treemap.mjs";

/** page: {table, root, selected}. actions: {select(node)}: shows a node in the table. */
export class TilesView {
  constructor(page, actions) {
    this.page = page;
    this.actions = actions;
    this.zoomed = page.root;
    this.trail = element("nav", { class: "trail", "aria-label": "Module shown" });
    this.tiles = element("div", {
      class: "tiles",
      role: "group",
      "aria-label": "Bytes by module. Arrow keys move between tiles; Enter selects.",
      onkeydown: (event) => this.onKey(event),
    });
    this.section = element("section", { class: "map", "aria-label": "Bytes by module" }, this.trail, this.tiles);
    new ResizeObserver(() => this.draw()).observe(this.tiles);
  }

  zoom(node) {
    this.zoomed = node;
    this.draw();
  }

  draw() {
    this.drawTrail();
    const { width, height } = this.tiles.getBoundingClientRect();
    this.places = layoutTiles(this.zoomed, width, height);
    this.tiles.replaceChildren(...this.places.map((place) => this.tile(place)));
    if (this.places.length === 0) this.tiles.append(element("p", { class: "nothing" }, "No bytes to show."));
    else this.tiles.firstElementChild.tabIndex = 0;
    this.mark();
  }

  drawTrail() {
    const path = [];
    for (let node = this.zoomed; node !== null; node = node.parent) path.unshift(node);
    const steps = path.map((node) => {
      const label = node.parent === null ? "All bytes" : printable(node.label) || "(empty name)";
      if (node === this.zoomed) return element("span", { "aria-current": "location" }, label);
      return element("button", { type: "button", onclick: () => this.zoom(node) }, label);
    });
    const size = element("span", { class: "total" }, sizeText(this.zoomed.bytes));
    this.trail.replaceChildren(...steps, size);
  }

  tile({ node, x, y, width, height, isGroup }) {
    const { table, root } = this.page;
    const name = printable(node.label) || "(empty name)";
    const bytes = sizeText(node.bytes);
    const what = `${printable(node.path) || name}, ${bytes}, ${this.describe(node, root, table)}`;
    const isNamed = width > 26 && height > 15;
    const isSized = isNamed && (isGroup ? width > 120 : height > 30 && width > 56);
    const made = element(
      "button",
      {
        type: "button",
        tabindex: "-1",
        class: isGroup ? "tile group" : "tile",
        title: what,
        "aria-label": what,
        "--colour": isGroup ? null : this.colour(node, table),
        onclick: () => (node.entry < 0 ? this.enter(node) : this.actions.select(node)),
      },
      isNamed ? element("span", { class: "label" }, name) : null,
      isSized ? element("span", { class: "size" }, bytes) : null,
    );
    Object.assign(made.style, { left: `${x}px`, top: `${y}px`, width: `${Math.max(width - 1, 1)}px`, height: `${Math.max(height - 1, 1)}px` });
    return made;
  }

  /** A module's tile shows the inside of the module, and the module in the table. */
  enter(node) {
    const hadFocus = this.tiles.contains(document.activeElement);
    this.zoom(node);
    if (hadFocus) this.tiles.firstElementChild.focus();
    const isBundle = node.parent !== null && !node.parent.children.includes(node);
    this.actions.select(isBundle ? node.parent : node);
  }

  describe(node, root, table) {
    const share = shareText(node.bytes, root.bytes);
    const type = printable(table.dtypes[mainDtype(node)]);
    return node.entry < 0 ? `${share}, ${plural(node.tensors, "tensor")}, mostly ${type}` : `${share}, ${type}`;
  }

  /** Of one file: the colours of the types. Of two: what is different, and for a module how much of it. */
  colour(node, table) {
    if (table.status === null && node.entry >= 0) return dtypeColour(table.dtypes[node.dtype]);
    if (table.status === null)
      return stripes(
        "to right",
        dtypeShares(node).map(({ dtype, bytes }) => [dtypeColour(table.dtypes[dtype]), bytes / node.bytes]),
      );
    if (node.entry >= 0) return statusColour(STATUSES[table.status[node.entry]].id);
    const part = node.changed === 0 ? 0 : Math.max(node.changedBytes / node.bytes, 0.08);
    return stripes("to top", [
      [statusColour("mixed"), part],
      [statusColour("same"), 1 - part],
    ]);
  }

  /** Marks the tile of the selected node. */
  mark() {
    const { selected } = this.page;
    (this.places ?? []).forEach(({ node }, i) => {
      this.tiles.children[i].classList.toggle("selected", node === selected);
    });
  }

  /** Arrow keys go to the nearest tile in their direction. */
  onKey(event) {
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const from = [...this.tiles.children].indexOf(event.target);
    if (event.key === "Escape" && this.zoomed.parent !== null) this.zoom(this.zoomed.parent);
    if (direction === undefined || from < 0) return;
    event.preventDefault();
    const centre = (place) => [place.x + place.width / 2, place.isGroup ? place.y + 8 : place.y + place.height / 2];
    const [x, y] = centre(this.places[from]);
    let [best, nearest] = [-1, Infinity];
    this.places.forEach((place, i) => {
      const [dx, dy] = [centre(place)[0] - x, centre(place)[1] - y];
      const along = dx * direction[0] + dy * direction[1];
      const across = Math.abs(dx * direction[1] + dy * direction[0]);
      if (along > 0.5 && along + 2 * across < nearest) [best, nearest] = [i, along + 2 * across];
    });
    if (best < 0) return;
    event.target.tabIndex = -1;
    this.tiles.children[best].tabIndex = 0;
    this.tiles.children[best].focus();
  }
}

/** A background of stripes: [[colour, share], ...]. */
function stripes(direction, parts) {
  let from = 0;
  const stops = parts.map(([colour, share]) => {
    const begin = from;
    from += 100 * share;
    return `${colour} ${begin.toFixed(2)}% ${from.toFixed(2)}%`;
  });
  return `linear-gradient(${direction}, ${stops.join(", ")})`;
}
