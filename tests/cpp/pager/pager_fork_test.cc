// A pager in a process made by fork(2): what was resident is there, what was loading is loaded anew.

#include <unistd.h>

#include <thread>

#include "check.h"
#include "child_process.h"
#include "pager_sources.h"

using namespace weightstore;
using namespace pager_sources;

namespace {

// Runs `child` in a new process; true when it returned true within a minute.
template <class Child>
bool succeeds_in_child(Pager& pager, Child child) {
  pager.before_fork();
  const pid_t id = ::fork();
  pager.after_fork();
  if (id == 0) child_process::run_and_exit(child);
  return child_process::succeeded(id);
}

}  // namespace

TEST(the_child_goes_on) {
  Model model(6, 100, with_budget(300));
  model.pager->acquire("0");
  model.pager->prefetch(Slots{1});
  model.pager->finish_prefetch();
  CHECK(succeeds_in_child(*model.pager, [&] {
    if (model.residents() != Slots{0, 1}) return false;
    for (std::size_t i = 0; i < 6; ++i) {
      if (text_of(model.pager->acquire(i)) != data_of(i, 100)) return false;
    }
    model.pager->prefetch(Slots{0, 1});
    model.pager->finish_prefetch();
    const bool good = model.residents() == Slots{0, 1, 5} && model.pager->live_bytes() == 300;
    model.pager.reset();
    return good;
  }));
  CHECK(model.residents() == (Slots{0, 1}));
  model.pager->acquire("2");
}

TEST(what_was_loading_is_loaded_anew) {
  Model model(3, 100, {});
  Gate gate;
  model.source->before_read = [&](std::uint64_t offset, std::size_t) {
    if (offset == 0) gate.pass();
  };
  std::jthread caller([&] { model.pager->acquire("0"); });
  gate.wait_for(1);
  model.pager->prefetch(Slots{1, 2});
  const bool good = succeeds_in_child(*model.pager, [&] {
    model.source->before_read = nullptr;
    return text_of(model.pager->acquire("0")) == data_of(0, 100) &&
           text_of(model.pager->acquire("2")) == data_of(2, 100) && model.pager->live_bytes() <= 300;
  });
  gate.open();
  CHECK(good);
}

RUN_TESTS()
