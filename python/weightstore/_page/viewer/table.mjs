// The tensors of one file, or of two files by name.

/** What can be said of a tensor of two files, in the order in which it is shown: in a word, and in a few. */
export const STATUSES = [
  { id: "added", word: "added", title: "only in the second" },
  { id: "removed", word: "removed", title: "only in the first" },
  { id: "shape", word: "shape", title: "other shape" },
  { id: "dtype", word: "type", title: "other type" },
  { id: "values", word: "values", title: "other values" },
  { id: "same", word: "same", title: "same" },
];
const ADDED = 0;
const REMOVED = 1;
const SHAPE = 2;
const DTYPE = 3;
const VALUES = 4;
const SAME = 5;

/**
 * Makes the table: `names[i]`; `first[i]` and `second[i]`, the number of the tensor in each file or -1; `dtype[i]`, an index of
 * `dtypes` (`dtypeRank` sorts them by name); `bytes[i]` and `elements[i]`, the larger of both files; `status[i]`, an index of STATUSES, or `status` null for one file.
 */
export function makeTable({ files, differences }) {
  const table = files.length === 1 ? tableOfOne(files[0]) : tableOfTwo(files[0], files[1], differences);
  const sorted = table.dtypes.slice().sort();
  table.dtypeRank = table.dtypes.map((dtype) => sorted.indexOf(dtype));
  return table;
}

function tableOfOne(file) {
  const first = Int32Array.from(file.name, (_, i) => i);
  return {
    files: [file],
    names: file.name,
    first,
    second: null,
    dtypes: file.dtypes,
    dtype: Int32Array.from(file.dtype),
    bytes: file.bytes,
    elements: file.elements,
    status: null,
    differences: null,
  };
}

function tableOfTwo(a, b, differences) {
  const places = new Map(a.name.map((name, i) => [name, i]));
  const names = a.name.slice();
  const first = a.name.map((_, i) => i);
  const second = new Array(names.length).fill(-1);
  b.name.forEach((name, j) => {
    const i = places.get(name);
    if (i !== undefined) second[i] = j;
    else {
      names.push(name);
      first.push(-1);
      second.push(j);
    }
  });
  const dtypes = [...new Set([...a.dtypes, ...b.dtypes])];
  const table = {
    files: [a, b],
    names,
    first: Int32Array.from(first),
    second: Int32Array.from(second),
    dtypes,
    dtype: new Int32Array(names.length),
    bytes: new Float64Array(names.length),
    elements: new Float64Array(names.length),
    status: new Uint8Array(names.length),
    differences,
  };
  for (let i = 0; i < names.length; i += 1) {
    const [one, two] = [table.first[i], table.second[i]];
    const shown = two >= 0 ? b.dtypes[b.dtype[two]] : a.dtypes[a.dtype[one]];
    table.dtype[i] = dtypes.indexOf(shown);
    table.bytes[i] = Math.max(one >= 0 ? a.bytes[one] : 0, two >= 0 ? b.bytes[two] : 0);
    table.elements[i] = Math.max(one >= 0 ? a.elements[one] : 0, two >= 0 ? b.elements[two] : 0);
    table.status[i] = statusOf(table, i);
  }
  return table;
}

function statusOf({ files: [a, b], first, second, differences }, i) {
  const [one, two] = [first[i], second[i]];
  if (one < 0) return ADDED;
  if (two < 0) return REMOVED;
  if (String(a.shape[one]) !== String(b.shape[two])) return SHAPE;
  if (differences?.[one]?.differing > 0) return VALUES;
  if (a.dtypes[a.dtype[one]] !== b.dtypes[b.dtype[two]]) return DTYPE;
  return SAME;
}

/** The shape of a tensor: that of the second file where it is in both. */
export function shapeOf(table, i) {
  const two = table.second === null ? -1 : table.second[i];
  return two >= 0 ? table.files[1].shape[two] : table.files[0].shape[table.first[i]];
}
