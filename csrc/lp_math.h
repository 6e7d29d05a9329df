// The Lp norm, p >= 1, of groups of values b_i with weights w_i, in vectors of W groups. With
//
//   m = max |b_i|,  L_i = log2(|b_i| / m),  s = sum_i w_i 2^(p L_i),  n = sum_i w_i:
//
//   u       = m (s/n)^(1/p)
//   du/db_i = sign(b_i) (u/m) w_i 2^((p-1) L_i) / s
//   du/dp   = u/p^2 D,  where D = sum_i v_i ln(n v_i / w_i) is the divergence of the shares
//                       v_i = w_i 2^(p L_i) / s from w_i / n
//
// How single precision keeps its digits:
// - L_i comes from an exact difference of two mantissas and a difference of two exponents, so its
//   relative error stays small where |b_i| is near m and p is large.
// - Groups that single precision cannot serve are marked, and done again in double precision. So
//   are orders below 1 (power_mean.h).
// - p = inf is an order of 1e30 with 1/p = 0: no case of its own.
// - D of nearly equal weights is a sum of terms that are never negative: nothing cancels.
// - Long sums are added up pairwise.
#pragma once
#include "vectors.h"

namespace {

// ---------------------------------------------------------------- a few tiles of groups

// A tile is a vector of groups, a lane each; or one group, whose entries fill the lanes (SHARED).
// Its entries are rows of vectors in `b`; all else is one number per group. Each step is done for
// all tiles before the next begins: so the processor works on several tiles at once, where within
// one it would wait for every result.
template <class T> struct Chunk {
  int tiles;
  bool weighted;             // by the weights in w, of which n is the sum; else every entry counts 1
  const int64_t* first;      // the first row of each tile, and the row behind the last tile
  const int64_t* last_row;   // SHARED: how many entries the last row of each tile has
  T *b, *log, *w;            // entries, which the backward turns into gradients; their L_i; weights
  T *p, *n, *grad;           // per group: order, size, the gradient that arrives
  T *u, *dp;                 // per group: results
  T *m, *unit, *s, *moment;  // per group: largest entry, the same as scaled, sum, and sum with L_i
  Ints<T>* careful;          // per tile: lanes that need double precision
  bool has_center, wants_dp;
};

// ROWS: the number of rows of every tile, if it is small; or 0.
template <class T, bool SHARED, int ROWS> class Tiles {
 protected:
  using V = Vec<T>;
  using I = Ints<T>;
  static constexpr int W = LANES<T>;
  static constexpr bool SINGLE = sizeof(T) == 4;
  static constexpr T TIED = T(0.01);  // bits of D below which its terms are added up one by one
  Chunk<T> c;

  explicit Tiles(const Chunk<T>& chunk) : c(chunk) {}

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

  // The weights of the row at b.
  INLINE V weights_of(const T* b) const { return load(c.w + (b - c.b)); }

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

template <class T, bool SHARED, int ROWS, bool WEIGHTED> class Math : Tiles<T, SHARED, ROWS> {
  using Base = Tiles<T, SHARED, ROWS>;
  using typename Base::I, typename Base::V;
  using Base::c, Base::W, Base::SINGLE, Base::TIED, Base::rows, Base::start, Base::each_row, Base::each_vector;
  using Base::get, Base::put, Base::joined, Base::weights_of, Base::exp_of_small, Base::iota;
  static constexpr bool TWO = ROWS == 2 && SINGLE && !WEIGHTED;

 public:
  explicit Math(const Chunk<T>& chunk) : Base(chunk) {}

  // u. Returns whether some lanes need double precision.
  bool forward() {
    I careful = {};
    for (int t = 0; t < c.tiles; ++t) {
      careful |= find_largest(t, false);
      careful |= keep_sums(t, sum_powers(t));
    }
    each_vector([&](int g) {
      const Root<T> root(load(c.p + g), load(c.s + g), load(c.n + g));
      store(c.u + g, load(c.m + g) * value_of(root, g));
    });
    return SINGLE && any(careful);
  }

  // The gradients in b, and dp. Returns whether some lanes need double precision.
  bool backward() {
    I careful = {}, tied = {};
    for (int t = 0; t < c.tiles; ++t) {
      careful |= find_largest(t, true);
      const Sums sums = sum_slopes(t);
      careful |= keep_sums(t, sums);
      put(c.moment, t, joined(sums.moment));
    }
    each_vector([&](int g) {
      const V p = load(c.p + g), m = load(c.m + g), s = load(c.s + g), grad = load(c.grad + g);
      const Root<T> root(p, s, load(c.n + g));
      const V k = m == m ? value_of(root, g) : m, mean = load(c.moment + g) / s;
      const V divergence = p * mean - root.log_mean;  // in bits
      store(c.s + g, grad * k / s);
      store(c.moment + g, mean);
      store(c.u + g, TWO ? divergence_of_two(g, p, divergence) : divergence);
      const V slope = T(LN2) * k * root.order_inverse * root.order_inverse * grad;
      // In double precision m comes last: it may be the largest number, and the rest is small.
      store(c.dp + g, SINGLE ? slope * (root.order_inverse == 0 ? V{} : m) : slope);
      tied |= divergence < TIED;
    });
    if (c.wants_dp && any(tied)) {
      if (!TWO) separate_ties(careful);
      if (c.has_center && SINGLE) find_rounded(careful);
    }
    each_vector([&](int g) {
      const V slope = load(c.dp + g) * load(c.u + g);
      store(c.dp + g, SINGLE ? slope : slope == 0 ? V{} : slope * load(c.m + g));
    });
    for (int t = 0; t < c.tiles; ++t) {
      const V factor = get(c.s, t);
      each_row(t, [&](T* b, T*) { store(b, load(b) * factor); });
    }
    return SINGLE && any(careful);
  }

 private:
  struct Sums {
    V power = {}, moment = {}, weight = {};
    void join(const Sums& other) {
      power += other.power, moment += other.moment;
      if (WEIGHTED) weight += other.weight;
    }
  };
  struct Spread {
    V terms = {}, widest = {};
    void join(const Spread& other) { terms += other.terms, widest = larger(widest, other.widest); }
  };

  INLINE V value_of(const Root<T>& root, int g) const {
    return exp2<T>(root.whole, root.part) + load(c.p + g) * 0;  // NaN if p is
  }

  // s, and n if there are weights; returns the lanes that need double precision.
  INLINE I keep_sums(int t, const Sums& sums) const {
    const V s = joined(sums.power);
    put(c.s, t, s);
    if constexpr (!WEIGHTED) return I{};
    const V n = joined(sums.weight);
    put(c.s, t, n == 0 ? all(T(1)) : s), put(c.n, t, n == 0 ? all(T(1)) : n);
    // A zero counts as 2^-47: that must not show, whatever it weighs. Nor may the rounding of L, where weights make
    // entries count that are far from the largest: by more than 4 bits on average.
    const I near = (s > n * T(1e-6)) & (joined(sums.moment) > -4 * s);
    const I unusual = (n != 0) & ~((n > T(1e-30)) & (n < T(1e30)) & near);
    if constexpr (SINGLE) c.careful[t] |= unusual;
    return unusual;
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
      c.careful[t] = unusual |= c.careful[t];  // where the order is below 1
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

  INLINE Sums sum_powers(int t) const {
    const V p = get(c.p, t);
    const Ratio<T> ratio(get(c.unit, t));
    return this->template add_up<Sums>(t, [&](Sums& sums, T* b, T*) __attribute__((always_inline)) {
      const Logarithm<T> log = ratio.log2(absolute<T>(load(b)));
      const V l = log.whole + log.part, power = exp2<T>(p * l);
      if constexpr (!WEIGHTED) {
        sums.power += power;
        return;
      }
      const V w = weights_of(b), weighted = power * w;
      sums.power += weighted, sums.moment += weighted * l, sums.weight += w;
    });
  }

  // sum 2^(p L) and sum 2^(p L) L; the entries become sign(b) 2^((p-1) L).
  INLINE Sums sum_slopes(int t) const {
    const V less_1 = get(c.p, t) - T(1);
    const Ratio<T> ratio(get(c.unit, t));
    return this->template add_up<Sums>(t, [&](Sums& sums, T* at, T* log_at) __attribute__((always_inline)) {
      const V b = load(at), a = absolute<T>(b);
      const Logarithm<T> parts = ratio.log2(a);
      const V log = parts.whole + parts.part;
      V slope = exp2<T>(less_1 * log);
      if constexpr (WEIGHTED) slope *= weights_of(at), sums.weight += weights_of(at);
      const V power = ratio.of(a) * slope;
      sums.power += power;
      sums.moment += power * log;
      store(log_at, log);
      store(at, b == 0 ? V{} : as<V>(as<I>(slope) | sign_bit<T>(b)));
    });
  }

  // D where it is small, without cancellation. With d_i = sum_j v_j x_j - x_i and x_i = ln 2^(p L_i),
  // the shares v_i are w_i exp(D - d_i) / n, and D = log(1 + sum_i v_i (exp(d_i) - 1 - d_i)).
  void separate_ties(I& careful) const {
    for (int t = 0; t < c.tiles; ++t) {
      const V divergence = get(c.u, t), n = get(c.n, t);
      const I tied = (divergence < TIED) & (get(c.unit, t) > 0);
      if (!any(tied)) continue;
      const V scale = get(c.p, t) * T(LN2), mean = get(c.moment, t);
      const T* last = c.log + (start(t) + rows(t) - 1) * W;
      Spread spread = this->template add_up<Spread>(t, [&](Spread& sums, T* b, T* log) {
        const V d = scale * (mean - load(log));
        V square = d * d, term = square * polynomial<4>(d, Number<T>::SERIES);
        if constexpr (WEIGHTED) {
          const V w = weights_of(b);  // what has none may be so far away that its term is no number
          term = w == 0 ? V{} : term * w, square = w == 0 ? V{} : square;
        } else if (SHARED && log == last) {
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
      const I near = (spread.widest < T(0.5)) & (n == (SHARED || WEIGHTED ? n : all(T(rows(t)))));
      put(c.u, t, (tied & near) ? exact : divergence);
      if constexpr (SINGLE) {
        c.careful[t] |= tied & ~near;
        careful |= tied & ~near;
      }
    }
  }

  // The same for two entries that count alike, y = x/2 apart from their mean: D = y tanh y - log cosh y.
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
};

}  // namespace
