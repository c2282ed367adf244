// Reads the data of a page. docs/page.md of the project describes the format, data.schema.json is its JSON schema.

import { exactText } from "./text.mjs";

const FORMAT = "weightstore-page";
const VERSION = 1;

/**
 * Checks the data and returns {files, differences}. Each file has its tensors as columns: name[i], dtype[i] (an index of `dtypes`),
 * shape[i], bytes[i], elements[i], shard[i] (an index of `shards`).
 * Throws an Error with a sentence for the reader of the page if the data is not of this format and version.
 */
export function readData(data) {
  if (data === null || typeof data !== "object" || data.format !== FORMAT)
    throw new Error("This page has no data of weightstore.");
  if (data.version !== VERSION)
    throw new Error(
      `The data of this page has version ${data.version}; this viewer reads version ${VERSION}. ` +
        "Write the page again, with one version of weightstore.",
    );
  if (!Array.isArray(data.files) || data.files.length < 1 || data.files.length > 2)
    throw new Error("The data of this page must describe one file, or two to compare.");
  return { files: data.files.map(readFile), differences: data.differences ?? null };
}

function readFile(file) {
  const { tensors } = file;
  const count = tensors.name.length;
  for (const column of ["dtype", "shape", "bytes"])
    if (tensors[column].length !== count)
      throw new Error(
        `The data of ${file.path} has ${exactText(count)} names and ${exactText(tensors[column].length)} of ${column}.`,
      );
  const bytes = new Float64Array(count);
  const elements = new Float64Array(count);
  for (let i = 0; i < count; i += 1) {
    bytes[i] = Number(tensors.bytes[i]);
    let product = 1;
    for (const size of tensors.shape[i]) product *= Number(size);
    elements[i] = product;
  }
  return {
    path: file.path,
    format: file.format,
    metadata: file.metadata ?? {},
    scalars: file.scalars ?? {},
    leftOut: file.left_out ?? [],
    dtypes: file.dtypes,
    shards: file.shards ?? [],
    statistics: file.statistics ?? null,
    images: file.images ?? {},
    name: tensors.name,
    dtype: tensors.dtype,
    shape: tensors.shape,
    shard: tensors.shard ?? null,
    paramId: tensors.param_id ?? null,
    bytes,
    elements,
  };
}
