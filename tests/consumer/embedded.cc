// A model linked into the program: opened where the loader put it, and viewed without a byte of heap for tensor data.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weightstore/weightstore.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "require.h"

asm(".section .rodata\n"
    ".balign 4096\n"
    ".global embedded_begin\n"
    "embedded_begin:\n"
    ".incbin \"" EMBEDDED_FILE
    "\"\n"
    ".global embedded_end\n"
    "embedded_end:\n"
    ".byte 0\n"
    ".previous\n");
extern "C" const std::byte embedded_begin[];
extern "C" const std::byte embedded_end[];

// Every way to get memory passes through here: operator new of the shared standard library calls this malloc, too.
static std::atomic<std::size_t> allocated{0};

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) {
  allocated += size;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  allocated += count * size;
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  allocated += size;
  return __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  allocated += size;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  *out = memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}
void* mmap(void* address, std::size_t size, int protection, int flags, int fd, off_t offset) {
  allocated += size;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, fd, offset));
}
}

int main() {
  namespace ws = weightstore;

  // The counter counts: a test that cannot see an allocation proves nothing.
  std::size_t before = allocated;
  std::vector<std::byte> probe(100'000);
  REQUIRE(allocated - before >= probe.size());

  before = allocated;
  const ws::Reader reader = ws::Reader::from_static({embedded_begin, embedded_end});
  const ws::TensorTable& table = reader.table();
  std::size_t payload = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto view = reader.view(i);
    REQUIRE(view.has_value());
    REQUIRE(view->bytes.data() >= embedded_begin);
    REQUIRE(view->bytes.data() + view->bytes.size() <= embedded_end);
    REQUIRE(view->bytes.size() == table.nbytes(i));
    payload += view->bytes.size();
  }
  const std::size_t used = allocated - before;
  const auto weight = reader.view(table.at("linear.weight"));
  REQUIRE(reinterpret_cast<const float*>(weight->bytes.data())[12345] == 12345.0f);

  std::printf("embedded: %zu bytes of tensors, %zu bytes of heap\n", payload, used);
  REQUIRE(payload > 4'000'000);
  REQUIRE(used < 65'536);
}
