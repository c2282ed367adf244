// The table of tensors and modules: a treegrid of which only the rows in view are in the document.

import { dtypeColour, statusColour } from "./colours.mjs";
import { element } from "./dom.mjs";
import { STATUSES, shapeOf } from "./table.mjs";
import { countText, exactText, plural, printable, shapeText, shareText, sizeText } from "./text.mjs";
import { mainDtype } from "./tree.mjs";
import { rowWindow, scrollHeight, scrollToRow } from "./window.mjs";

const COLUMNS = [
  { key: "name", title: "Name" },
  { key: "status", title: "Change", onlyOfTwo: true },
  { key: "dtype", title: "Type" },
  { key: "shape", title: "Shape" },
  { key: "elements", title: "Params", onlyOfOne: true },
  { key: "bytes", title: "Size" },
];

/**
 * page: {table, root, rows, order, isTree, selected, isOpen(node)}, read whenever rows are drawn.
 * actions: {select(node), toggle(node), sort(key)}.
 */
export class RowsView {
  constructor(page, actions) {
    this.page = page;
    this.actions = actions;
    this.active = -1; // the row that the keyboard is at
    const isPair = page.table.status !== null;
    const columns = COLUMNS.filter((column) => (isPair ? !column.onlyOfOne : !column.onlyOfTwo));
    this.headers = columns.map((column) => this.header(column));
    this.body = element("div", { class: "rows", role: "rowgroup" });
    this.spacer = element("div", { class: "spacer" }, this.body);
    this.scroller = element("div", { class: "scroller", role: "presentation", onscroll: () => this.draw() }, this.spacer);
    this.grid = element(
      "div",
      {
        class: isPair ? "grid of-two" : "grid",
        role: "treegrid",
        tabindex: "0",
        "aria-label": "Tensors",
        "aria-colcount": columns.length,
        onkeydown: (event) => this.onKey(event),
        onclick: (event) => this.onClick(event),
      },
      element("div", { class: "head", role: "rowgroup" }, element("div", { class: "headings", role: "row" }, ...this.headers)),
      this.scroller,
    );
    this.columns = columns;
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  header({ key, title }) {
    const button = element("button", { type: "button", tabindex: "-1", onclick: () => this.actions.sort(key) }, title);
    return element("div", { role: "columnheader", class: `cell ${key}`, "data-key": key }, button);
  }

  /** Shows the rows of the page after any change of them, from the top if `fromTop`. */
  update({ fromTop = false } = {}) {
    const { rows, order, isTree, selected } = this.page;
    for (const header of this.headers) {
      const direction = order.down ? "descending" : "ascending";
      header.setAttribute("aria-sort", header.dataset.key === order.key ? direction : "none");
    }
    this.grid.setAttribute("role", isTree ? "treegrid" : "grid");
    this.grid.setAttribute("aria-rowcount", rows.length + 1);
    this.active = selected === null ? -1 : rows.indexOf(selected);
    this.spacer.style.height = `${scrollHeight(rows.length, this.rowHeight())}px`;
    if (fromTop) this.scroller.scrollTop = 0;
    this.draw();
  }

  /** Scrolls to the selected row. */
  reveal() {
    if (this.active >= 0) this.scroller.scrollTop = scrollToRow(this.view(), this.active);
    this.draw();
  }

  rowHeight() {
    return parseFloat(getComputedStyle(this.grid).getPropertyValue("--row-height"));
  }

  view() {
    const { scrollTop, clientHeight } = this.scroller;
    return { scrollTop, viewHeight: clientHeight, rows: this.page.rows.length, rowHeight: this.rowHeight() };
  }

  draw() {
    const view = this.view();
    const height = `${scrollHeight(view.rows, view.rowHeight)}px`;
    if (this.spacer.style.height !== height) this.spacer.style.height = height; // the width of the page changed the rows
    const { first, end, top } = rowWindow(view);
    this.body.style.transform = `translateY(${top}px)`;
    this.body.replaceChildren(...this.page.rows.slice(first, end).map((node, i) => this.row(node, first + i)));
    const active = this.active >= first && this.active < end ? `row-${this.active}` : null;
    if (active === null) this.grid.removeAttribute("aria-activedescendant");
    else this.grid.setAttribute("aria-activedescendant", active);
  }

  row(node, index) {
    const { table, root, isTree, selected } = this.page;
    const isModule = node.entry < 0;
    const isOpen = isModule && this.page.isOpen(node);
    const cells = this.columns.map(({ key }) => this[`${key}Cell`](node, table, root, isOpen));
    return element(
      "div",
      {
        class: `row ${isModule ? "module" : "tensor"}`,
        role: "row",
        id: `row-${index}`,
        "data-row": index,
        "aria-rowindex": index + 2,
        "aria-level": isTree ? node.depth + 1 : null,
        "aria-expanded": isModule ? String(isOpen) : null,
        "aria-selected": String(node === selected),
        "--depth": isTree ? node.depth : 0,
        "--share": root.bytes > 0 ? `${((100 * node.bytes) / root.bytes).toFixed(2)}%` : "0%",
      },
      ...cells,
    );
  }

  nameCell(node, table, root, isOpen) {
    const label = printable(this.page.isTree ? node.label : node.path) || "(empty name)";
    return element(
      "div",
      { role: "gridcell", class: "cell name", title: printable(node.path) },
      element("span", { class: isOpen ? "twisty open" : "twisty", "aria-hidden": "true" }),
      element("span", { class: "label" }, label),
      node.entry < 0 ? element("span", { class: "count" }, plural(node.tensors, "tensor")) : null,
    );
  }

  statusCell(node, table) {
    const cell = element("div", { role: "gridcell", class: "cell status" });
    if (node.entry < 0) cell.append(node.changed > 0 ? `${exactText(node.changed)} changed` : "");
    else {
      const { id, word } = STATUSES[table.status[node.entry]];
      cell.append(element("span", { class: "dot", "--colour": statusColour(id), "aria-hidden": "true" }), word);
    }
    return cell;
  }

  dtypeCell(node, table) {
    const main = table.dtypes[mainDtype(node)];
    const isMixed = node.entry < 0 && node.dtypeCounts.filter((count) => count > 0).length > 1;
    return element(
      "div",
      { role: "gridcell", class: "cell dtype" },
      element("span", { class: "dot", "--colour": dtypeColour(main), "aria-hidden": "true" }),
      isMixed ? "mixed" : printable(main),
    );
  }

  shapeCell(node, table) {
    const text = node.entry < 0 ? "" : shapeText(shapeOf(table, node.entry));
    return element("div", { role: "gridcell", class: "cell shape", title: text }, text);
  }

  elementsCell(node) {
    return element("div", { role: "gridcell", class: "cell elements" }, countText(node.elements));
  }

  bytesCell(node, table, root) {
    const title = `${shareText(node.bytes, root.bytes)} of all bytes`;
    return element("div", { role: "gridcell", class: "cell bytes", title }, element("span", {}, sizeText(node.bytes)));
  }

  // ---- hands ----------------------------------------------------------------------------------------------------------

  onClick(event) {
    const row = event.target.closest("[data-row]");
    if (row === null) return;
    const node = this.page.rows[Number(row.dataset.row)];
    this.actions.select(node);
    if (node.entry < 0) this.actions.toggle(node);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.grid) return;
    const { rows, isTree } = this.page;
    const node = rows[this.active];
    const screenful = Math.max(Math.floor(this.scroller.clientHeight / this.rowHeight()) - 1, 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: screenful, PageUp: -screenful, Home: -rows.length, End: rows.length };
    const isModule = node !== undefined && node.entry < 0;
    if (event.key in moves) this.moveTo(Math.min(Math.max(this.active + moves[event.key], 0), rows.length - 1));
    else if (isTree && event.key === "ArrowRight" && isModule) {
      if (!this.page.isOpen(node)) this.actions.toggle(node);
      else this.moveTo(this.active + 1);
    } else if (isTree && event.key === "ArrowLeft" && node !== undefined) {
      if (isModule && this.page.isOpen(node)) this.actions.toggle(node);
      else if (node.parent.parent !== null) this.moveTo(rows.indexOf(node.parent));
    } else if ((event.key === "Enter" || event.key === " ") && isModule) this.actions.toggle(node);
    else return;
    event.preventDefault();
  }

  moveTo(row) {
    if (row < 0 || row >= this.page.rows.length) return;
    this.actions.select(this.page.rows[row]);
    this.reveal();
  }
}
