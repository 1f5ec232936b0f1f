// A test is a program that calls CHECK and returns finish().
#pragma once

#include <cmath>
#include <iostream>

namespace check {

inline long passed = 0, failed = 0;

// Whether to print this failure. Only the first ones are: a broken kernel fails thousands of
// checks.
inline bool fail() { return ++failed <= 20; }

template <class A, class B>
void equal(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) {
    ++passed;
  } else if (fail()) {
    std::cerr << file << ":" << line << ": " << text << ": " << +a << " and " << +b << "\n";
  }
}

inline void near(double a, double b, double tolerance, const char* text, const char* file,
                 int line) {
  if (std::abs(a - b) <= tolerance) {  // false for NaN
    ++passed;
  } else if (fail()) {
    std::cerr << file << ":" << line << ": " << text << ": " << a << " and " << b << " differ by "
              << a - b << ", allowed " << tolerance << "\n";
  }
}

inline void holds(bool condition, const char* text, const char* file, int line) {
  if (condition) {
    ++passed;
  } else if (fail()) {
    std::cerr << file << ":" << line << ": " << text << "\n";
  }
}

// Exit code of the program. A program without any check fails.
inline int finish() {
  std::cerr << passed << " checks passed, " << failed << " failed\n";
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace check

#define CHECK(condition) check::holds((condition), #condition, __FILE__, __LINE__)
#define CHECK_EQ(a, b) check::equal((a), (b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_NEAR(a, b, tolerance) \
  check::near((a), (b), (tolerance), #a " ~ " #b, __FILE__, __LINE__)
