#pragma once

// Work in a process made by fork(2).

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace child_process {

// In the child: runs `work` and ends the process, with success when `work` returns true within a minute.
template <class Work>
[[noreturn]] void run_and_exit(Work work) {
  ::alarm(60);
  bool good = false;
  try {
    good = work();
  } catch (...) {
  }
  ::_exit(good ? 0 : 1);
}

// In the parent: waits for the child, and says whether it ended with success.
inline bool succeeded(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace child_process
