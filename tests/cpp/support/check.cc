#include "check.h"

#include <charconv>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace check {
namespace {

struct Test {
  std::string_view file;  // without folder and ending
  std::string_view name;
  void (*body)();
};

// Not a variable: registrations of other files run before this file's variables exist.
std::vector<Test>& tests() {
  static std::vector<Test> list;
  return list;
}

std::string_view stem_of(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  return path.substr(0, path.rfind('.'));
}

bool passes(const Test& test) {
  try {
    test.body();
    return true;
  } catch (const Failure&) {
  } catch (const std::exception& error) {
    std::fprintf(stderr, "unexpected exception: %s\n", error.what());
  }
  std::fprintf(stderr, "FAILED %.*s\n", static_cast<int>(test.name.size()), test.name.data());
  return false;
}

int run(std::string_view file, std::string_view part_of_name) {
  int passed = 0;
  int failed = 0;
  for (const Test& test : tests()) {
    if (!file.empty() && test.file != file) continue;
    if (test.name.find(part_of_name) == std::string_view::npos) continue;
    ++(passes(test) ? passed : failed);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  // A file that has no tests is a misspelled file.
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace

Registration::Registration(const char* file, const char* name, void (*body)()) {
  tests().push_back({stem_of(file), name, body});
}

void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  throw Failure{};
}

void fail_equal(const char* file, int line, const char* text, const std::string& a, const std::string& b) {
  fail(file, line, std::string("CHECK_EQ(") + text + "): " + a + " != " + b);
}

std::string show_number(double value) {
  char text[32];  // the longest double has 24 characters
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace check

int main(int argc, char** argv) { return check::run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : ""); }
