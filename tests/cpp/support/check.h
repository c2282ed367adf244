#pragma once

// A test file is a list of TEST blocks. Files are linked into one program a room; check.cc is its main(). A failed
// CHECK prints its place and ends its test; the program goes on with the next test. The exit code is 0 if all tests
// passed.
//
//   io_tests                        runs all tests of the program
//   io_tests file_source_test       runs the tests of file_source_test.cc
//   io_tests file_source_test mmap  of these, runs the tests whose names contain "mmap"

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace check {

struct Failure {};

// Static objects of this class are the list of all tests.
struct Registration {
  Registration(const char* file, const char* name, void (*body)());
};

// Prints the place and throws Failure.
[[noreturn]] void fail(const char* file, int line, const std::string& what);
[[noreturn]] void fail_equal(const char* file, int line, const char* text, const std::string& a, const std::string& b);

std::string show_number(double value);

// A value as text, for the message of a failed check.
template <class T>
std::string show(const T& value) {
  if constexpr (std::floating_point<T>) {
    return show_number(static_cast<double>(value));
  } else if constexpr (std::integral<T>) {
    return std::to_string(value);
  } else if constexpr (std::convertible_to<const T&, std::string_view>) {
    return std::string(std::string_view(value));
  } else if constexpr (requires { std::string(value.string()); }) {
    return value.string();
  } else {
    return "(a value)";
  }
}

template <class A, class B>
void check_eq(const char* file, int line, const char* text, const A& a, const B& b) {
  if (!(a == b)) fail_equal(file, line, text, show(a), show(b));
}

}  // namespace check

#define TEST(name)                                                                \
  static void test_##name();                                                      \
  static const check::Registration register_##name(__FILE__, #name, test_##name); \
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

#define RUN_TESTS()
