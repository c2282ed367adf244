// Tensors by the parts of their dotted names, with subtotals; and the rows of it that are to be shown.

// At this depth the rest of a name stays in one piece, so that a hostile name cannot make a tower of modules.
const DEEPEST = 32;

/** A module (entry -1, with children) or a tensor (the number of its line in the table, no children). */
class Node {
  constructor(label, path, parent, entry) {
    this.label = label;
    this.path = path;
    this.parent = parent;
    this.depth = parent === null ? -1 : parent.depth + 1;
    this.entry = entry;
    this.children = entry < 0 ? [] : null;
    this.dtype = -1; // of a tensor: the number of its type
    this.dtypeBytes = null; // of a module: bytes by number of the type
    this.dtypeCounts = null; // of a module: tensors by number of the type
    this.bytes = 0;
    this.elements = 0;
    this.tensors = 0;
    this.changed = 0; // tensors that differ between two files
    this.changedBytes = 0;
    this.matches = 0; // tensors that the search found
    this.order = -1; // its place among all nodes, by name; see numberNodes()
    this.sortedBy = ""; // of a module: the order that its children are in
    this.sortLabel = null;
  }

  /** Adds a child that is complete to the totals. */
  count(child) {
    this.bytes += child.bytes;
    this.elements += child.elements;
    this.tensors += child.tensors;
    this.changed += child.changed;
    this.changedBytes += child.changedBytes;
    if (child.entry >= 0) {
      this.dtypeBytes[child.dtype] += child.bytes;
      this.dtypeCounts[child.dtype] += 1;
    } else
      for (let dtype = 0; dtype < this.dtypeBytes.length; dtype += 1) {
        this.dtypeBytes[dtype] += child.dtypeBytes[dtype];
        this.dtypeCounts[dtype] += child.dtypeCounts[dtype];
      }
  }
}

/**
 * The root of the tree. `root.leaves` has the node of every line of the table, `root.modules` all modules, each after the one that it
 * is in. A module with a single child is one row with that child: "q_proj.weight". `same` is the status that counts as unchanged.
 */
export function makeTree(table, same) {
  const root = new Node("", "", null, -1);
  root.modules = [root];
  root.leaves = new Array(table.names.length);
  const { names } = table;
  const sorted = sortedEntries(names);
  // In sorted names, those of a module are neighbours: [begin, end), with `length` characters of their own module in front.
  const pending = [{ node: root, begin: 0, end: sorted.length, length: 0 }];
  while (pending.length > 0) {
    const { node, begin, end, length } = pending.pop();
    for (let i = begin; i < end; ) {
      const name = names[sorted[i]];
      const dot = node.depth < DEEPEST ? name.indexOf(".", length) : -1;
      let next = i + 1;
      if (dot >= 0) {
        const part = name.slice(length, dot + 1);
        while (next < end && names[sorted[next]].startsWith(part, length)) next += 1;
      }
      if (next === i + 1) {
        root.leaves[sorted[i]] = makeLeaf(table, sorted[i], name.slice(length), node, same);
        node.children.push(root.leaves[sorted[i]]);
      } else {
        const path = commonModule(name, names[sorted[next - 1]]);
        const child = new Node(path.slice(length), path, node, -1);
        node.children.push(child);
        root.modules.push(child);
        pending.push({ node: child, begin: i, end: next, length: path.length + 1 });
      }
      i = next;
    }
  }
  for (let i = root.modules.length - 1; i >= 0; i -= 1) {
    const node = root.modules[i];
    node.dtypeBytes = new Array(table.dtypes.length).fill(0);
    node.dtypeCounts = new Array(table.dtypes.length).fill(0);
    for (const child of node.children) node.count(child);
  }
  return root;
}

/** The numbers of the names in the order of their characters. */
function sortedEntries(names) {
  const entries = Int32Array.from(names, (_, i) => i);
  const isSorted = entries.every((i) => i === 0 || names[i - 1] <= names[i]);
  return isSorted ? entries : entries.sort((x, y) => (names[x] < names[y] ? -1 : names[x] > names[y] ? 1 : x - y));
}

/** The module that all names between two sorted names are in. */
function commonModule(first, last) {
  let length = 0;
  while (length < first.length && first[length] === last[length]) length += 1;
  return first.slice(0, first.lastIndexOf(".", length - 1));
}

function makeLeaf(table, i, label, parent, same) {
  const leaf = new Node(label, table.names[i], parent, i);
  leaf.dtype = table.dtype[i];
  leaf.bytes = table.bytes[i];
  leaf.elements = table.elements[i];
  leaf.tensors = 1;
  leaf.changed = table.status !== null && table.status[i] !== same ? 1 : 0;
  leaf.changedBytes = leaf.changed * leaf.bytes;
  return leaf;
}

/** The types of a node's tensors, those with the most bytes first: [{dtype, bytes, tensors}]. */
export function dtypeShares(node) {
  return node.dtypeBytes
    .map((bytes, dtype) => ({ dtype, bytes, tensors: node.dtypeCounts[dtype] }))
    .filter((share) => share.tensors > 0)
    .sort((x, y) => y.bytes - x.bytes || y.tensors - x.tensors);
}

/** The type of a node, or the one with the most bytes in it. */
export function mainDtype(node) {
  if (node.entry >= 0) return node.dtype;
  let best = 0;
  for (let dtype = 1; dtype < node.dtypeBytes.length; dtype += 1)
    if (
      node.dtypeBytes[dtype] > node.dtypeBytes[best] ||
      (node.dtypeBytes[dtype] === node.dtypeBytes[best] && node.dtypeCounts[dtype] > node.dtypeCounts[best])
    )
      best = dtype;
  return best;
}

/** A module that stands for some children of another, in their order, such as "0 … 24". */
export function bundle(parent, children) {
  const node = new Node(`${children[0].label} … ${children[children.length - 1].label}`, parent.path, parent, -1);
  node.children = children;
  node.dtypeBytes = parent.dtypeBytes.map(() => 0);
  node.dtypeCounts = parent.dtypeBytes.map(() => 0);
  for (const child of children) node.count(child);
  return node;
}

// ---- order ----------------------------------------------------------------------------------------------------------

/** Text that sorts as people count: "layers.2" before "layers.10". */
function sortLabel(node) {
  node.sortLabel ??= /\d/.test(node.label) ? node.label.replace(/\d+/g, (digits) => digits.padStart(15, "0")) : node.label;
  return node.sortLabel;
}

function byName(x, y) {
  const [a, b] = [sortLabel(x), sortLabel(y)];
  if (a !== b) return a < b ? -1 : 1;
  return x.entry - y.entry; // a module before the tensor of the same name
}

/** Gives every node its place in the order of names, once. Sorting by anything else needs it. */
export function numberNodes(root) {
  if (root.order === 0) return;
  root.order = 0;
  let next = 1;
  walk(
    root,
    (node) => node.children.slice().sort(byName),
    (node) => {
      node.order = next;
      next += 1;
    },
  );
  root.keys = new Float64Array(next);
}

/** The number that a node has in an order other than that of names. */
function keyOf(key, table) {
  return {
    bytes: (node) => node.bytes,
    elements: (node) => node.elements,
    shape: (node) => (node.entry >= 0 ? node.elements : -1),
    dtype: (node) => table.dtypeRank[mainDtype(node)],
    status: (node) => (node.entry >= 0 ? -table.status[node.entry] : node.changed),
  }[key];
}

/** A function that sorts nodes of the tree in place. All but the order of names needs numberNodes(). */
function sorter(root, { key, down }, table) {
  if (key === "name") {
    const compare = root.order === 0 ? (x, y) => x.order - y.order : byName;
    return (nodes) => (down ? nodes.sort(compare).reverse() : nodes.sort(compare));
  }
  const value = keyOf(key, table);
  const sign = down ? -1 : 1;
  const { keys } = root; // an array of numbers, because fields of nodes are slower
  const compare = (x, y) => keys[x.order] - keys[y.order] || x.order - y.order;
  return (nodes) => {
    for (const node of nodes) keys[node.order] = sign * value(node);
    return nodes.length > FEW ? nodes.sort(compare) : insertionSort(nodes, compare);
  };
}

const FEW = 16; // sorted faster by insertion; most modules have no more children

function insertionSort(nodes, compare) {
  for (let i = 1; i < nodes.length; i += 1) {
    const node = nodes[i];
    let place = i;
    for (; place > 0 && compare(nodes[place - 1], node) > 0; place -= 1) nodes[place] = nodes[place - 1];
    nodes[place] = node;
  }
  return nodes;
}

/** Visits all nodes below the root in order, without recursion. */
function walk(root, childrenOf, visit) {
  const stack = [[childrenOf(root), 0]];
  while (stack.length > 0) {
    const top = stack[stack.length - 1];
    if (top[1] === top[0].length) {
      stack.pop();
      continue;
    }
    const node = top[0][top[1]];
    top[1] += 1;
    visit(node);
    const children = node.children === null ? null : childrenOf(node);
    if (children !== null) stack.push([children, 0]);
  }
}

// ---- rows -----------------------------------------------------------------------------------------------------------

/** Counts in every module the tensors that were found; `found[i]` is 1 for those. null counts all. */
export function countMatches(root, found) {
  for (const node of root.modules) node.matches = 0;
  root.leaves.forEach((leaf, i) => {
    leaf.matches = found === null ? 1 : found[i];
    leaf.parent.matches += leaf.matches;
  });
  for (let i = root.modules.length - 1; i > 0; i -= 1) root.modules[i].parent.matches += root.modules[i].matches;
}

/** The rows of the tree: nodes with matches whose modules are all open. */
export function treeRows(root, isOpen, order, table) {
  if (order.key !== "name") numberNodes(root);
  const sort = sorter(root, order, table);
  const by = `${order.key} ${order.down}`;
  const rows = [];
  walk(
    root,
    (node) => {
      if (node !== root && !isOpen(node)) return null;
      if (node.sortedBy !== by) sort(node.children);
      node.sortedBy = by;
      return node.matches === node.tensors ? node.children : node.children.filter((child) => child.matches > 0);
    },
    (node) => rows.push(node),
  );
  return rows;
}

/** The rows of the flat list: all tensors that were found. */
export function listRows(root, order, table) {
  numberNodes(root);
  return sorter(root, order, table)(root.leaves.filter((leaf) => leaf.matches > 0));
}
