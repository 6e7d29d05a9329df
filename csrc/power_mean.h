// The mean of any real order, of entries with weights, in double precision. For p < 0 the smallest
// entry dominates in the place of the largest, so that with
//
//   m = max |b_i|, or min |b_i| where p < 0,  L_i = log2(|b_i| / m),  n = sum_i w_i,
//   G = log2(sum_i w_i 2^(p L_i) / n),  u = m 2^(G/p):
//
//   du/db_i = sign(b_i) w_i/n 2^((p-1) L_i - G + G/p)
//   du/dw_i = u/n (2^(p L_i - G) - 1) / p
//   du/dp   = u/p^2 D,  D = sum_i v_i ln(n v_i / w_i),  v_i = w_i 2^(p L_i - G) / n
//
// every exponent p L_i is at most 0. How 0/0 is avoided at p = 0:
// - An order nearer to 0 than 2^-300 counts as 2^-300. The mean is smooth in p: nothing changes.
// - G is log(1 + x) of a mean x of terms 2^(p L_i) - 1, each computed as one: G/p has all digits.
// - D is a sum of terms of the size of (p L_i)^2: D/p^2 has all digits, and is Var(ln |b|) / 2 at 0.
//
// The root multiplies the errors of G by 1/p. Where G/p is large, beside a zero, in a wide group or by the weights,
// or where the weights make entries count that are far from m, that shows: values that are stored in double precision then have G in twice the digits (twofold.h).
//
// Entries without weight have been read as 0. Where p > 0 an entry of 0, and where p < 0 an infinite
// one, counts in n alone; where p <= 0 an entry of 0 makes the mean 0, with gradients of 0.
#pragma once
#include "lp_math.h"
#include "twofold.h"

namespace {

// EXACT: values are stored in double precision.
template <bool SHARED, bool EXACT> class PowerMean : Tiles<double, SHARED, 0> {
  using T = double;
  using Base = Tiles<T, SHARED, 0>;
  using typename Base::I, typename Base::V;
  using Base::c, Base::W, Base::TIED, Base::each_row, Base::get, Base::put;
  using Base::weights_of, Base::exp_of_small;
  static constexpr T INFINITE = __builtin_inf(), TINY_ORDER = 0x1p-300, NOWHERE = 1e200;

 public:
  explicit PowerMean(const Chunk<T>& chunk) : Base(chunk) {}

  void forward() { each_group(false); }
  // The gradients in b, those by the weights in log, and dp.
  void backward() { each_group(true); }

 private:
  struct Sums {
    V power = {}, less_1 = {}, moment = {}, weight = {};
    void join(const Sums& other) {
      power += other.power, less_1 += other.less_1, moment += other.moment, weight += other.weight;
    }
  };
  struct ExactSums {
    Twofold power, less_1, weight;
    void join(const ExactSums& other) {
      power = power + other.power, less_1 = less_1 + other.less_1, weight = weight + other.weight;
    }
  };
  struct Terms {
    V total = {};
    void join(const Terms& other) { total += other.total; }
  };

  void each_group(bool backward) {
    for (int t = 0; t < c.tiles; ++t) {
      V p = get(c.p, t);
      const V m = dominant_entry(t, p);
      const I infinite = m == INFINITE;
      p = infinite ? all(T(HUGE_ORDER)) : absolute<T>(p) < TINY_ORDER ? (p < 0 ? all(-TINY_ORDER) : all(TINY_ORDER)) : p;

      const Sums sums = sum_powers(t, p, m);
      const V weight = joined(sums.weight), n = weight == 0 ? all(T(1)) : weight;
      const V s = joined(sums.power), mean_less_1 = joined(sums.less_1) / n, mean = joined(sums.moment) / s;
      const Logarithm<T> far = Ratio<T>(all(T(1))).log2(s / n);
      const I near = mean_less_1 > T(-0.25);
      const Root<T> root(p, {near ? V{} : far.whole, near ? log2_1p<T>(mean_less_1) : far.part});
      Logarithm<T> log = {root.whole, root.part};
      const I hard = (absolute<T>(p) < 1) | (absolute<T>(root.whole + root.part) > 4) | (absolute<T>(mean) > 4);
      if (EXACT && !backward && any(hard & (m != 0) & ~infinite)) log = exact_root(t, p, m);
      V u = Power<T>(log.whole, log.part).times(scaled(m), exponent_of(m));
      u = (m == 0) | (m != m) | infinite ? m : u;
      u += (get(c.p, t) + weight) * 0;  // NaN if p is, or a weight; infinite weights have no mean
      put(c.u, t, infinite ? m : u);
      if (backward) write_gradients(t, p, m, u, n, mean, root);
    }
  }

  // The entry that m is; 0 also where an entry of 0 makes the mean 0.
  V dominant_entry(int t, V p) const {
    V most = {}, least = all(INFINITE);
    I not_a_number = {}, counts = {};
    each_row(t, [&](T* b, T*) {
      const V a = absolute<T>(load(b));
      const I counted = weights_of(b) != 0;
      most = larger(most, a);
      least = counted ? smaller(least, a) : least;
      not_a_number |= a != a;
      counts |= counted;
    });
    if constexpr (SHARED) {
      most = all(across<T>(most, [](T x, T y) { return x > y ? x : y; }));
      least = all(across<T>(least, [](T x, T y) { return x < y ? x : y; }));
      not_a_number = any(not_a_number) ? ~I{} : I{}, counts = any(counts) ? ~I{} : I{};
    }
    const V m = p < 0 ? least : most;
    const I nothing = ~counts | ((p <= 0) & (least == 0));
    return not_a_number ? all(T(__builtin_nan(""))) : nothing ? V{} : m;
  }

  // A number without its exponent, from 1 to 2, and the exponent; denormal ones included.
  INLINE static V normal(V a) { return a < Number<T>::MIN_NORMAL ? a * T(0x1p200) : a; }
  INLINE static V scaled(V a) {
    constexpr I MANTISSA = I{} + ((int64_t(1) << 52) - 1);
    return as<V>((as<I>(normal(a)) & MANTISSA) | as<I>(all(T(1))));
  }
  INLINE static V exponent_of(V a) {
    const V exponent = __builtin_convertvector((as<I>(normal(a)) >> 52) - 1023, V);
    return a < Number<T>::MIN_NORMAL ? exponent - 200 : exponent;
  }

  // L_i, beyond every number where an entry counts in n alone.
  struct LogRatio {
    const Ratio<T> ratio;
    const V m, p, exponent;
    LogRatio(V m, V p) : ratio(scaled(m)), m(m), p(p), exponent(exponent_of(m)) {}
    INLINE Logarithm<T> of(V a) const {
      const Logarithm<T> log = ratio.log2(normal(a));
      const V shift = a < Number<T>::MIN_NORMAL ? exponent + 200 : exponent;
      const I nowhere = (a == 0) | (a == INFINITE), none = (a == m) | (m == 0);
      const V whole = nowhere ? (p < 0 ? all(NOWHERE) : all(-NOWHERE)) : log.whole - shift;
      return {none ? V{} : whole, none | nowhere ? V{} : log.part};
    }
  };

  // The sums, and L_i in log.
  Sums sum_powers(int t, V p, V m) const {
    const LogRatio ratio(m, p);
    return this->template add_up<Sums>(t, [&](Sums& sums, T* b, T* log_at) __attribute__((always_inline)) {
      const V w = weights_of(b);
      const Logarithm<T> parts = ratio.of(absolute<T>(load(b)));
      const V log = parts.whole + parts.part;
      const Power<T> power(p * log);
      const V value = w * power.times(all(T(1)));
      sums.power += value, sums.less_1 += w * power.less_1, sums.weight += w;
      sums.moment += value * log;
      store(log_at, log);
    });
  }

  // G/p in two parts, whose error is that of rounding G/p, not 1/p times that of G.
  Logarithm<T> exact_root(int t, V p, V m) const {
    const LogRatio ratio(m, p);
    const V p1 = as<V>(as<I>(p) & Number<T>::FIRST_DIGITS), p2 = p - p1;
    const ExactSums sums = this->template add_up<ExactSums>(t, [&](ExactSums& sums, T* b, T*) {
      const Twofold w = {weights_of(b)};
      const Logarithm<T> log = ratio.of(absolute<T>(load(b)));
      V first = p1 * log.whole, second = p2 * log.whole + p * log.part;
      const I nothing = first + second < -Power<T>::MOST;
      first = nothing ? all(-Power<T>::MOST) : first, second = nothing ? V{} : second;
      const V exponent = rounded(first + second);
      const Twofold less_1 = w * Twofold::sum(first - exponent, second).exp2_less_1();
      const Twofold power = (w + less_1).times_two_to(exponent), far = power + Twofold{-w.high};
      const I near = exponent == 0;
      sums.join({power, {near ? less_1.high : far.high, near ? less_1.low : far.low}, w});
    });
    Twofold n = joined(sums.weight);
    n.high = n.high == 0 ? all(T(1)) : n.high;
    const Twofold less_1 = joined(sums.less_1) / n, mean = joined(sums.power) / n;
    const I near = less_1.high > T(-0.25);
    const Logarithm<T> far = Ratio<T>(all(T(1))).log2(mean.high);
    // A first log2, and what it lacks: 2^G 2^-log - 1.
    const V log = near ? log2_1p<T>(less_1.high) : far.whole + far.part, exponent = rounded(-log);
    const Twofold rest = mean.times_two_to(exponent) + Twofold{all(T(-1))};
    const Twofold up = Twofold{-log - exponent}.exp2_less_1();
    const Twofold down = {near ? less_1.high : rest.high, near ? less_1.low : rest.low};
    const V lack = (down + up + down * up).high / T(LN2), whole = log / p;
    const Twofold back = Twofold::product(whole, p);
    return {whole, ((log - back.high) - back.low + lack) / p};
  }

  INLINE static V rounded(V x) { return (x + Power<T>::MAGIC) - Power<T>::MAGIC; }
  using Base::joined;
  INLINE static Twofold joined(Twofold sum) {
    for (int half = W / 2; SHARED && half; half /= 2) {
      Twofold other;
      for (int k = 0; k < W; ++k) other.high[k] = sum.high[(k + half) % W], other.low[k] = sum.low[(k + half) % W];
      sum = sum + other;
    }
    return sum;
  }

  void write_gradients(int t, V p, V m, V u, V n, V mean, const Root<T>& root) const {
    const V grad = get(c.grad, t), inverse = root.order_inverse;
    const I finite = (m != INFINITE) & (m != 0);
    const V slope = T(LN2) * (divergence(t, p, n, mean, root) * inverse) * inverse;
    // Beside a zero the slope is large and u small; elsewhere u may be the largest number, and the slope is small.
    put(c.dp, t, finite ? (slope < 1 ? grad * slope * u : grad * u * slope) : V{});
    const V share = grad / n, by_weight = finite ? share * inverse : V{};
    each_row(t, [&](T* b, T* log_at) {
      const V log = load(log_at), w = weights_of(b), value = load(b);
      const Power<T> slope((p - 1) * log - root.log_mean + root.whole, root.part), ratio(p * log - root.log_mean);
      const V size = slope.times(share * w);
      const I none = (m == 0) | (w == 0) | (value == 0) | (absolute<T>(log) == NOWHERE);
      store(b, none ? V{} : as<V>(as<I>(size) ^ sign_bit<T>(value)));
      store(log_at, (w == 0) | (m == 0) ? V{} : by_weight * ratio.less_1 * u);
    });
  }

  // D in bits; see Math::separate_ties. Weights may make D small where entries are far apart, too.
  V divergence(int t, V p, V n, V mean, const Root<T>& root) const {
    const V direct = p * mean - root.log_mean, scale = p * T(LN2);
    const I tied = direct < TIED;
    if (!any(tied)) return direct;
    const Terms terms = this->template add_up<Terms>(t, [&](Terms& sums, T* b, T* log) {
      const V w = weights_of(b), d = w == 0 ? V{} : scale * (mean - load(log)), square = d * d;
      const I far = square >= T(0.5);
      V term = square * polynomial<4>(d, Number<T>::SERIES);
      if (any(far & tied)) term = far ? 1 - (1 + d) * Power<T>(d / T(-LN2)).times(all(T(1))) : term;
      sums.total += w * term;
    });
    const V mean_less_1 = joined(terms.total) * exp_of_small(direct * T(LN2)) / n;
    return tied & (mean_less_1 < T(0.25)) ? log2_1p<T>(mean_less_1) : direct;
  }
};

}  // namespace
