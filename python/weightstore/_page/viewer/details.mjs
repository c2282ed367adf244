// What is known about the selected tensor or module, or about the files if nothing is selected.

import { dtypeColour, statusColour } from "./colours.mjs";
import { element } from "./dom.mjs";
import { histogramPicture, matrixPicture } from "./pictures.mjs";
import { STATUSES } from "./table.mjs";
import { countText, exactText, numberText, plural, printable, pythonText, shapeText, shareText, sizeText } from "./text.mjs";
import { dtypeShares } from "./tree.mjs";

const LARGEST = 8;
const MOST_LINES = 200; // of metadata and the like

/** The contents of the panel for a node. actions: {select(node)}. */
export function detailsOf(node, { table, root }, actions) {
  if (node === null || node === root) return [...filesPart(table), ...largestPart(root, actions)];
  const heading = element("h2", { class: "path" }, printable(node.path) || "(empty name)");
  return [heading, ...(node.entry < 0 ? modulePart(node, root, table, actions) : tensorPart(node, root, table))];
}

function facts(pairs, style = "") {
  const shown = pairs.filter(([, value]) => value !== null && value !== "");
  return element("dl", { class: style }, ...shown.flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, value)]));
}

/** A bar of parts: [{title, colour, bytes}]. */
export function sharesBar(label, parts) {
  const whole = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  const spans = parts.map(({ colour, bytes }) => element("span", { "--colour": colour, "--share": `${(100 * bytes) / (whole || 1)}%` }));
  const text = parts.map(({ title, bytes }) => `${title} ${shareText(bytes, whole)}`).join(", ");
  return element("div", { class: "bar", role: "img", "aria-label": `${label}: ${text}` }, ...spans);
}

/** The types in a node, as parts of a bar. */
export function dtypeParts(node, table) {
  return dtypeShares(node).map(({ dtype, bytes, tensors }) => {
    const name = table.dtypes[dtype];
    return { name, title: printable(name), colour: dtypeColour(name), bytes, tensors };
  });
}

function sharesPart(node, table) {
  const parts = dtypeParts(node, table);
  const lines = parts.map(({ title, colour, bytes, tensors }) =>
    element(
      "li",
      {},
      element("span", { class: "dot", "--colour": colour, "aria-hidden": "true" }),
      `${title} — ${sizeText(bytes)}, ${plural(tensors, "tensor")}`,
    ),
  );
  return [sharesBar("Types by bytes", parts), element("ul", { class: "shares" }, ...lines)];
}

function modulePart(node, root, table, actions) {
  const changed = table.status === null ? "" : plural(node.changed, "tensor");
  return [
    facts([
      ["Tensors", exactText(node.tensors)],
      ["Parameters", `${countText(node.elements)} (${exactText(node.elements)})`],
      ["Size", `${sizeText(node.bytes)}, ${shareText(node.bytes, root.bytes)} of all`],
      ["Changed", changed],
    ]),
    ...sharesPart(node, table),
    ...largestPart(node, actions),
  ];
}

/** The largest tensors in a module, without sorting all of them. */
function largestPart(node, actions) {
  const largest = [];
  const pending = [node];
  while (pending.length > 0) {
    const next = pending.pop();
    if (largest.length === LARGEST && next.bytes <= largest[LARGEST - 1].bytes) continue;
    if (next.children !== null) {
      for (const child of next.children) pending.push(child);
      continue;
    }
    largest.push(next);
    largest.sort((x, y) => y.bytes - x.bytes);
    largest.length = Math.min(largest.length, LARGEST);
  }
  if (largest.length < 2) return [];
  const lines = largest.map((leaf) =>
    element(
      "li",
      {},
      element("button", { type: "button", class: "link", onclick: () => actions.select(leaf) }, printable(leaf.path) || "(empty name)"),
      element("span", { class: "size" }, sizeText(leaf.bytes)),
    ),
  );
  return [element("h3", {}, "Largest tensors"), element("ol", { class: "largest" }, ...lines)];
}

// ---- a tensor -------------------------------------------------------------------------------------------------------

function tensorPart(node, root, table) {
  const [one, two] = [table.first[node.entry], table.second === null ? -1 : table.second[node.entry]];
  const parts = [];
  if (table.status !== null) parts.push(statusPart(node, table));
  const isPair = one >= 0 && two >= 0;
  table.files.forEach((file, number) => {
    const place = number === 0 ? one : two;
    if (place < 0) return;
    if (isPair) parts.push(element("h3", {}, number === 0 ? "First: " : "Second: ", printable(file.path)));
    parts.push(...tensorOfFile(file, place, root));
  });
  return parts;
}

function statusPart(node, table) {
  const { id, title } = STATUSES[table.status[node.entry]];
  const first = table.first[node.entry];
  const difference = table.differences?.[first];
  // A tensor without statistics is of a type that has no numbers.
  const isCompared = table.differences !== null && table.files[0].statistics?.[first] !== undefined;
  const parts = [id === "same" ? (isCompared ? "same type, shape and values" : "same type and shape; values were not compared") : title];
  if (difference?.differing > 0) {
    const count = `${plural(difference.differing, "value")} of ${exactText(difference.count)}`;
    const distance = `by at most ${numberText(difference.max_absolute)} (relative ${numberText(difference.max_relative)})`;
    parts.push(`${count} differ, ${distance}`);
  } else if (difference !== undefined) parts.push("all values are equal");
  const dot = element("span", { class: "dot", "--colour": statusColour(id), "aria-hidden": "true" });
  return element("p", { class: "change" }, dot, parts.join("; "));
}

function tensorOfFile(file, place, root) {
  const bytes = file.bytes[place];
  const parts = [
    facts([
      ["Type", printable(file.dtypes[file.dtype[place]])],
      ["Shape", shapeText(file.shape[place])],
      ["Parameters", exactText(file.elements[place])],
      ["Size", `${sizeText(bytes)} (${exactText(bytes)} bytes), ${shareText(bytes, root.bytes)} of all`],
      ["File", file.shard === null ? "" : printable(file.shards[file.shard[place]])],
      ["Param id", file.paramId?.[place] ?? ""],
    ]),
  ];
  const statistics = file.statistics?.[place];
  if (statistics) parts.push(statisticsPart(statistics));
  const pictures = [
    statistics?.histogram?.length > 0 ? histogramPicture(Number(statistics.min), Number(statistics.max), statistics.histogram) : null,
    file.images[place] ? matrixPicture(file.images[place]) : null,
  ];
  if (pictures.some((picture) => picture !== null)) parts.push(element("div", { class: "pictures" }, ...pictures));
  const code = `weightstore.open(${pythonText(file.path)})[${pythonText(file.name[place])}]`;
  parts.push(facts([["Python", element("code", {}, code)]]));
  return parts;
}

function statisticsPart(statistics) {
  const { zeros, nans, infinities } = statistics;
  const odd = [nans > 0 ? `${exactText(nans)} NaN` : "", infinities > 0 ? `${exactText(infinities)} infinite` : ""];
  return facts(
    [
      ["Minimum", numberText(statistics.min)],
      ["Maximum", numberText(statistics.max)],
      ["Mean", numberText(statistics.mean)],
      ["Std. dev.", numberText(statistics.std)],
      ["Zeros", zeros > 0 ? exactText(zeros) : "none"],
      ["Not finite", odd.filter((text) => text !== "").join(", ") || "none"],
    ],
    "pairs",
  );
}

// ---- the files ------------------------------------------------------------------------------------------------------

function filesPart(table) {
  return table.files.flatMap((file) => [
    element("h2", { class: "path" }, printable(file.path)),
    facts(fileFacts(file)),
    ...listPart("Metadata", Object.entries(file.metadata)),
    ...listPart("Scalars", Object.entries(file.scalars)),
    ...listPart("Shards", shardLines(file)),
    ...listPart("Left out", file.leftOut.map(({ name, type, reason }) => [name, `${type}: ${reason}`])),
  ]);
}

function fileFacts(file) {
  return [
    ["Format", file.format],
    ["Tensors", exactText(file.name.length)],
    ["Parameters", countText(file.elements.reduce((sum, count) => sum + count, 0))],
    ["Size", sizeText(file.bytes.reduce((sum, bytes) => sum + bytes, 0))],
  ];
}

function shardLines(file) {
  if (file.shard === null) return [];
  const bytes = new Float64Array(file.shards.length);
  const tensors = new Float64Array(file.shards.length);
  file.shard.forEach((shard, i) => {
    bytes[shard] += file.bytes[i];
    tensors[shard] += 1;
  });
  return file.shards.map((name, i) => [name, `${plural(tensors[i], "tensor")}, ${sizeText(bytes[i])}`]);
}

function listPart(title, pairs) {
  if (pairs.length === 0) return [];
  const shown = pairs.slice(0, MOST_LINES).map(([key, value]) => [printable(key), printable(value)]);
  const rest = pairs.length - shown.length;
  const more = rest > 0 ? element("p", { class: "nothing" }, `and ${exactText(rest)} more`) : null;
  return [element("h3", {}, title), facts(shown), ...(more === null ? [] : [more])];
}
