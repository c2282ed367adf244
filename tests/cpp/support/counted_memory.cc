#include "counted_memory.h"

#include <malloc.h>

#include <cstdlib>
#include <new>

// All forms, because a sanitizer brings its own for those that are missing.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  void* memory = std::malloc(size);
  if (memory == nullptr) return nullptr;
  const std::size_t usable = malloc_usable_size(memory);
  counted_memory::total += usable;
  const std::size_t live = counted_memory::live += usable;
  if (live > counted_memory::peak) counted_memory::peak = live;
  return memory;
}

void* operator new(std::size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* operator new[](std::size_t size) { return operator new(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return operator new(size, std::nothrow); }

void operator delete(void* memory) noexcept {
  if (memory != nullptr) counted_memory::live -= malloc_usable_size(memory);
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { operator delete(memory); }
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete[](void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { operator delete(memory); }
