// The Lp norm of groups of values b_i, in vectors of W groups. With
//
//   m = max |b_i|,  L_i = log2(|b_i| / m),  s = sum_i 2^(p L_i):
//
//   u       = m (s/N)^(1/p)
//   du/db_i = sign(b_i) (u/m) 2^((p-1) L_i) / s
//   du/dp   = u/p^2 D,  where D = sum_i w_i ln(N w_i) is the divergence of the weights
//                       w_i = 2^(p L_i) / s from equal weights
//
// How single precision keeps its digits:
// - L_i comes from an exact difference of two mantissas and a difference of two exponents, so its
//   relative error stays small where |b_i| is near m and p is large.
// - Groups that single precision cannot serve are marked, and done again in double precision.
// - p = inf is an order of 1e30 with 1/p = 0: no case of its own.
// - D of nearly equal weights is a sum of terms that are never negative: nothing cancels.
// - Long sums are added up pairwise.
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

// log2(a/m). A power of two brings a between m / sqrt 2 and m sqrt 2; there a - m is exact.
template <class T> struct Ratio {
  Vec<T> m, inverse;
  Bits<T> low;
  INLINE explicit Ratio(Vec<T> m)
      : m(m), inverse(m == 0 ? Vec<T>{} : 1 / m), low(as<Bits<T>>(m * T(SQRT_HALF))) {}

  INLINE Vec<T> of(Vec<T> a) const { return a == m ? all(T(1)) : a * inverse; }
  INLINE Logarithm<T> log2(Vec<T> a) const {
    const Ints<T> shift = as<Ints<T>>(as<Bits<T>>(a) - low) >> Number<T>::DIGITS;
    const Vec<T> near = as<Vec<T>>(as<Bits<T>>(a) - (as<Bits<T>>(shift) << Number<T>::DIGITS));
    return {__builtin_convertvector(shift, Vec<T>), log2_1p<T>((near - m) * inverse)};
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

// (s/N)^(1/p), with what it is made of.
template <class T> struct Root {
  Vec<T> order_inverse, log_mean, value;
  INLINE Root(Vec<T> p, Vec<T> s, Vec<T> n) {
    // 1/p as a sum whose first part has few digits, so that its product with `whole` is exact.
    const Vec<T> inverse = 1 / p;
    const Vec<T> first = as<Vec<T>>(as<Ints<T>>(inverse) & Number<T>::FIRST_DIGITS);
    const Vec<T> high = p < T(HUGE_ORDER) ? first : Vec<T>{};
    const Vec<T> low = p < T(HUGE_ORDER) ? (1 - first * p) * inverse : Vec<T>{};
    order_inverse = high + low;
    const Logarithm<T> log = Ratio<T>(all(T(1))).log2(s / n);
    log_mean = log.whole + log.part;
    value = exp2<T>(log.whole * high, log.whole * low + log.part * order_inverse);
    value += p * 0;  // NaN if p is
  }
};

// ---------------------------------------------------------------- a few tiles of groups

// A tile is a vector of groups, a lane each; or one group, whose entries fill the lanes (SHARED).
// Its entries are rows of vectors in `b`; all else is one number per group. Each step is done for
// all tiles before the next begins: so the processor works on several tiles at once, where within
// one it would wait for every result.
template <class T> struct Chunk {
  int tiles;
  const int64_t* first;      // the first row of each tile, and the row behind the last tile
  const int64_t* last_row;   // SHARED: how many entries the last row of each tile has
  T *b, *log;                // entries, which the backward turns into gradients; their L_i
  T *p, *n, *grad;           // per group: order, size, the gradient that arrives
  T *u, *dp;                 // per group: results
  T *m, *unit, *s, *moment;  // per group: largest entry, the same as scaled, sum, and sum with L_i
  Ints<T>* careful;          // per tile: lanes that need double precision
  bool has_center, wants_dp;
};

// ROWS: the number of rows of every tile, if it is small; or 0.
template <class T, bool SHARED, int ROWS> class Math {
  using V = Vec<T>;
  using I = Ints<T>;
  static constexpr int W = LANES<T>;
  static constexpr bool SINGLE = sizeof(T) == 4;
  static constexpr T TIED = T(0.01);  // bits of D below which its terms are added up one by one
  Chunk<T> c;

 public:
  explicit Math(const Chunk<T>& chunk) : c(chunk) {}

  // u. Returns whether some lanes need double precision.
  bool forward() {
    I careful = {};
    for (int t = 0; t < c.tiles; ++t) {
      careful |= find_largest(t, false);
      put(c.s, t, joined(sum_powers(t)));
    }
    each_vector([&](int g) {
      const Root<T> root(load(c.p + g), load(c.s + g), load(c.n + g));
      store(c.u + g, load(c.m + g) * root.value);
    });
    return SINGLE && any(careful);
  }

  // The gradients in b, and dp. Returns whether some lanes need double precision.
  bool backward() {
    I careful = {}, tied = {};
    for (int t = 0; t < c.tiles; ++t) {
      careful |= find_largest(t, true);
      const Sums sums = sum_slopes(t);
      put(c.s, t, joined(sums.power));
      put(c.moment, t, joined(sums.moment));
    }
    each_vector([&](int g) {
      const V p = load(c.p + g), m = load(c.m + g), s = load(c.s + g), grad = load(c.grad + g);
      const Root<T> root(p, s, load(c.n + g));
      const V k = m == m ? root.value : m, mean = load(c.moment + g) / s;
      const V divergence = p * mean - root.log_mean;  // in bits
      store(c.s + g, grad * k / s);
      store(c.moment + g, mean);
      store(c.u + g, ROWS == 2 && SINGLE ? divergence_of_two(g, p, divergence) : divergence);
      const V slope = T(LN2) * k * root.order_inverse * root.order_inverse * grad;
      store(c.dp + g, slope * (root.order_inverse == 0 ? V{} : m));
      tied |= divergence < TIED;
    });
    if (c.wants_dp && any(tied)) {
      if (ROWS != 2 || !SINGLE) separate_ties(careful);
      if (c.has_center && SINGLE) find_rounded(careful);
    }
    each_vector([&](int g) { store(c.dp + g, load(c.dp + g) * load(c.u + g)); });
    for (int t = 0; t < c.tiles; ++t) {
      const V factor = get(c.s, t);
      each_row(t, [&](T* b, T*) { store(b, load(b) * factor); });
    }
    return SINGLE && any(careful);
  }

 private:
  struct Sums {
    V power = {}, moment = {};
    void join(const Sums& other) { power += other.power, moment += other.moment; }
  };
  struct Spread {
    V terms = {}, widest = {};
    void join(const Spread& other) { terms += other.terms, widest = larger(widest, other.widest); }
  };

  // Rows, and numbers per group seen from a tile.
  int64_t rows(int t) const { return ROWS ? ROWS : c.first[t + 1] - c.first[t]; }
  int64_t start(int t) const { return ROWS ? t * ROWS : c.first[t]; }
  template <class F> INLINE void each_row(int t, F f) const {
    T *b = c.b + start(t) * W, *log = c.log + start(t) * W;
    for (int64_t i = 0; i < rows(t); ++i) f(b + i * W, log + i * W);
  }
  template <class F> INLINE void each_vector(F f) const {
    for (int g = 0; g < (SHARED ? c.tiles : c.tiles * W); g += W) f(g);
  }
  INLINE V get(const T* of, int t) const { return SHARED ? all(of[t]) : load(of + t * W); }
  INLINE void put(T* of, int t, V v) const {
    if constexpr (SHARED) of[t] = v[0];
    else store(of + t * W, v);
  }
  INLINE V joined(V sum) const { return SHARED ? all(sum_across<T>(sum)) : sum; }

  // leaf(sums, b, log) for every row, added up pairwise.
  template <class S, class F> INLINE S add_up(int t, const F& leaf) const {
    T *b = c.b + start(t) * W, *log = c.log + start(t) * W;
    if constexpr (ROWS) return add_few<S>(b, log, ROWS, leaf);
    else return add_many<S>(b, log, rows(t), leaf);
  }
  template <class S, class F> INLINE static S add_few(T* b, T* log, int64_t count, const F& leaf) {
    S sums, second;
    const int64_t half = count / 2;
    for (int64_t i = 0; i < half; ++i) {
      leaf(sums, b + i * W, log + i * W);
      leaf(second, b + (i + half) * W, log + (i + half) * W);
    }
    if (count % 2) leaf(sums, b + (count - 1) * W, log + (count - 1) * W);
    sums.join(second);
    return sums;
  }
  template <class S, class F> static S add_many(T* b, T* log, int64_t count, const F& leaf) {
    if (count <= 16) return add_few<S>(b, log, count, leaf);
    const int64_t half = count / 2;
    S sums = add_many<S>(b, log, half, leaf);
    sums.join(add_many<S>(b + half * W, log + half * W, count - half, leaf));
    return sums;
  }

  // m and unit, the largest |b_i|; returns the lanes that need double precision. Bits of
  // non-negative numbers are in the order of the numbers, and NaN is beyond infinity.
  INLINE I find_largest(int t, bool backward) const {
    using U = Bits<T>;
    I most = {};
    U least = ~U{};
    each_row(t, [&](T* b, T*) {
      const I a = as<I>(absolute<T>(load(b)));
      most = larger(most, a);
      if (backward) least = smaller(least, as<U>(a) - 1);  // 0 becomes the largest of all
    });
    if constexpr (SHARED) {
      const auto order = [](T x, T y) {
        using Int = typename Number<T>::Int;
        return as<Int>(x) > as<Int>(y) ? x : y;
      };
      most = as<I>(all(across<T>(as<V>(most), order)));
    }
    const V m = as<V>(most);
    put(c.m, t, m);
    put(c.unit, t, m);
    // Denormal entries have no place in the logarithm.
    I unusual = backward ? I(least < as<U>(all(Number<T>::MIN_NORMAL)) - 1) : I{};
    if constexpr (SINGLE) {
      unusual |= (m != 0) & ~((m > T(8e-25)) & (m < T(1e24)));
      // Beyond an order of 64 the rounding of z - center would show in the gradient.
      if (backward && c.has_center) unusual |= get(c.p, t) > T(64);
      c.careful[t] = unusual;
    } else {
      unusual |= ((m != 0) & (m < T(0x1p-900))) | (m > T(1.7976931348623157e308));
      if (any(unusual)) rescale(t, m);
    }
    return unusual;
  }

  // Double precision alone: bring the largest of each group near the largest number, so that no
  // entry is denormal; beside an infinite entry, infinity counts as 1 and the rest as 0.
  void rescale(int t, V m) const {
    const I infinite = m > T(1.7976931348623157e308);
    const V up = m < T(0x1p-900) ? all(T(0x1p1000)) : all(T(1));
    const V more = m < T(0x1p160) ? all(T(0x1p800)) : all(T(1));
    each_row(t, [&](T* at, T*) {
      const V b = load(at), one = as<V>(as<I>(all(T(1))) | sign_bit<T>(b));
      const V as_maximum = absolute<T>(b) == m ? one : V{};
      store(at, infinite ? as_maximum : b * up * more);
    });
    put(c.unit, t, infinite ? all(T(1)) : m * up * more);
    put(c.p, t, infinite ? all(T(HUGE_ORDER)) : get(c.p, t));
  }

  INLINE V sum_powers(int t) const {
    const V p = get(c.p, t);
    const Ratio<T> ratio(get(c.unit, t));
    return add_up<Sums>(t, [&](Sums& sums, T* b, T*) __attribute__((always_inline)) {
             const Logarithm<T> log = ratio.log2(absolute<T>(load(b)));
             sums.power += exp2<T>(p * (log.whole + log.part));
           }).power;
  }

  // sum 2^(p L) and sum 2^(p L) L; the entries become sign(b) 2^((p-1) L).
  INLINE Sums sum_slopes(int t) const {
    const V less_1 = get(c.p, t) - T(1);
    const Ratio<T> ratio(get(c.unit, t));
    return add_up<Sums>(t, [&](Sums& sums, T* at, T* log_at) __attribute__((always_inline)) {
      const V b = load(at), a = absolute<T>(b);
      const Logarithm<T> parts = ratio.log2(a);
      const V log = parts.whole + parts.part, slope = exp2<T>(less_1 * log);
      const V power = ratio.of(a) * slope;
      sums.power += power;
      sums.moment += power * log;
      store(log_at, log);
      store(at, b == 0 ? V{} : as<V>(as<I>(slope) | sign_bit<T>(b)));
    });
  }

  // D where it is small, without cancellation. With d_i = sum_j w_j x_j - x_i and x_i = ln 2^(p L_i),
  // the weights are exp(D - d_i) / N, and D = log(1 + sum_i w_i (exp(d_i) - 1 - d_i)).
  void separate_ties(I& careful) const {
    for (int t = 0; t < c.tiles; ++t) {
      const V divergence = get(c.u, t), n = get(c.n, t);
      const I tied = (divergence < TIED) & (get(c.unit, t) > 0);
      if (!any(tied)) continue;
      const V scale = get(c.p, t) * T(LN2), mean = get(c.moment, t);
      const T* last = c.log + (start(t) + rows(t) - 1) * W;
      Spread spread = add_up<Spread>(t, [&](Spread& sums, T*, T* log) {
        const V d = scale * (mean - load(log));
        V square = d * d, term = square * polynomial<4>(d, Number<T>::SERIES);
        if (SHARED && log == last) {
          const V lane = iota();
          const I inside = lane < T(c.last_row[t]);
          square = inside ? square : V{}, term = inside ? term : V{};
        }
        sums.terms += term;
        sums.widest = larger(sums.widest, square);
      });
      if (SHARED) spread.widest = all(across<T>(spread.widest, [](T x, T y) { return x > y ? x : y; }));
      const V exact = log2_1p<T>(joined(spread.terms) * exp_of_small(divergence * T(LN2)) / n);
      // The series is for few: where an entry is far from the others, or left out of n, digits help.
      const I near = (spread.widest < T(0.5)) & (n == (SHARED ? n : all(T(rows(t)))));
      put(c.u, t, (tied & near) ? exact : divergence);
      if constexpr (SINGLE) {
        c.careful[t] |= tied & ~near;
        careful |= tied & ~near;
      }
    }
  }

  // The same for two entries, y = x/2 apart from their mean: D = y tanh y - log cosh y.
  INLINE V divergence_of_two(int g, V p, V divergence) const {
    static constexpr T SERIES_OF_TWO[] = {0.7213475204444817f, -0.36067376022224085f,
                                          0.16029944898766260f, -0.06812726637531217f};  // in bits
    const T* log = c.log + 2 * g;  // one of the two is 0
    const V y = p * (load(log) + load(log + W)) * T(LN2 / 2), square = y * y;
    return divergence < TIED ? square * polynomial<2>(square, SERIES_OF_TWO) : divergence;
  }

  // The rounding of z - center moves each x by 1e-7 p, and D by sqrt(2 D) times that. It shows where
  // that is more than 3e-5 of the largest contribution to the gradient.
  void find_rounded(I& careful) const {
    V largest = {};
    for (int t = 0; t < c.tiles; ++t) largest = larger(largest, absolute<T>(get(c.dp, t) * get(c.u, t)));
    const V most = all(across<T>(largest, [](T x, T y) { return x > y ? x : y; }));
    for (int t = 0; t < c.tiles; ++t) {
      const V divergence = get(c.u, t), part = get(c.p, t) * get(c.dp, t) / most;
      const I rounded = (divergence < TIED) & (2 * divergence * part * part > T(9e4));
      c.careful[t] |= rounded;
      careful |= rounded;
    }
  }
  static V exp_of_small(V x) {
    V y = all(T(1));
    for (int k = SINGLE ? 2 : 6; k; --k) y = 1 + y * x / T(k);
    return y;
  }
  static V iota() {
    V v;
    for (int k = 0; k < W; ++k) v[k] = T(k);
    return v;
  }
};

}  // namespace
