// Facts about the functions of the viewer that need no browser. `node --test` runs them; test_viewer.py runs node.

import assert from "node:assert/strict";
import { test } from "node:test";

const source = (name) => import(new URL(`${process.env.VIEWER}/${name}.mjs`, "file://"));
const { readData } = await source("data");
const { makeTable, STATUSES } = await source("table");
const { makeTree, countMatches, treeRows, listRows, dtypeShares, mainDtype } = await source("tree");
const { search, parseQuery } = await source("search");
const { layoutTiles } = await source("treemap");
const { rowWindow, scrollToRow, scrollHeight, MOST_ROWS } = await source("window");
const { sizeText, countText, exactText, numberText, shareText, printable, pythonText } = await source("text");
const { dtypeColour } = await source("colours");

/** Data of files: {path: {name: [dtype, shape, bytes]}}. */
function dataOf(files, more = {}) {
  return {
    format: "weightstore-page",
    version: 1,
    generator: "test",
    files: Object.entries(files).map(([path, tensors]) => {
      const dtypes = [...new Set(Object.values(tensors).map(([dtype]) => dtype))];
      const rows = Object.values(tensors);
      const columns = {
        name: Object.keys(tensors),
        dtype: rows.map(([dtype]) => dtypes.indexOf(dtype)),
        shape: rows.map(([, shape]) => shape),
        bytes: rows.map(([, , bytes]) => bytes),
      };
      return { path, format: "SafeTensors", metadata: {}, scalars: {}, left_out: [], dtypes, tensors: columns };
    }),
    ...more,
  };
}

function treeOf(names) {
  const table = makeTable(readData(dataOf({ m: Object.fromEntries(names.map((name, i) => [name, ["F32", [1], 4 * (i + 1)]])) })));
  const root = makeTree(table, 5);
  countMatches(root, null);
  return { table, root };
}

const BY_NAME = { key: "name", down: false };
const rowsOf = ({ root, table }, order = BY_NAME, isOpen = () => true) => treeRows(root, isOpen, order, table);
const labels = (rows) => rows.map((node) => `${" ".repeat(node.depth)}${node.label}`);

test("text", () => {
  assert.deepEqual([0, 1, 999, 1000, 1234567, 13.5e9, 2e15].map(sizeText), ["0 B", "1 B", "999 B", "1.00 kB", "1.23 MB", "13.5 GB", "2.00 PB"]);
  assert.equal(sizeText(999999), "1.00 MB");
  assert.deepEqual([7, 4096, 6.74e9].map(countText), ["7", "4.10 K", "6.74 B"]);
  assert.deepEqual([0, 999, 1000, 45088768, "18446744073709551615"].map(exactText), [
    "0", "999", "1,000", "45,088,768", "18,446,744,073,709,551,615",
  ]);
  assert.deepEqual([0, -0.31, 1.2e-5, 12345678, "NaN", "-Infinity"].map(numberText), ["0", "−0.31", "1.200e−5", "1.235e7", "NaN", "−∞"]);
  assert.deepEqual([[0, 1], [1, 1], [1, 3], [1, 1e6], [999999, 1e6], [0, 0]].map(([a, b]) => shareText(a, b)), [
    "0 %", "100 %", "33 %", "< 0.1 %", "> 99.9 %", "0 %",
  ]);
});

test("names are shown without characters that nobody sees", () => {
  assert.equal(printable("weight\u202egnp.exe\0\u200b\x1b[31m"), "weight\\u{202e}gnp.exe\\u{0}\\u{200b}\\u{1b}[31m");
  assert.equal(printable("層.weight 🙂 é"), "層.weight 🙂 é");
  assert.equal(printable("\ud800x"), "\\u{d800}x");
  assert.equal(pythonText('a"b\\c\n\u202e'), '"a\\"b\\\\c\\n\\u202e"');
});

test("data of another version or form is refused with a sentence", () => {
  assert.throws(() => readData(null), /no data of weightstore/);
  assert.throws(() => readData({ format: "other" }), /no data of weightstore/);
  assert.throws(() => readData({ ...dataOf({ m: {} }), version: 2 }), /version 2; this viewer reads version 1/);
  assert.throws(() => readData({ ...dataOf({ m: {} }), files: [] }), /one file, or two/);
  const short = dataOf({ m: { a: ["F32", [1], 4] } });
  short.files[0].tensors.bytes = [];
  assert.throws(() => readData(short), /1 names and 0 of bytes/);
});

test("large numbers are text, and still count", () => {
  const { files } = readData(dataOf({ m: { a: ["F32", ["18446744073709551615", 0], 0] } }));
  assert.equal(files[0].elements[0], 0);
});

test("a tree has modules with totals, and one row for a module with one tensor", () => {
  const tree = treeOf(["head.weight", "layers.0.a", "layers.0.b", "layers.1.a.b.c", "layers.10.a", "layers.2.a"]);
  assert.deepEqual(labels(rowsOf(tree)), ["head.weight", "layers", " 0", "  a", "  b", " 1.a.b.c", " 2.a", " 10.a"]);
  assert.equal(tree.root.bytes, 4 * 21);
  assert.equal(tree.root.tensors, 6);
  const layers = tree.root.children.find((node) => node.label === "layers");
  assert.deepEqual([layers.bytes, layers.tensors, layers.path], [80, 5, "layers"]);
  assert.deepEqual(labels(rowsOf(tree, BY_NAME, () => false)), ["head.weight", "layers"]);
});

test("names need not be sorted, nor well formed", () => {
  const names = ["z.b", "a", "a.b", "a.c", "", ".", "..", "z.a", "a.", ".x", "constructor.__proto__", "__proto__"];
  const tree = treeOf(names);
  const tensors = rowsOf(tree).filter((node) => node.entry >= 0);
  assert.deepEqual(tensors.map((node) => node.path).sort(), [...names].sort());
  for (const node of tensors) {
    let path = node.label;
    for (let up = node.parent; up.parent !== null; up = up.parent) path = `${up.label}.${path}`;
    assert.equal(path, node.path);
  }
});

test("a name of many dots makes no tower", () => {
  const deep = "a.".repeat(20000);
  const rows = rowsOf(treeOf([`${deep}x`, `${deep}y`, ...Array.from({ length: 200 }, (_, i) => "b.".repeat(i) + "w")]));
  assert.ok(Math.max(...rows.map((node) => node.depth)) < 40);
});

test("totals of random trees are those of their tensors", () => {
  let seed = 1;
  const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
  for (let round = 0; round < 50; round += 1) {
    const names = new Set();
    for (let i = 0; i < 60; i += 1) names.add(Array.from({ length: 1 + random(4) }, () => "abc"[random(3)] + (random(2) ? random(12) : "")).join("."));
    const { root } = treeOf([...names]);
    for (const module of root.modules) {
      const inside = root.leaves.filter((leaf) => module === root || leaf.path.startsWith(`${module.path}.`));
      assert.equal(module.tensors, inside.length);
      assert.equal(module.bytes, inside.reduce((sum, leaf) => sum + leaf.bytes, 0));
      assert.equal(dtypeShares(module)[0].bytes, module.bytes);
      assert.ok(module === root || module.children.length > 1);
    }
  }
});

test("sorting", () => {
  const table = makeTable(readData(dataOf({ m: { a: ["F32", [9], 36], b10: ["BF16", [1], 2], b9: ["BF16", [50], 100], c: ["I8", [3], 3] } })));
  const root = makeTree(table, 5);
  countMatches(root, null);
  const list = (key, down) => listRows(root, { key, down }, table).map((node) => node.label).join(" ");
  const tree = (key, down) => treeRows(root, () => true, { key, down }, table).map((node) => node.label).join(" ");
  for (const rows of [list, tree]) {
    assert.equal(rows("name", false), "a b9 b10 c");
    assert.equal(rows("name", true), "c b10 b9 a");
    assert.equal(rows("bytes", true), "b9 a c b10");
    assert.equal(rows("elements", false), "b10 c a b9");
    assert.equal(rows("dtype", false), "b9 b10 a c");
  }
});

test("search", () => {
  const table = makeTable(
    readData(dataOf({ m: { "layers.0.Attn.weight": ["BF16", [8, 4096], 1], "layers.1.mlp.weight": ["F16", [4096], 1], "x*y.bias": ["F32", [40960], 1] } })),
  );
  const found = (query) => [...(search(table, query) ?? [])].join("");
  assert.equal(search(table, "  "), null);
  assert.equal(found("WEIGHT"), "110");
  assert.equal(found("layers attn"), "100");
  assert.equal(found("layers.*.mlp"), "010");
  assert.equal(found("x*y*bias"), "001");
  assert.equal(found("[.^$"), "000");
  assert.equal(found("dtype:f16"), "010"); // not BF16
  assert.equal(found("dtype:16"), "110");
  assert.equal(found("shape:4096"), "110");
  assert.equal(found("is:changed"), "000");
  assert.equal(found("has:nan"), "000");
  table.files[0].statistics = { 1: { nans: 3, infinities: 0 } };
  assert.equal(found("has:nan"), "010");
  assert.equal(found("has:inf"), "000");
  assert.deepEqual(parseQuery("a:b dtype:x"), [
    { field: "name", text: "a:b" },
    { field: "dtype", text: "x" },
  ]);
});

test("two files by name", () => {
  const one = { same: ["F32", [1], 4], gone: ["F32", [1], 4], type: ["F32", [2], 8], shape: ["F32", [2], 8], values: ["F32", [2], 8] };
  const two = { same: ["F32", [1], 4], type: ["BF16", [2], 4], shape: ["F32", [3], 12], values: ["F32", [2], 8], fresh: ["U8", [1], 1] };
  const statuses = (more) => {
    const table = makeTable(readData(dataOf({ a: one, b: two }, more)));
    return Object.fromEntries(table.names.map((name, i) => [name, STATUSES[table.status[i]].id]));
  };
  const plain = { same: "same", gone: "removed", type: "dtype", shape: "shape", values: "same", fresh: "added" };
  assert.deepEqual(statuses(), plain);
  assert.deepEqual(statuses({ differences: { 4: { count: 2, differing: 1, unmeasured: 0, max_absolute: 1, max_relative: 1 } } }), {
    ...plain,
    values: "values",
  });
});

test("tiles fill their box in proportion to bytes, and are few", () => {
  const names = Array.from({ length: 3000 }, (_, i) => `m.${i % 7}.${i}`);
  const { root } = treeOf(names);
  const tiles = layoutTiles(root, 600, 400);
  assert.ok(tiles.length < 600);
  for (const { x, y, width, height } of tiles) {
    assert.ok(x >= -1e-6 && y >= -1e-6 && x + width <= 600 + 1e-6 && y + height <= 400 + 1e-6);
    assert.ok(width > 0 && height > 0);
  }
  const top = tiles.filter(({ node }) => node.parent === root);
  const area = top.reduce((sum, { width, height }) => sum + width * height, 0);
  assert.ok(Math.abs(area - 600 * 400) < 1);
  for (const { node, width, height } of top) assert.ok(Math.abs((width * height) / 240000 - node.bytes / root.bytes) < 1e-6);
  assert.deepEqual(layoutTiles(treeOf([]).root, 600, 400), []);
});

test("tiles of one module do not overlap", () => {
  const { root } = treeOf(Array.from({ length: 40 }, (_, i) => `t${i}`));
  const tiles = layoutTiles(root, 500, 300).filter(({ isGroup }) => !isGroup);
  for (const [i, a] of tiles.entries())
    for (const b of tiles.slice(i + 1)) {
      const wide = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
      const high = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
      assert.ok(wide < 1e-6 || high < 1e-6);
    }
});

test("the window has the rows that are seen, never many, and reaches both ends", () => {
  for (const rows of [0, 1, 10, 1000, 100000, 5000000])
    for (const viewHeight of [0, 30, 600, 20000])
      for (const part of [0, 0.3, 0.999, 1]) {
        const rowHeight = 28;
        const scrollTop = part * Math.max(scrollHeight(rows, rowHeight) - viewHeight, 0);
        const view = { scrollTop, viewHeight, rows, rowHeight };
        const { first, end, top } = rowWindow(view);
        assert.ok(first >= 0 && end <= rows && end - first <= MOST_ROWS);
        if (part === 0) assert.equal(first, 0);
        if (viewHeight < 4000) {
          if (part === 1) assert.equal(end, rows);
          assert.ok(top <= scrollTop + 1e-6);
          assert.ok(top + (end - first) * rowHeight >= Math.min(scrollTop + viewHeight, scrollHeight(rows, rowHeight)) - 1e-3);
        }
        for (const row of [0, Math.floor(rows / 2), rows - 1].filter((row) => row >= 0 && row < rows && viewHeight >= rowHeight)) {
          const there = rowWindow({ ...view, scrollTop: scrollToRow(view, row) });
          if (viewHeight < 4000) assert.ok(there.first <= row && row < there.end);
        }
      }
});

test("every type has a colour", () => {
  for (const dtype of ["F32", "BF16", "F8_E4M3", "I64", "U16", "BOOL", "QFloat", "Q4_K", "IQ2_XS", "C64", "F4", "?"])
    assert.match(dtypeColour(dtype), /^var\(--type-[a-z0-9]+\)$/);
  assert.equal(mainDtype(treeOf(["a", "b"]).root), 0);
});
