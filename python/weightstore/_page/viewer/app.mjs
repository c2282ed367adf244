// The page: puts the parts together, and holds what is shown.

import { statusColour } from "./colours.mjs";
import { readData } from "./data.mjs";
import { detailsOf, dtypeParts, sharesBar } from "./details.mjs";
import { element } from "./dom.mjs";
import { RowsView } from "./rows.mjs";
import { lowerNames, search } from "./search.mjs";
import { STATUSES, makeTable } from "./table.mjs";
import { countText, exactText, plural, printable, shareText, sizeText } from "./text.mjs";
import { TilesView } from "./tiles.mjs";
import { countMatches, listRows, makeTree, numberNodes, treeRows } from "./tree.mjs";

const ROWS_AT_FIRST = 60;
const SHARE_AT_FIRST = 0.3; // of all bytes, of a module that is open at first
const THEMES = ["auto", "light", "dark"];

/** Shows data of the format of docs/page.md in an element. What is wrong with the data is said in the element. */
export function show(place, data) {
  try {
    new App(place, readData(data));
  } catch (error) {
    place.replaceChildren(element("p", { class: "failed", role: "alert" }, error.message));
    throw error;
  }
}

class App {
  constructor(place, data) {
    this.table = makeTable(data);
    this.root = makeTree(this.table, STATUSES.length - 1);
    this.place = place;
    this.query = "";
    this.isTree = true;
    this.order = { key: "name", down: false };
    this.open = new Set();
    this.closedInSearch = new Set(); // what a search found is open, until it is closed by hand
    this.selected = null;
    this.rows = [];
    countMatches(this.root, null);
    this.openSome();

    const actions = { select: (node) => this.select(node), toggle: (node) => this.toggle(node), sort: (key) => this.sort(key) };
    this.rowsView = new RowsView(this, actions);
    this.tilesView = new TilesView(this, { select: (node) => this.reveal(node) });
    this.details = element("section", { class: "details", "aria-label": "Details", tabindex: "0" });
    this.found = element("output", { class: "found", role: "status" });
    this.searchBox = this.makeSearchBox();
    this.place.replaceChildren(
      this.makeHeader(),
      element(
        "main",
        {},
        element("section", { class: "browse", "aria-label": "Tensors by module" }, this.makeToolbar(), this.rowsView.grid),
        this.tilesView.section,
        this.details,
      ),
    );
    document.addEventListener("keydown", (event) => this.onKey(event));
    this.updateRows();
    this.updateDetails();
    setTimeout(() => this.prepare(), 100);
  }

  /** What the first search and the first sort need, after the page is seen. */
  prepare() {
    lowerNames(this.table);
    numberNodes(this.root);
  }

  /** Opens the modules with much of the bytes, as long as there are not too many rows; and one that is alone. */
  openSome() {
    let rows = this.root.children.length;
    const pending = [this.root];
    while (pending.length > 0) {
      const candidates = pending.shift().children.filter((child) => child.entry < 0 && child.bytes >= SHARE_AT_FIRST * this.root.bytes);
      for (const node of candidates.sort((x, y) => y.bytes - x.bytes)) {
        if (rows > 1 && rows + node.children.length > ROWS_AT_FIRST) continue;
        rows += node.children.length;
        this.open.add(node);
        pending.push(node);
      }
    }
  }

  // ---- the parts ------------------------------------------------------------------------------------------------------

  makeHeader() {
    const { files, status } = this.table;
    const titles = files.map((file) => element("span", { class: "file", title: printable(file.path) }, printable(baseName(file.path))));
    const title = element("h1", {}, ...(titles.length === 1 ? titles : [titles[0], element("span", { class: "to" }, " → "), titles[1]]));
    const formats = [...new Set(files.map((file) => file.format))].join(", ");
    const facts = element(
      "p",
      { class: "facts" },
      ...[
        [formats, ""],
        [exactText(this.root.tensors), this.root.tensors === 1 ? "tensor" : "tensors"],
        [countText(this.root.elements), "parameters"],
        [sizeText(this.root.bytes), ""],
      ].map(([value, noun]) => element("span", {}, element("b", {}, value), noun === "" ? "" : ` ${noun}`)),
    );
    return element(
      "header",
      {},
      element("div", { class: "title" }, title, this.makeThemeButton()),
      facts,
      ...(status === null ? this.makeTypes() : this.makeChanges()),
    );
  }

  /** The types: a bar, and for each a button that finds its tensors. */
  makeTypes() {
    const parts = dtypeParts(this.root, this.table);
    const buttons = parts.map(({ name, title, colour, bytes }) =>
      this.filterButton(`dtype:${name.toLowerCase()}`, colour, title, shareText(bytes, this.root.bytes)),
    );
    const legend = element("div", { class: "legend", role: "group", "aria-label": "Find tensors of a type" }, ...buttons);
    return [sharesBar("Types by bytes", parts), legend];
  }

  /** What differs between two files: a bar, and for each kind a button that finds its tensors. */
  makeChanges() {
    const parts = STATUSES.map(({ id, title }) => ({ id, title, colour: statusColour(id), bytes: 0, count: 0 }));
    this.table.status.forEach((status, i) => {
      parts[status].bytes += this.table.bytes[i];
      parts[status].count += 1;
    });
    const shown = parts.filter(({ count }) => count > 0);
    const buttons = shown.map(({ id, title, colour, count }) => this.filterButton(`is:${id}`, colour, title, exactText(count)));
    const legend = element("div", { class: "legend", role: "group", "aria-label": "Find differences" }, ...buttons);
    return [sharesBar("Differences by bytes", shown), legend];
  }

  filterButton(query, colour, title, amount) {
    const onclick = () => this.setQuery(this.query === query ? "" : query);
    const dot = element("span", { class: "dot", "--colour": colour, "aria-hidden": "true" });
    return element("button", { type: "button", "data-query": query, "aria-pressed": "false", onclick }, dot, title, element("span", { class: "amount" }, amount));
  }

  makeThemeButton() {
    const button = element("button", { type: "button", class: "theme" });
    const set = (theme) => {
      document.documentElement.dataset.theme = theme;
      button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
      button.title = `Colours: ${theme}`;
      button.setAttribute("aria-label", `Colours: ${theme}. Change`);
    };
    button.addEventListener("click", () => set(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]));
    set("auto");
    return button;
  }

  makeSearchBox() {
    return element("input", {
      type: "search",
      placeholder: "Search names, or dtype:bf16 …",
      "aria-label": "Search tensors by words of their names, dtype:, shape:, has:nan or is:changed",
      spellcheck: "false",
      autocomplete: "off",
      oninput: () => this.setQuery(this.searchBox.value),
      onkeydown: (event) => {
        if (event.key === "ArrowDown") {
          this.rowsView.grid.focus();
          event.preventDefault();
        }
      },
    });
  }

  makeToolbar() {
    const button = (text, title, onclick) => element("button", { type: "button", title, onclick }, text);
    this.modeButton = button("List", "Show a flat list of tensors instead of the tree", () => this.setTree(!this.isTree));
    this.modeButton.setAttribute("aria-pressed", "false");
    return element(
      "div",
      { class: "toolbar", role: "toolbar", "aria-label": "Table" },
      this.searchBox,
      this.modeButton,
      button("Expand", "Open all modules", () => this.setOpen(true)),
      button("Collapse", "Close all modules", () => this.setOpen(false)),
      this.found,
    );
  }

  // ---- what changes ---------------------------------------------------------------------------------------------------

  isOpen(node) {
    return this.query === "" ? this.open.has(node) : !this.closedInSearch.has(node);
  }

  setQuery(query) {
    this.query = query.trim();
    if (this.searchBox.value.trim() !== this.query) this.searchBox.value = this.query;
    this.closedInSearch.clear();
    countMatches(this.root, search(this.table, this.query));
    for (const button of this.place.querySelectorAll("[data-query]"))
      button.setAttribute("aria-pressed", String(button.dataset.query === this.query));
    this.found.textContent = this.query === "" ? "" : `${exactText(this.root.matches)} of ${plural(this.root.tensors, "tensor")}`;
    this.updateRows({ fromTop: true });
  }

  /** Sorts by a column, or the other way round if the table is sorted by it. Numbers begin with the largest. */
  sort(key) {
    const isFirst = this.order.key !== key;
    this.order = { key, down: isFirst ? ["bytes", "elements", "shape", "status"].includes(key) : !this.order.down };
    this.updateRows({ fromTop: true });
  }

  setTree(isTree) {
    this.isTree = isTree;
    this.modeButton.setAttribute("aria-pressed", String(!isTree));
    this.updateRows({ fromTop: true });
    this.rowsView.reveal();
  }

  setOpen(isOpen) {
    const set = this.query === "" ? this.open : this.closedInSearch;
    set.clear();
    if (isOpen === (this.query === "")) {
      const pending = [this.root];
      while (pending.length > 0) {
        const node = pending.pop();
        set.add(node);
        for (const child of node.children) if (child.entry < 0) pending.push(child);
      }
    }
    this.updateRows();
  }

  toggle(node) {
    const set = this.query === "" ? this.open : this.closedInSearch;
    if (!set.delete(node)) set.add(node);
    this.updateRows();
  }

  select(node) {
    this.selected = node;
    this.rowsView.active = this.rows.indexOf(node);
    this.rowsView.draw();
    this.tilesView.mark();
    this.updateDetails();
  }

  /** Selects a node, and makes the table show it. */
  reveal(node) {
    if (node.matches === 0) this.setQuery("");
    if (!this.isTree && node.entry < 0) this.setTree(true);
    for (let up = node.parent; up !== null; up = up.parent) {
      if (this.query === "") this.open.add(up);
      else this.closedInSearch.delete(up);
    }
    this.selected = node;
    this.updateRows();
    this.select(node);
    this.rowsView.reveal();
  }

  updateRows(options) {
    this.rows = this.isTree
      ? treeRows(this.root, (node) => this.isOpen(node), this.order, this.table)
      : listRows(this.root, this.order, this.table);
    this.rowsView.update(options);
  }

  updateDetails() {
    this.details.replaceChildren(...detailsOf(this.selected, this, { select: (node) => this.reveal(node) }));
    this.details.scrollTop = 0;
  }

  onKey(event) {
    const isTyping = event.target instanceof HTMLInputElement;
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
      this.searchBox.focus();
      event.preventDefault();
    } else if (event.key === "Escape" && isTyping) this.setQuery("");
  }
}

function baseName(path) {
  return path.replace(/\/+$/, "").replace(/^.*\//s, "") || path;
}
