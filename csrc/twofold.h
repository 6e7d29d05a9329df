// Double precision with twice the digits: each number is the sum of two.
#pragma once
#include "vectors.h"

namespace {

struct Twofold {
  using V = Vec<double>;
  V high = {}, low = {};  // low is what high has lost by rounding

  // Exact sums and products (Knuth, Dekker).
  INLINE static Twofold sum(V a, V b) {
    const V high = a + b, of_b = high - a;
    return {high, (a - (high - of_b)) + (b - of_b)};
  }
  INLINE static Twofold product(V a, V b) {
    const V high = kept(a * b), a1 = first_digits(a), b1 = first_digits(b), a2 = a - a1, b2 = b - b1;
    return {high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2};
  }

  INLINE Twofold operator+(Twofold y) const {
    const Twofold s = sum(high, y.high);
    return sum(s.high, s.low + (low + y.low));
  }
  INLINE Twofold operator*(Twofold y) const {
    const Twofold s = product(high, y.high);
    return sum(s.high, s.low + (high * y.low + low * y.high));
  }
  INLINE Twofold operator/(Twofold y) const {
    const V quotient = high / y.high;
    const Twofold rest = *this + y * Twofold{-quotient};
    return sum(quotient, rest.high / y.high);
  }
  INLINE Twofold times_two_to(V exponent) const {  // in two steps, of which none underflows alone
    const Ints<double> n = __builtin_convertvector(exponent, Ints<double>), half = n >> 1;
    const V first = Power<double>::two_to(half), second = Power<double>::two_to(n - half);
    return {high * first * second, low * first * second};
  }

  // 2^x - 1 for x from -1/2 to 1/2, with a relative error of 2^-65.
  INLINE Twofold exp2_less_1() const {
    // ln(2)^k / k!: the first four in two parts, then those for which one is enough.
    static constexpr double FIRST[] = {0.6931471805599453, 0.24022650695910072, 0.05550410866482158, 0.009618129107628477};
    static constexpr double LOST[] = {2.3190468138462996e-17, -9.493931253182876e-18, -3.1658222903912804e-18,
                                      2.8324606784381e-19};
    static constexpr double REST[] = {
        0.0013333558146428443,  0.0001540353039338161, 1.5252733804059841e-05, 1.321548679014431e-06,
        1.01780860092397e-07,   7.054911620801123e-09, 4.4455382718708116e-10, 2.5678435993488206e-11,
        1.3691488853904128e-12, 6.778726354822545e-14, 3.1324367070884287e-15};
    Twofold y = {high * polynomial<2>(high, REST)};
    for (int k = 3; k >= 0; --k) {
      y = y + Twofold{all(FIRST[k]), all(LOST[k])};
      y = y * *this;
    }
    return y;
  }

 private:
  // A product as it is, which the compiler may not fuse with a sum.
  INLINE static V kept(V x) {
#if defined(__x86_64__)
    asm("" : "+x"(x));
#else
    asm("" : "+m"(x));
#endif
    return x;
  }
  INLINE static V first_digits(V a) { return as<V>(as<Ints<double>>(a) & Number<double>::FIRST_DIGITS); }
};

}  // namespace
