#pragma once

// Forked children that outlive the process that made them.

#include <unistd.h>

#include "check.h"

namespace long_lived_children {

// Children that live until the object is destroyed.
class LongLived {
 public:
  LongLived() {
    CHECK_EQ(::pipe(life_), 0);
    CHECK_EQ(::pipe(born_), 0);
  }
  ~LongLived() {
    for (const int fd : {life_[0], life_[1], born_[0], born_[1]}) ::close(fd);
  }
  LongLived(const LongLived&) = delete;
  LongLived& operator=(const LongLived&) = delete;

  // Returns when the child runs and has done what a fork does in a child.
  void make_child() const {
    char byte = 0;
    if (::fork() == 0) {
      ::close(life_[1]);
      const bool told = ::write(born_[1], &byte, 1) == 1;
      ::_exit(told && ::read(life_[0], &byte, 1) == 0 ? 0 : 1);
    }
    CHECK_EQ(::read(born_[0], &byte, 1), 1);
  }

 private:
  int life_[2];
  int born_[2];
};

}  // namespace long_lived_children
