// Which rows of a long list are in the document.

const TALLEST = 8e6; // browsers do not make elements of any height; Firefox stops at about 17 million pixels
export const MOST_ROWS = 200;
const BEYOND = 8; // rows above and below what is seen

/** How high the list is that scrolls. A list of more rows than fit is shown with a scroll bar that moves faster. */
export function scrollHeight(rows, rowHeight) {
  return Math.min(rows * rowHeight, TALLEST);
}

/** The rows [first, end) to put into the document, and how far down the first of them lies. */
export function rowWindow({ scrollTop, viewHeight, rows, rowHeight }) {
  const height = scrollHeight(rows, rowHeight);
  const real = rows * rowHeight;
  const furthest = Math.max(height - viewHeight, 0);
  const top = Math.min(Math.max(scrollTop, 0), furthest);
  const offset = furthest > 0 ? (top * (real - viewHeight)) / furthest : 0; // where the view begins in the list of all rows
  const seen = Math.min(Math.ceil(viewHeight / rowHeight) + 1, MOST_ROWS - 2 * BEYOND);
  const first = Math.max(Math.floor(offset / rowHeight) - BEYOND, 0);
  const end = Math.min(Math.floor(offset / rowHeight) + seen + BEYOND, rows);
  return { first, end, top: first * rowHeight - offset + top };
}

/** Where to scroll so that a row is seen: where the view is if it is seen there. */
export function scrollToRow({ scrollTop, viewHeight, rows, rowHeight }, row) {
  const height = scrollHeight(rows, rowHeight);
  const real = rows * rowHeight;
  const furthest = Math.max(height - viewHeight, 0);
  const ratio = furthest > 0 ? (real - viewHeight) / furthest : 1;
  const offset = Math.min(Math.max(scrollTop, 0), furthest) * ratio;
  if (row * rowHeight < offset) return (row * rowHeight) / ratio;
  if ((row + 1) * rowHeight > offset + viewHeight) return ((row + 1) * rowHeight - viewHeight) / ratio;
  return scrollTop;
}
