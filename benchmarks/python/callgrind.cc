// Lets Python start and stop the counting of a process that runs under callgrind. Elsewhere these functions do nothing.

#include <valgrind/callgrind.h>

extern "C" {

void count_start() {
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}

void count_stop(const char* label) {
  CALLGRIND_DUMP_STATS_AT(label);
  CALLGRIND_STOP_INSTRUMENTATION;
}
}
