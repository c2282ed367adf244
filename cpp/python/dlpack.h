#pragma once

// The structures of DLPack, the agreed way to hand memory from one array library to another. Their layout is fixed by
// the standard (version 1.1); bind_dlpack.cc fills them in.

#include <cstdint>

namespace weightstore::python::dlpack {

inline constexpr std::int32_t kCpu = 1;
inline constexpr std::uint64_t kReadOnly = 1;  // flag
inline constexpr std::uint64_t kCopied = 2;    // flag

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements
  std::uint64_t byte_offset;
};

// Capsule "dltensor".
struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

// Capsule "dltensor_versioned".
struct ManagedTensorVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedTensorVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

static_assert(sizeof(void*) != 8 ||
              (sizeof(Tensor) == 48 && sizeof(ManagedTensor) == 64 && sizeof(ManagedTensorVersioned) == 80));

}  // namespace weightstore::python::dlpack
