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
// Entries without weight have been read as 0. Where p > 0 an entry of 0, and where p < 0 an infinite
// one, counts in n alone; where p <= 0 an entry of 0 makes the mean 0, with gradients of 0.
#pragma once
#include "lp_math.h"

namespace {

template <bool SHARED> class PowerMean : Tiles<double, SHARED, 0> {
  using T = double;
  using Base = Tiles<T, SHARED, 0>;
  using typename Base::I, typename Base::V;
  using Base::c, Base::W, Base::TIED, Base::each_row, Base::get, Base::put, Base::joined;
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
  struct Spread {
    V terms = {}, widest = {};
    void join(const Spread& other) { terms += other.terms, widest = larger(widest, other.widest); }
  };

  void each_group(bool backward) {
    for (int t = 0; t < c.tiles; ++t) {
      V p = get(c.p, t);
      const V m = dominant_entry(t, p);
      const I infinite = m == INFINITE;
      p = infinite ? all(T(HUGE_ORDER)) : absolute<T>(p) < TINY_ORDER ? all(TINY_ORDER) : p;

      const Sums sums = sum_powers(t, p, m);
      const V weight = joined(sums.weight), n = weight == 0 ? all(T(1)) : weight;
      const V s = joined(sums.power), mean_less_1 = joined(sums.less_1) / n;
      const Logarithm<T> far = Ratio<T>(all(T(1))).log2(s / n);
      const I near = mean_less_1 > T(-0.25);
      const Root<T> root(p, {near ? V{} : far.whole, near ? log2_1p<T>(mean_less_1) : far.part});
      const V exponent = exponent_of(m);
      V u = Power<T>(root.whole, root.part).times(scaled(m), exponent);
      u = (m == 0) | (m != m) | infinite ? m : u;
      u += get(c.p, t) * 0;  // NaN if p is
      put(c.u, t, infinite ? m : u);
      if (backward) write_gradients(t, p, m, u, n, joined(sums.moment) / s, root);
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

  // The sums, and L_i in log: beyond every number where an entry counts in n alone.
  Sums sum_powers(int t, V p, V m) const {
    const Ratio<T> ratio(scaled(m));
    const V exponent = exponent_of(m), nowhere = p < 0 ? all(NOWHERE) : all(-NOWHERE);
    return this->template add_up<Sums>(t, [&](Sums& sums, T* b, T* log_at) __attribute__((always_inline)) {
      const V a = absolute<T>(load(b)), w = weights_of(b);
      const Logarithm<T> parts = ratio.log2(normal(a));
      const V shift = a < Number<T>::MIN_NORMAL ? exponent + 200 : exponent;
      V log = (parts.whole - shift) + parts.part;
      log = (a == 0) | (a == INFINITE) ? nowhere : log;
      log = (a == m) | (m == 0) ? V{} : log;
      const Power<T> power(p * log);
      const V value = w * power.times(all(T(1)));
      sums.power += value, sums.less_1 += w * power.less_1, sums.weight += w;
      sums.moment += value * log;
      store(log_at, log);
    });
  }

  void write_gradients(int t, V p, V m, V u, V n, V mean, const Root<T>& root) const {
    const V grad = get(c.grad, t), inverse = root.order_inverse;
    const I finite = (m != INFINITE) & (m != 0);
    const V slope = T(LN2) * (divergence(t, p, n, mean, root) * inverse) * inverse;
    put(c.dp, t, finite ? grad * u * slope : V{});
    const V share = grad / n, by_weight = finite ? share * u * inverse : V{};
    each_row(t, [&](T* b, T* log_at) {
      const V log = load(log_at), w = weights_of(b), value = load(b);
      const Power<T> slope((p - 1) * log - root.log_mean + root.whole, root.part), ratio(p * log - root.log_mean);
      const V size = slope.times(share * w);
      const I none = (m == 0) | (w == 0) | (value == 0) | (absolute<T>(log) == NOWHERE);
      store(b, none ? V{} : as<V>(as<I>(size) ^ sign_bit<T>(value)));
      store(log_at, (w == 0) | (m == 0) ? V{} : by_weight * ratio.less_1);
    });
  }

  // D in bits; see Math::separate_ties.
  V divergence(int t, V p, V n, V mean, const Root<T>& root) const {
    const V direct = p * mean - root.log_mean, scale = p * T(LN2);
    if (!any(direct < TIED)) return direct;
    Spread spread = this->template add_up<Spread>(t, [&](Spread& sums, T* b, T* log) {
      const V w = weights_of(b), d = w == 0 ? V{} : scale * (mean - load(log));
      sums.terms += w * d * d * polynomial<4>(d, Number<T>::SERIES);
      sums.widest = larger(sums.widest, d * d);
    });
    if (SHARED) spread.widest = all(across<T>(spread.widest, [](T x, T y) { return x > y ? x : y; }));
    const V exact = log2_1p<T>(joined(spread.terms) * exp_of_small(direct * T(LN2)) / n);
    return (direct < TIED) & (spread.widest < T(0.5)) ? exact : direct;
  }
};

}  // namespace
