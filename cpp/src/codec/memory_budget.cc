#include "codec/memory_budget.h"

#include "base/checked.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

std::uint64_t allowed_for(std::uint64_t file_bytes, std::uint64_t constant) {
  const auto product = checked_mul(file_bytes, MemoryBudget::kPerByte);
  const auto sum = product ? checked_add(*product, constant) : std::nullopt;
  return sum.value_or(UINT64_MAX);
}

}  // namespace

MemoryBudget::MemoryBudget(std::uint64_t file_bytes, std::uint64_t constant)
    : file_bytes_(file_bytes), allowed_(allowed_for(file_bytes, constant)) {}

void MemoryBudget::refuse(std::uint64_t bytes) const {
  throw Error(ErrorCode::kLimit, "reading what the file describes takes " + std::to_string(used_) +
                                     " bytes of memory and " + std::to_string(bytes) + " more; a file of " +
                                     std::to_string(file_bytes_) + " bytes may take " + std::to_string(allowed_) +
                                     ". It compresses or repeats its parts far more than a model does");
}

}  // namespace weightstore
