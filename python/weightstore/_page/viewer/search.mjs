// Finds tensors. A query is words that must all be found; case does not matter.
//   attn weight      names with both
//   layers.*.mlp     * stands for any text
//   dtype:bf16       the type, or part of its name; shape:4096, a size of the shape; is:changed (or is:added, ...), of two files;
//   has:nan          or has:inf, of tensors with statistics

import { STATUSES, shapeOf } from "./table.mjs";

const FIELDS = ["dtype", "shape", "is", "has"];

/** The terms of a query: [{field, text}]; the field of a word of the name is "name". */
export function parseQuery(query) {
  return query
    .trim()
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "")
    .map((word) => {
      const colon = word.indexOf(":");
      const field = word.slice(0, Math.max(colon, 0));
      return FIELDS.includes(field) ? { field, text: word.slice(colon + 1) } : { field: "name", text: word };
    });
}

/** 1 for each line of the table that the query finds, in a Uint8Array; null for a query that finds all. */
export function search(table, query) {
  const terms = parseQuery(query);
  if (terms.length === 0) return null;
  const tests = terms.map((term) => testOf(table, term));
  const found = new Uint8Array(table.names.length);
  for (let i = 0; i < found.length; i += 1) found[i] = tests.every((test) => test(i)) ? 1 : 0;
  return found;
}

function testOf(table, { field, text }) {
  if (field === "name") return nameTest(table, text);
  if (field === "dtype") {
    const dtypes = table.dtypes.map((dtype) => dtype.toLowerCase());
    const wanted = dtypes.map((dtype) => (dtypes.includes(text) ? dtype === text : dtype.includes(text)));
    return (i) => wanted[table.dtype[i]];
  }
  if (field === "shape") return (i) => shapeOf(table, i).some((size) => String(size) === text);
  if (field === "has") return (i) => hasTest(table, i, text);
  return statusTest(table, text);
}

function nameTest(table, text) {
  const names = lowerNames(table);
  if (!text.includes("*")) return (i) => names[i].includes(text);
  const parts = text.split("*");
  return (i) => {
    let from = 0;
    for (const part of parts) {
      const at = names[i].indexOf(part, from);
      if (at < 0) return false;
      from = at + part.length;
    }
    return true;
  };
}

/** The names in lower case, made once. */
export function lowerNames(table) {
  table.lowerNames ??= table.names.map((name) => name.toLowerCase());
  return table.lowerNames;
}

function hasTest(table, i, text) {
  return table.files.some((file, number) => {
    const place = (number === 0 ? table.first : table.second)[i];
    const statistics = file.statistics?.[place];
    if (!statistics) return false;
    return text === "nan" ? statistics.nans > 0 : text === "inf" ? statistics.infinities > 0 : false;
  });
}

function statusTest(table, text) {
  if (table.status === null) return () => false;
  const wanted = STATUSES.map(({ id }) => (text === "changed" ? id !== "same" : id === text));
  return (i) => wanted[table.status[i]];
}
