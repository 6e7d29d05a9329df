// Numbers in vectors, by GCC's and Clang's vector extensions: logarithm, power, sums of lanes.
#pragma once
#include <cstdint>
#include <cstring>

namespace {

// A vector that is passed to a function goes through memory: what works on one is always inlined.
#define INLINE [[gnu::always_inline]] inline

// ---------------------------------------------------------------- vectors

#if defined(__AVX512F__)
constexpr int BYTES = 64;
#elif defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif

template <class T> struct Number;

template <> struct Number<float> {
  typedef int32_t Int;
  typedef float V __attribute__((vector_size(BYTES)));
  typedef int32_t I __attribute__((vector_size(BYTES)));
  typedef uint32_t U __attribute__((vector_size(BYTES)));
  static constexpr int DIGITS = 23;      // of the mantissa
  static constexpr float LOWEST = -127;  // 2^LOWEST becomes 0
  static constexpr float MIN_NORMAL = 1.17549435e-38f;
  static constexpr Int FIRST_DIGITS = -(1 << 12);  // a mask: a product with a small integer is exact
  // log2(1+v)/v for v from 1/sqrt 2 - 1 to sqrt 2 - 1: minimax, relative error 3e-8.
  static constexpr float LOG2[] = {
      1.4426950036520814f, -0.7213473468016658f, 0.48091064303096026f,
      -0.36070368303068034f, 0.28791624507083174f, -0.2389448138582872f,
      0.2157156309784507f, -0.20726981566798947f, 0.1258370368985811f};
  // (2^f - 1)/f for f from -1/2 to 1/2.
  static constexpr float EXP2[] = {0.6931471805599453f, 0.24022648692131042f,
                                   0.05550340563058853f, 0.009618354961276054f,
                                   0.0013395279645919800f, 0.00015402942895889282f};
  // (1 - (1 + d) exp(-d)) / d^2 for d up to 0.7.
  static constexpr float SERIES[] = {
      0.5f, -0.3333333333333333f, 0.125f, -0.03333333333333333f, 0.006944444444444444f,
      -0.0011904761904761906f, 0.00017361111111111112f, -2.2045855379188714e-05f};
};

template <> struct Number<double> {
  typedef int64_t Int;
  typedef double V __attribute__((vector_size(BYTES)));
  typedef int64_t I __attribute__((vector_size(BYTES)));
  typedef uint64_t U __attribute__((vector_size(BYTES)));
  static constexpr int DIGITS = 52;
  static constexpr double LOWEST = -1023;
  static constexpr double MIN_NORMAL = 2.2250738585072014e-308;
  static constexpr Int FIRST_DIGITS = -(Int(1) << 28);
  // log2(1+v)/y as a function of y^2, where y = v/(2+v).
  static constexpr double E = 2.8853900817779268;  // 2 log2(e)
  static constexpr double LOG2[] = {E,      E / 3,  E / 5,  E / 7,  E / 9,  E / 11,
                                    E / 13, E / 15, E / 17, E / 19, E / 21, E / 23};
  static constexpr double EXP2[] = {
      0.6931471805599453, 0.2402265069591007, 0.05550410866482158, 0.009618129107628477,
      0.0013333558146428443, 0.0001540353039338161, 1.525273380405984e-05, 1.3215486790144307e-06,
      1.0178086009239699e-07, 7.054911620801123e-09, 4.4455382718708116e-10, 2.56784359934882e-11,
      1.3691488853904128e-12};
  static constexpr double SERIES[] = {
      0.5, -0.3333333333333333, 0.125, -0.03333333333333333, 0.006944444444444444,
      -0.0011904761904761906, 0.00017361111111111112, -2.2045855379188714e-05,
      2.48015873015873e-06, -2.505210838544172e-07, 2.296443268665491e-08,
      -1.9270852604185937e-09, 1.4911969277048643e-10, -1.0706029224547743e-11,
      7.169215998581078e-13, -4.498331606952833e-14};
};

template <class T> using Vec = typename Number<T>::V;
template <class T> using Ints = typename Number<T>::I;
template <class T> using Bits = typename Number<T>::U;  // for sums that may pass the largest integer
template <class T> constexpr int LANES = BYTES / sizeof(T);

template <class To, class From> INLINE To as(From x) {  // the same bits
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof(To));
  return y;
}
template <class T> INLINE Vec<T> all(T x) { return x - Vec<T>{}; }  // keeps the sign of 0
template <class T> INLINE Vec<T> load(const T* at) {
  Vec<T> v;
  std::memcpy(&v, at, BYTES);
  return v;
}
template <class T> INLINE void store(T* at, Vec<T> v) { std::memcpy(at, &v, BYTES); }
template <class V> INLINE V larger(V a, V b) { return a > b ? a : b; }
template <class V> INLINE V smaller(V a, V b) { return a < b ? a : b; }
template <class T> INLINE Ints<T> sign_bit(Vec<T> x) { return as<Ints<T>>(x) & as<Ints<T>>(all(T(-0.0))); }
template <class T> INLINE Vec<T> absolute(Vec<T> x) { return as<Vec<T>>(as<Ints<T>>(x) ^ sign_bit<T>(x)); }

template <class I> INLINE bool any(I mask) {
  int64_t words[sizeof(I) / 8], found = 0;
  std::memcpy(words, &mask, sizeof(I));
  for (int64_t word : words) found |= word;
  return found != 0;
}
// The lanes of a vector as one number; halves at a time, so that sums are pairwise.
template <class T, class F> INLINE T across(Vec<T> v, F join) {
  T x[LANES<T>];
  store<T>(x, v);
  for (int half = LANES<T> / 2; half; half /= 2)
    for (int k = 0; k < half; ++k) x[k] = join(x[k], x[k + half]);
  return x[0];
}
template <class T> INLINE T sum_across(Vec<T> v) {
  return across<T>(v, [](T x, T y) { return x + y; });
}

// ---------------------------------------------------------------- logarithm and power

constexpr double LN2 = 0.6931471805599453, SQRT_HALF = 0.7071067811865476;
constexpr float HUGE_ORDER = 1e30f;  // counts as infinity

// Estrin's scheme within blocks of STRIDE coefficients, Horner's between them. No higher power of x
// is formed: it could be denormal, at which processors stop for a hundred cycles.
template <int STRIDE, class V, class T, int N> INLINE V polynomial(V x, const T (&c)[N]) {
  const V x2 = x * x, step = STRIDE == 4 ? x2 * x2 : x2;
  auto block = [&](int k, int terms) __attribute__((always_inline)) -> V {
    V y = terms > 1 ? c[k] + c[k + 1] * x : V{} + c[k];
    if (terms == 3) y += c[k + 2] * x2;
    if (terms == 4) y += (c[k + 2] + c[k + 3] * x) * x2;
    return y;
  };
  constexpr int LAST = N % STRIDE ? N % STRIDE : STRIDE;
  V y = block(N - LAST, LAST);
  for (int k = N - LAST - STRIDE; k >= 0; k -= STRIDE) y = y * step + block(k, STRIDE);
  return y;
}

// log2(1+v) for v from 1/sqrt 2 - 1 to sqrt 2 - 1.
template <class T> INLINE Vec<T> log2_1p(Vec<T> v) {
  if constexpr (sizeof(T) == 4) return polynomial<4>(v, Number<T>::LOG2) * v;
  const Vec<T> y = v / (v + T(2));
  return polynomial<4>(y * y, Number<T>::LOG2) * y;
}

template <class T> struct Logarithm { Vec<T> whole, part; };

// log2(a/m). A power of two brings a between m / sqrt 2 and m sqrt 2; there a - m is exact. In double precision m may
// be the largest number, of which sqrt 2 times as much is none, and 1/m denormal: there it is a quarter of both.
template <class T> struct Ratio {
  static constexpr int LESS = sizeof(T) == 4 ? 0 : 2;
  static constexpr T PART = T(1) / (1 << LESS);
  Vec<T> m, base, inverse;
  Bits<T> low;
  INLINE explicit Ratio(Vec<T> m)
      : m(m), base(m * PART), inverse(m == 0 ? Vec<T>{} : 1 / base), low(as<Bits<T>>(m * T(SQRT_HALF))) {}

  INLINE Vec<T> of(Vec<T> a) const { return a == m ? all(T(1)) : a * inverse * PART; }
  INLINE Logarithm<T> log2(Vec<T> a) const {
    const Ints<T> shift = as<Ints<T>>(as<Bits<T>>(a) - low) >> Number<T>::DIGITS;
    const Vec<T> near = as<Vec<T>>(as<Bits<T>>(a) - (as<Bits<T>>(shift + LESS) << Number<T>::DIGITS));
    return {__builtin_convertvector(shift, Vec<T>), log2_1p<T>((near - base) * inverse)};
  }
};

// 2^x for x of at most 0, or -0 to 0 more by rounding: x is whole + part, where part is small.
template <class T> INLINE Vec<T> exp2(Vec<T> whole, Vec<T> part) {
  const T magic = T(1.5) * T(typename Number<T>::Int(1) << Number<T>::DIGITS);  // rounds when added
  // The larger of two negative numbers has the smaller bits.
  whole = as<Vec<T>>(smaller(as<Bits<T>>(whole), as<Bits<T>>(all(T(Number<T>::LOWEST)))));
  const Vec<T> rounded = whole + part + magic;
  const Vec<T> f = whole - (rounded - magic) + part;
  const Vec<T> y = f * polynomial<2>(f, Number<T>::EXP2) + T(1);
  return as<Vec<T>>(as<Bits<T>>(y) + (as<Bits<T>>(rounded) << Number<T>::DIGITS));
}
// The compiler leaves a sum with -0 out, as that changes nothing.
template <class T> INLINE Vec<T> exp2(Vec<T> x) { return exp2<T>(x, all(T(-0.0))); }

// 2^x for every x = whole + part: `value` times 2^`exponent`.
template <class T> struct Power {
  static constexpr T MAGIC = T(1.5) * T(typename Number<T>::Int(1) << Number<T>::DIGITS);
  static constexpr T MOST = sizeof(T) == 4 ? 250 : 2040;  // beyond, the power is 0 or infinite; twice as much for x,
                                                          // as what it is multiplied by may be as large
  Vec<T> value, exponent, less_1;  // less_1: 2^x - 1 without cancellation, where x is below 0.5
  INLINE explicit Power(Vec<T> whole, Vec<T> part = Vec<T>{}) {
    const Vec<T> x = whole + part;
    const Ints<T> beyond = absolute<T>(x) > 2 * MOST;
    whole = beyond ? (x < 0 ? all(-2 * MOST) : all(2 * MOST)) : whole;
    part = beyond ? Vec<T>{} : part;
    exponent = (whole + part + MAGIC) - MAGIC;
    const Vec<T> f = whole - exponent + part;
    less_1 = f * polynomial<2>(f, Number<T>::EXP2);
    value = less_1 + 1;
    less_1 = exponent == 0 ? less_1 : times(all(T(1))) - 1;
  }
  // The power, times 2^shift, times y: in two steps, of which none overflows alone.
  INLINE Vec<T> times(Vec<T> y, Vec<T> shift = Vec<T>{}) const {
    Vec<T> n = exponent + shift;
    n = n < -MOST ? all(T(-MOST)) : n > MOST ? all(T(MOST)) : n;
    const Ints<T> whole = as<Ints<T>>(n + MAGIC) - as<Ints<T>>(all(MAGIC)), half = whole >> 1;
    return value * y * two_to(half) * two_to(whole - half);
  }
  INLINE static Vec<T> two_to(Ints<T> n) {
    return as<Vec<T>>((n + (sizeof(T) == 4 ? 127 : 1023)) << Number<T>::DIGITS);
  }
};

// (s/N)^(1/p) from the logarithm of s/N, with what it is made of.
template <class T> struct Root {
  Vec<T> order_inverse, log_mean, whole, part;  // the logarithm of the root is whole + part
  INLINE Root(Vec<T> p, const Logarithm<T>& log) {
    // 1/p as a sum whose first part has few digits, so that its product with `log.whole` is exact.
    const Vec<T> inverse = 1 / p;
    const Vec<T> first = as<Vec<T>>(as<Ints<T>>(inverse) & Number<T>::FIRST_DIGITS);
    const Vec<T> high = absolute<T>(p) < T(HUGE_ORDER) ? first : Vec<T>{};
    const Vec<T> low = absolute<T>(p) < T(HUGE_ORDER) ? (1 - first * p) * inverse : Vec<T>{};
    order_inverse = high + low;
    log_mean = log.whole + log.part;
    whole = log.whole * high, part = log.whole * low + log.part * order_inverse;
  }
  INLINE Root(Vec<T> p, Vec<T> s, Vec<T> n) : Root(p, Ratio<T>(all(T(1))).log2(s / n)) {}
};

}  // namespace
