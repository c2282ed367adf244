#pragma once

// The structures of DLPack, the agreed way to hand memory from one array library to another. Their layout is fixed by
// the standard: version 1.1, and 1.3 for ExchangeApi.

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

// The functions of a library for its own tensors, without a Python call. The class of the tensors has them as the
// attribute `__dlpack_c_exchange_api__`, a capsule "dlpack_exchange_api". The struct lives as long as the process. All
// functions need the GIL; they return 0, or -1 with a Python error set.
struct ExchangeHeader {
  Version version;
  ExchangeHeader* previous;  // of another major version; may be null
};

struct ExchangeApi {
  ExchangeHeader header;
  int (*allocate)(Tensor* prototype, ManagedTensorVersioned** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_of)(void* object, ManagedTensorVersioned** out);
  int (*make_object)(ManagedTensorVersioned* tensor, void** object);  // takes `tensor` over
  // What `out` points to belongs to the object: copy it before anything else runs. May be null.
  int (*look_at)(void* object, Tensor* out);
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};

inline constexpr const char* kExchangeCapsule = "dlpack_exchange_api";

static_assert(sizeof(void*) != 8 || (sizeof(Tensor) == 48 && sizeof(ManagedTensor) == 64 &&
                                     sizeof(ManagedTensorVersioned) == 80 && sizeof(ExchangeApi) == 56));

}  // namespace weightstore::python::dlpack
