// Where the tiles of a treemap lie: rectangles as near to squares as can be, with areas in proportion to bytes.

import { bundle } from "./tree.mjs";

const HEADER = 18; // height of a module's title
const GAP = 2;
const BUNDLE = 8; // how many times the smallest tile a bundle of small children is
const SMALLEST_GROUP = 3600; // the area from which the inside of a module is shown, in pixels

/**
 * The tiles of a node: [{node, x, y, width, height, isGroup}], a module before the tiles in it. Children that are too small for a
 * tile of their own share one; its node is a bundle of them. At most about `most` tiles.
 */
export function layoutTiles(root, width, height, most = 400) {
  const tiles = [];
  const smallest = Math.max(60, (width * height) / most);
  const pending = [{ node: root, x: 0, y: 0, width, height }];
  while (pending.length > 0) {
    const box = pending.pop();
    for (const tile of placeChildren(box, smallest)) {
      const inside = {
        node: tile.node,
        x: tile.x + GAP,
        y: tile.y + HEADER,
        width: tile.width - 2 * GAP,
        height: tile.height - HEADER - GAP,
      };
      tile.isGroup =
        tile.node.entry < 0 &&
        inside.width > 30 &&
        inside.height > 16 &&
        inside.width * inside.height > SMALLEST_GROUP;
      tiles.push(tile);
      if (tile.isGroup) pending.push(inside);
    }
  }
  return tiles;
}

/** The children of a box's node as tiles that fill the box. */
function placeChildren({ node, x, y, width, height }, smallest) {
  if (!(node.bytes > 0) || width <= 0 || height <= 0) return [];
  const scale = (width * height) / node.bytes;
  const large = node.children.filter((child) => child.bytes * scale >= smallest).sort((a, b) => b.bytes - a.bytes);
  const small = node.children.filter((child) => child.bytes * scale < smallest);
  const shown = [...large, ...bundles(node, small, BUNDLE * (smallest / scale))];
  const items = shown.filter((child) => child.bytes * scale >= 1).map((child) => ({ node: child, area: child.bytes * scale }));
  return squarify(items, x, y, width, height);
}

/** Bundles of neighbours with about `bytes` bytes each. A bundle of one is the child itself. */
function bundles(parent, children, bytes) {
  const made = [];
  let begin = 0;
  let sum = 0;
  children.forEach((child, i) => {
    sum += child.bytes;
    if (sum < bytes && i < children.length - 1) return;
    made.push(i === begin ? child : bundle(parent, children.slice(begin, i + 1)));
    [begin, sum] = [i + 1, 0];
  });
  return made;
}

/** Lays rows of tiles along the shorter side; a row takes another tile as long as that makes its tiles more square. */
export function squarify(items, x, y, width, height) {
  const tiles = [];
  let begin = 0;
  while (begin < items.length) {
    const side = Math.max(Math.min(width, height), 1e-9);
    let end = begin + 1;
    let sum = items[begin].area;
    let worst = worstRatio(items[begin].area, items[begin].area, sum, side);
    let [least, most] = [items[begin].area, items[begin].area];
    while (end < items.length) {
      const area = items[end].area;
      const ratio = worstRatio(Math.min(least, area), Math.max(most, area), sum + area, side);
      if (ratio > worst) break;
      [worst, sum, least, most] = [ratio, sum + area, Math.min(least, area), Math.max(most, area)];
      end += 1;
    }
    const depth = sum / side;
    let at = 0;
    for (const item of items.slice(begin, end)) {
      const length = item.area / depth;
      tiles.push(
        width >= height
          ? { ...item, x, y: y + at, width: depth, height: length }
          : { ...item, x: x + at, y, width: length, height: depth },
      );
      at += length;
    }
    if (width >= height) [x, width] = [x + depth, width - depth];
    else [y, height] = [y + depth, height - depth];
    begin = end;
  }
  return tiles;
}

function worstRatio(least, most, sum, side) {
  return Math.max((side * side * most) / (sum * sum), (sum * sum) / (side * side * least));
}
