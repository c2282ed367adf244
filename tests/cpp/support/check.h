#pragma once

// A test program is a list of TEST blocks and one RUN_TESTS(). A failed CHECK prints where, and the run goes on with
// the next test; the exit code says whether all passed. "name" as first argument runs only tests whose name contains
// it.

#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace check {

struct Failure {};

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> list;
  return list;
}

struct Registration {
  Registration(const char* name, void (*body)()) { tests().push_back({name, body}); }
};

template <class T>
std::string show(const T& value) {
  if constexpr (requires(std::ostringstream& out) { out << value; }) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else {
    return "(a value)";
  }
}

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  throw Failure{};
}

template <class A, class B>
void check_eq(const char* file, int line, const char* text, const A& a, const B& b) {
  if (!(a == b)) fail(file, line, std::string("CHECK_EQ(") + text + "): " + show(a) + " != " + show(b));
}

inline int run(int argc, char** argv) {
  const char* only = argc > 1 ? argv[1] : "";
  int failed = 0;
  int ran = 0;
  for (const Test& test : tests()) {
    if (std::strstr(test.name, only) == nullptr) continue;
    ++ran;
    try {
      test.body();
      continue;
    } catch (const Failure&) {
    } catch (const std::exception& error) {
      std::fprintf(stderr, "unexpected exception: %s\n", error.what());
    }
    std::fprintf(stderr, "FAILED %s\n", test.name);
    ++failed;
  }
  std::printf("%d passed, %d failed\n", ran - failed, failed);
  return failed == 0 && ran > 0 ? 0 : 1;
}

}  // namespace check

#define TEST(name)                                                      \
  static void test_##name();                                            \
  static const check::Registration register_##name(#name, test_##name); \
  static void test_##name()

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) check::fail(__FILE__, __LINE__, "CHECK(" #condition ")"); \
  } while (false)

#define CHECK_EQ(a, b) check::check_eq(__FILE__, __LINE__, #a ", " #b, (a), (b))

// Runs `expression`, which must throw `type`, and returns what was thrown.
#define CHECK_THROWS(type, expression)                                                           \
  [&]() -> type {                                                                                \
    try {                                                                                        \
      (void)(expression);                                                                        \
    } catch (const type& thrown_by_expression) {                                                 \
      return thrown_by_expression;                                                               \
    }                                                                                            \
    check::fail(__FILE__, __LINE__, "CHECK_THROWS(" #type ", " #expression "): nothing thrown"); \
  }()

#define RUN_TESTS() \
  int main(int argc, char** argv) { return check::run(argc, argv); }
