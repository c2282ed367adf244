// Pictures of the values of a tensor: a histogram, and a small image of a matrix.

import { element, svgElement } from "./dom.mjs";
import { exactText, numberText } from "./text.mjs";

const WIDTH = 320;
const HEIGHT = 96;

/** A histogram of `counts` of values in intervals of equal width from `low` to `high`. */
export function histogramPicture(low, high, counts) {
  const highest = Math.max(...counts, 1);
  const width = WIDTH / counts.length;
  const bars = counts.map((count, i) => {
    const height = count === 0 ? 0 : Math.max((count / highest) * HEIGHT, 1);
    const from = low + ((high - low) * i) / counts.length;
    const to = low + ((high - low) * (i + 1)) / counts.length;
    const title = `${exactText(count)} from ${numberText(from)} to ${numberText(to)}`;
    const place = { x: i * width, y: HEIGHT - height, width: Math.max(width - 1, 0.5), height };
    return svgElement("rect", place, svgElement("title", {}, title));
  });
  const zero = low < 0 && high > 0 ? (-low / (high - low)) * WIDTH : null;
  const label = `Histogram of values from ${numberText(low)} to ${numberText(high)}; the highest bar has ${exactText(highest)}.`;
  return element(
    "figure",
    { class: "histogram" },
    svgElement(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      ...bars,
      zero === null ? null : svgElement("line", { x1: zero, x2: zero, y1: 0, y2: HEIGHT }),
    ),
    element("figcaption", {}, element("span", {}, numberText(low)), element("span", {}, numberText(high))),
  );
}

/**
 * image: {rows, columns, row_step, column_step, scale, pixels}: pixels are base64 of one signed byte an element, -127 to 127 for
 * -scale to scale, and -128 for a value that is not a number.
 */
export function matrixPicture({ rows, columns, row_step: rowStep, column_step: columnStep, scale, pixels }) {
  const values = Int8Array.from(atob(pixels), (character) => character.charCodeAt(0));
  const canvas = element("canvas", { width: columns, height: rows, role: "img" });
  const drawing = canvas.getContext("2d");
  const image = drawing.createImageData(columns, rows);
  for (let i = 0; i < rows * columns; i += 1) {
    const value = values[i];
    // Nearly transparent at zero, so that it fits a light and a dark page.
    const [red, green, blue] = value === -128 ? [255, 0, 200] : value < 0 ? [46, 114, 224] : [226, 88, 34];
    image.data.set([red, green, blue, value === -128 ? 255 : Math.abs(value) * 2], 4 * i);
  }
  drawing.putImageData(image, 0, 0);
  const step = (count, what) => (count === 1 ? `every ${what}` : `one ${what} in ${exactText(count)}`);
  const text = `${step(rowStep, "row")}, ${step(columnStep, "column")}; blue is −${numberText(scale)}, orange ${numberText(scale)}`;
  canvas.setAttribute("aria-label", `Image of the matrix: ${text}`);
  return element("figure", { class: "matrix" }, canvas, element("figcaption", {}, text));
}
