// Colours of types and of differences: the names of variables in viewer.css.

const EXACT = ["f64", "f32", "f16", "bf16", "bool", "i64", "i32", "u8", "i8"];
const FAMILIES = [
  [/^f8/, "f8"],
  [/^f[46]/, "f4"],
  [/^(q|iq|tq|mxfp|nvfp)/, "quantized"],
  [/^flex/, "f32"],
  [/^bool/, "bool"],
  [/^c\d/, "complex"],
  [/^[iu]\d/, "i32"],
];

/** The colour of a type. Types of one family share one if they have none of their own. */
export function dtypeColour(dtype) {
  const name = dtype.toLowerCase();
  const family = EXACT.includes(name) ? name : (FAMILIES.find(([form]) => form.test(name))?.[1] ?? "other");
  return `var(--type-${family})`;
}

/** The colour of a difference by its id, or "mixed". */
export function statusColour(id) {
  return `var(--is-${id})`;
}
