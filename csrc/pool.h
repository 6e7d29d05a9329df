// A few tiles of groups at a time: read from memory, computed, written back.
#pragma once
#include <initializer_list>

#include "memory.h"
#include "power_mean.h"

namespace {

constexpr int64_t CHUNK_ROWS = 160;  // of vectors, so that a chunk stays in the nearest cache
constexpr int64_t MOST_TILES = 16;

// T: what is computed in; S: what is stored.
template <class T, class S> class Pool {
  static constexpr int W = LANES<T>;
  using Parameter = std::conditional_t<sizeof(S) == 8, double, float>;
  const Plan& plan;
  Chunk<T> c = {};
  int64_t first[MOST_TILES + 1], last_row[MOST_TILES];
  bool backward;
  Place* places;  // of the entries of a window

 public:
  static int64_t rows(const Plan& plan, int64_t entries) {
    return plan.shared ? (entries + W - 1) / W : entries;
  }
  static int64_t most_tiles(const Plan& plan) {
    const int64_t tiles = CHUNK_ROWS / (rows(plan, plan.rows) + 1);
    return tiles < 1 ? 1 : tiles > MOST_TILES ? MOST_TILES : tiles;
  }
  static int64_t places_bytes(const Plan& plan) {
    return plan.spaces ? (plan.rows * int64_t(sizeof(Place)) + BYTES - 1) / BYTES * BYTES : 0;
  }
  static int64_t bytes(const Plan& plan, int64_t tiles) {
    return (3 * rows(plan, plan.rows) + 11) * tiles * BYTES + places_bytes(plan);
  }

  Pool(const Plan& plan, int64_t tiles, void* scratch, bool backward) : plan(plan), backward(backward) {
    places = static_cast<Place*>(scratch);
    if (plan.spaces) find_places();
    T* at = reinterpret_cast<T*>(static_cast<char*>(scratch) + places_bytes(plan));
    const auto take = [&](int64_t vectors) { return at += vectors * W, at - vectors * W; };
    for (T** entries : {&c.b, &c.log, &c.w}) *entries = take(rows(plan, plan.rows) * tiles);
    for (T** numbers : {&c.p, &c.n, &c.grad, &c.u, &c.dp, &c.m, &c.unit, &c.s, &c.moment})
      *numbers = take(tiles);
    c.careful = reinterpret_cast<Ints<T>*>(take(tiles));
    c.first = first, c.last_row = last_row;
    c.has_center = plan.center.data, c.wants_dp = plan.dp_size;
  }

  // Read the tiles; compute; in single precision, do again what needs more.
  void compute(const Tile* tiles, int count, void* scratch) {
    c.tiles = count;
    c.weighted = plan.weight.data;
    for (int t = 0; t < count; ++t) c.weighted |= read_order(tiles[t], t);
    first[0] = 0;
    for (int t = 0; t < count; ++t) read_tile(tiles[t], t);
    if (!run()) return;
    if constexpr (sizeof(T) == 4)
      for (int t = 0; t < count; ++t)
        if (any(c.careful[t])) compute_again(tiles[t], t, scratch);
  }

  void write_values(const Tile* tiles) const {
    for (int t = 0; t < c.tiles; ++t)
      scatter(group(c.u, t), static_cast<S*>(plan.u.data) + tiles[t].u, plan.u.lane, groups(tiles[t]));
  }

  void write_gradients(const Tile* tiles, T* dp, T* dcenter) const {
    for (int t = 0; t < c.tiles; ++t) {
      const Tile& tile = tiles[t];
      if (plan.dp_size) {
        if (plan.shared) dp[tile.dp] += c.dp[t];
        else add(group(c.dp, t), dp + tile.dp, plan.dp.lane, tile.count, T(1));
      }
      if (plan.spaces) {
        add_to_windows(tile, t);
        continue;
      }
      write_rows(c.b, static_cast<S*>(plan.dz.data) + tile.dz, plan.dz, tile, t);
      if (plan.dweight.data) write_rows(c.log, static_cast<Parameter*>(plan.dweight.data) + tile.dweight, plan.dweight, tile, t);
      if (!plan.dcenter_size) continue;
      const T* row = c.b + first[t] * W;
      const int64_t step = row_step(plan.dcenter), lane = lane_step(plan.dcenter), count = rows(plan, tile.rows);
      for (int64_t i = 0; i < count; ++i) add(row + i * W, dcenter + tile.dcenter + i * step, lane, entries_of_row(tile, t, i), T(-1));
    }
  }

 private:
  template <class A, class B> friend class Pool;

  // In a vector of a shared group the entries lie side by side, otherwise the groups.
  int64_t row_step(const Operand& of) const { return plan.shared ? of.row * W : of.row; }
  int64_t lane_step(const Operand& of) const { return plan.shared ? of.row : of.lane; }
  int64_t entries_of_row(const Tile& tile, int t, int64_t i) const {
    if (!plan.shared) return tile.count;
    return first[t] + i + 1 == first[t + 1] ? last_row[t] : W;
  }
  // How many rows fill their vectors; they are the first.
  int64_t whole_rows(const Tile& tile, int t) const {
    const int64_t count = first[t + 1] - first[t];
    return plan.shared ? count - (last_row[t] < W) : tile.count == W ? count : 0;
  }
  template <class N> void write_rows(const T* entries, N* to, const Operand& of, const Tile& tile, int t) const {
    const T* from = entries + first[t] * W;
    const int64_t count = rows(plan, tile.rows), step = row_step(of), lane = lane_step(of);
    const int64_t whole = tile.rows && lane == 1 ? whole_rows(tile, t) : 0, *const rows_at = tile.rows_at;
    for (int64_t i = 0; i < whole; ++i) scatter(from + i * W, to + (rows_at ? rows_at[i] : i) * step, 1, W);
    for (int64_t i = whole; i < count; ++i)
      scatter(from + i * W, to + (rows_at ? rows_at[i] : i) * step, lane, entries_of_row(tile, t, i));
  }
  void add_to_windows(const Tile& tile, int t) const {  // they overlap; dz is of the type T
    for (int64_t i = 0; i < tile.rows; ++i) {
      const T* row = c.b + (first[t] + i) * W;
      const Entry entry = window_entry(plan, tile, places[i]);
      T* dz = static_cast<T*>(plan.dz.data) + tile.dz + entry.at;
      if (entry.step == 1 && entry.begin == 0 && entry.end == W)
        for (int k = 0; k < W; ++k) dz[k] += row[k];
      else
        for (int64_t k = entry.begin; k < entry.end; ++k) dz[k * entry.step] += row[k];
    }
  }

  // Numbers per group.
  T* group(T* of, int t) const { return plan.shared ? of + t : of + t * W; }
  int64_t groups(const Tile& tile) const { return plan.shared ? 1 : tile.count; }
  template <class N> void read_groups(const N* from, int64_t step, const Tile& tile, int t, T rest, T* to) const {
    if (plan.shared) to[t] = T(read(*from));
    else gather<T>(from, step, tile.count, rest, to + t * W);
  }

  // The orders; whether some below 1 are to be computed now. Single precision leaves them to double.
  bool read_order(const Tile& tile, int t) {
    const Parameter* from = static_cast<const Parameter*>(plan.p.data) + tile.p;
    Vec<T> p;
    if (plan.shared) p = all(T(*from));
    else if (plan.p.lane == 1 && tile.count == W) p = load_as<T>(from);  // not by way of c.p: that waits
    else gather<T>(from, plan.p.lane, tile.count, T(1), c.p + t * W), p = load(c.p + t * W);
    const Vec<T> most = all(T(HUGE_ORDER));
    p = p > most ? most : p < -most ? -most : p;
    const Ints<T> below_1 = p < 1;
    if constexpr (sizeof(T) == 4) {
      p = below_1 ? all(T(1)) : p;
      c.careful[t] = plan.dweight.data ? ~Ints<T>{} : below_1;
    }
    if (plan.shared) c.p[t] = p[0];
    else store(c.p + t * W, p);
    return sizeof(T) == 8 && any(below_1);
  }

  void read_tile(const Tile& tile, int t) {
    const int64_t entries = tile.rows > 0 ? tile.rows : 1;  // an empty group is that of a zero
    const int64_t count = rows(plan, entries);
    first[t + 1] = first[t] + count;
    last_row[t] = entries - (count - 1) * W;
    if (plan.shared) c.n[t] = T(entries);
    else store(c.n + t * W, all(T(entries)));
    if (backward)
      read_groups(static_cast<const S*>(plan.u.data) + tile.u, plan.u.lane, tile, t, T(0), c.grad);
    if (plan.spaces) return read_windows(tile, t);
    if (!tile.rows) return store(c.w + first[t] * W, Vec<T>{}), store(c.b + first[t] * W, Vec<T>{});
    read_rows(tile, t);
    if (!c.weighted) return;
    if (plan.mask) read_weights(static_cast<const bool*>(plan.weight.data), tile, t);
    else read_weights(static_cast<const Parameter*>(plan.weight.data), tile, t);
  }

  void read_rows(const Tile& tile, int t) {
    const S* z = static_cast<const S*>(plan.z.data) + tile.z;
    const Parameter* center = static_cast<const Parameter*>(plan.center.data);
    if (center) center += tile.center;
    T* const rows = c.b + first[t] * W;
    const int64_t count = first[t + 1] - first[t], *const rows_at = tile.rows_at;
    const int64_t z_row = row_step(plan.z), z_lane = lane_step(plan.z);
    const int64_t center_row = row_step(plan.center), center_lane = lane_step(plan.center);
    const int64_t whole = z_lane == 1 && (!center || center_lane == 1) ? whole_rows(tile, t) : 0;
    for (int64_t i = 0; i < whole; ++i) {
      const Vec<T> values = load_as<T>(z + (rows_at ? rows_at[i] : i) * z_row);
      store(rows + i * W, center ? values - load_as<T>(center + i * center_row) : values);
    }
    for (int64_t i = whole; i < count; ++i) {
      const int64_t inside = entries_of_row(tile, t, i);
      gather<T>(z + (rows_at ? rows_at[i] : i) * z_row, z_lane, inside, T(0), rows + i * W);
      if (!center) continue;
      T subtract[W];
      gather<T>(center + i * center_row, center_lane, inside, T(0), subtract);
      store(rows + i * W, load(rows + i * W) - load(subtract));
    }
  }

  // What has no weight counts for nothing, whatever it is. A negative weight is an error.
  template <class N> void read_weights(const N* from, const Tile& tile, int t) {
    const N one = 1;
    const bool given = from;
    from = given ? from + tile.weight : &one;
    T *const rows = c.b + first[t] * W, *const weights = c.w + first[t] * W;
    const int64_t count = first[t + 1] - first[t], *const rows_at = tile.rows_at;
    const int64_t step = given ? row_step(plan.weight) : 0, lane = given ? lane_step(plan.weight) : 0;
    const int64_t whole = lane == 0 || lane == 1 ? whole_rows(tile, t) : 0;
    const auto row = [&](int64_t i) { return from + (rows_at ? rows_at[i] : i) * step; };
    const auto keep = [&](int64_t i, Vec<T> w) __attribute__((always_inline)) {
      store(rows + i * W, w == 0 ? Vec<T>{} : load(rows + i * W));
      if constexpr (!std::is_same_v<N, bool>) w = w < 0 ? all(T(__builtin_nan(""))) : w;
      store(weights + i * W, w);
    };
    if (lane) for (int64_t i = 0; i < whole; ++i) keep(i, load_as<T>(row(i)));
    else for (int64_t i = 0; i < whole; ++i) keep(i, all(T(read(*row(i)))));
    for (int64_t i = whole; i < count; ++i) {
      gather<T>(row(i), lane, entries_of_row(tile, t, i), T(0), weights + i * W);
      keep(i, load(weights + i * W));
    }
  }

  void find_places() {
    for (int64_t i = 0; i < plan.rows; ++i) {
      int64_t rest = i;
      places[i].at = 0;
      for (int s = plan.spaces - 1; s >= 0; --s) {
        const Space& space = plan.space[s];
        places[i].along[s] = rest % space.kernel * space.dilation;
        places[i].at += places[i].along[s] * space.step;
        rest /= space.kernel;
      }
    }
  }

  void read_windows(const Tile& tile, int t) {
    const S* z = static_cast<const S*>(plan.z.data) + tile.z;
    for (int64_t i = 0; i < tile.rows; ++i) {
      const Entry entry = window_entry(plan, tile, places[i]);
      T* row = c.b + (first[t] + i) * W;
      if (entry.begin == 0 && entry.end == W && entry.step == 1)
        store(row, load_as<T>(z + entry.at));
      else if (entry.begin == 0 && entry.end == W)
        gather<T>(z + entry.at, entry.step, W, T(0), row);
      else
        for (int k = 0; k < W; ++k)
          row[k] = k >= entry.begin && k < entry.end ? T(read(z[entry.at + k * entry.step])) : T(0);
      if (!c.weighted) continue;
      const Entry counted = window_entry(plan, tile, places[i], plan.count_include_pad);
      for (int k = 0; k < W; ++k) c.w[row - c.b + k] = k >= counted.begin && k < counted.end;
    }
    int64_t n = 1;  // of the entries that count, along the dimensions in which all lanes agree
    const Space* along_lanes = nullptr;
    for (int s = 0; s < plan.spaces; ++s) {
      const Space& space = plan.space[s];
      if (space.dim < 0) along_lanes = &space;
      else n *= entries_that_count(space, tile.window[s], plan.count_include_pad);
    }
    const auto counted = [&](int64_t k) {
      return n * (along_lanes ? entries_that_count(*along_lanes, tile.lane + k, plan.count_include_pad) : 1);
    };
    // Windows lose entries at the two ends alone.
    const int64_t first_count = counted(0), last_count = counted(tile.count - 1);
    const bool equal = !along_lanes || (first_count == last_count && first_count == n * along_lanes->kernel);
    for (int64_t k = 0; k < W; ++k) {
      const int64_t count = equal ? first_count : counted(k < tile.count ? k : tile.count - 1);
      c.n[t * W + k] = T(count > 0 ? count : 1);
    }
  }

  template <bool SHARED, int ROWS, bool WEIGHTED> bool run_rows() {
    Math<T, SHARED, ROWS, WEIGHTED> math(c);
    return backward ? math.backward() : math.forward();
  }
  template <bool WEIGHTED> bool run_norms() {
    if (plan.shared) return run_rows<true, 0, WEIGHTED>();
    if constexpr (sizeof(T) == 4)
      if (!plan.offsets) switch (plan.rows) {
        case 2: return run_rows<false, 2, WEIGHTED>();
        case 3: return run_rows<false, 3, WEIGHTED>();
        case 4: return run_rows<false, 4, WEIGHTED>();
        case 5: return run_rows<false, 5, WEIGHTED>();
      }
    return run_rows<false, 0, WEIGHTED>();
  }
  template <bool SHARED> bool run_means() {
    PowerMean<SHARED, sizeof(S) == 8> mean(c);
    return backward ? mean.backward() : mean.forward(), false;
  }
  bool run() {
    if (!c.weighted) return run_norms<false>();
    if constexpr (sizeof(T) == 4) return run_norms<true>();
    else return plan.shared ? run_means<true>() : run_means<false>();
  }

  // A tile in double precision, which has half as many lanes.
  void compute_again(const Tile& tile, int t, void* scratch) {
    constexpr int HALF = W / 2;
    using Double = Pool<double, S>;
    Double again(plan, 2, scratch, backward);
    const Tile halves[2] = {tile, tile.shifted(plan, HALF)};
    Tile parts[2] = {halves[0], halves[1]};
    parts[0].count = tile.count < HALF ? tile.count : HALF;
    const int count = plan.shared || tile.count <= HALF ? 1 : 2;
    again.compute(parts, count, nullptr);
    for (int part = 0; part < count; ++part)
      for (int k = 0; k < (plan.shared ? 1 : HALF); ++k) {
        const int to = plan.shared ? t : t * W + part * HALF + k, from = plan.shared ? 0 : part * HALF + k;
        (backward ? c.dp : c.u)[to] = T((backward ? again.c.dp : again.c.u)[from]);
      }
    if (!backward) return;
    const auto copy = [&](T* to, const double* from) {
      to += first[t] * W;
      if (plan.shared)
        for (int64_t k = 0; k < tile.rows; ++k) to[k] = T(from[k]);
      else
        for (int part = 0; part < count; ++part)
          for (int64_t i = 0; i < tile.rows; ++i)
            for (int k = 0; k < HALF; ++k)
              to[i * W + part * HALF + k] = T(from[(again.first[part] + i) * HALF + k]);
    };
    copy(c.b, again.c.b);
    if (plan.dweight.data) copy(c.log, again.c.log);
  }
};

}  // namespace
