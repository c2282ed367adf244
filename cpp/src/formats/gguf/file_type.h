#pragma once

#include "weightstore/dtype.h"
#include "weightstore/typed_metadata.h"

namespace weightstore::gguf {

// Makes the entries that say how a model is quantized true for one whose tensors became `dtype`:
// `general.file_type`, if it is there, and for a quantized type `general.quantization_version`.
void describe_file_type(TypedMetadata& metadata, DType dtype);

}  // namespace weightstore::gguf
