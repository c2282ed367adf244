#include "costs.h"

#include "counted_bytes.h"
#include "counted_memory.h"

namespace {

std::uint64_t steps = 0;

Costs counts() { return {counted_memory::live, counted_memory::total, counted_bytes::bytes, steps}; }

}  // namespace

#ifdef WEIGHTSTORE_FUZZ
// Fuzz builds are compiled with -fsanitize-coverage=trace-pc, which calls this once for each edge of the control flow.
// libFuzzer has a function of that name, for builds without its own counters; the linker sends the calls here instead.
extern "C" __attribute__((no_sanitize("coverage"))) void __wrap___sanitizer_cov_trace_pc() { ++steps; }
#endif

Meter::Meter() : begin_(counts()) { counted_memory::peak = counted_memory::live.load(); }

Costs Meter::costs() const {
  const Costs now = counts();
  return {counted_memory::peak - begin_.peak, now.allocated - begin_.allocated, now.moved - begin_.moved,
          now.steps - begin_.steps};
}
