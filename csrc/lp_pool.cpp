// Where the groups are in memory: brings them into chunks, and the results back.
//
// Compiled once for each instruction set. It includes nothing with inline functions of others, which
// the linker could take from here into code that must run on every processor.
#include <initializer_list>
#include <type_traits>

#include "lp_math.h"
#include "plan.h"

namespace {

using lpunits::Operand;
using lpunits::Plan;
using lpunits::Space;
using lpunits::Type;

constexpr int64_t CHUNK_ROWS = 160;  // of vectors, so that a chunk stays in the nearest cache
constexpr int64_t MOST_TILES = 16;
constexpr int64_t ADDITIONS = 64;    // in single precision, before a sum is added to a double

// ---------------------------------------------------------------- numbers in memory

struct bfloat16 { uint16_t bits; };
#ifdef __FLT16_MAX__
using float16 = _Float16;
#else
using float16 = __fp16;
#endif

INLINE float read(float x) { return x; }
INLINE double read(double x) { return x; }
INLINE float read(float16 x) { return float(x); }
INLINE float read(bfloat16 x) { return as<float>(uint32_t(x.bits) << 16); }

template <class S, class T> INLINE S rounded(T x) { return S(x); }
template <> inline bfloat16 rounded<bfloat16, float>(float x) {  // to the nearest, ties to even
  const uint32_t bits = as<uint32_t>(x);
  if (x != x) return {0x7FC0};
  return {uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
}

// A vector of numbers side by side.
template <class T, class S> INLINE Vec<T> load_as(const S* from) {
  if constexpr (std::is_same_v<T, S>) return load(from);
  T values[LANES<T>];
  for (int k = 0; k < LANES<T>; ++k) values[k] = T(read(from[k]));
  return load(values);
}

// `count` numbers at a distance of `step`; the other lanes of the vector become `rest`.
template <class T, class S> INLINE void gather(const S* __restrict from, int64_t step, int64_t count, T rest, T* __restrict to) {
  if (count == LANES<T>) {
    if (step == 1)
      for (int k = 0; k < LANES<T>; ++k) to[k] = T(read(from[k]));
    else if (step == 2)
      for (int k = 0; k < LANES<T>; ++k) to[k] = T(read(from[2 * k]));
    else
      for (int k = 0; k < LANES<T>; ++k) to[k] = T(read(from[k * step]));
    return;
  }
  for (int k = 0; k < LANES<T>; ++k) to[k] = k < count ? T(read(from[k * step])) : rest;
}

template <class T, class S> INLINE void scatter(const T* __restrict from, S* __restrict to, int64_t step, int64_t count) {
  if (step == 1 && count == LANES<T>)
    for (int k = 0; k < LANES<T>; ++k) to[k] = rounded<S>(from[k]);
  else
    for (int64_t k = 0; k < count; ++k) to[k * step] = rounded<S>(from[k]);
}

template <class T, class A> INLINE void add(const T* __restrict from, A* __restrict to, int64_t step, int64_t count, T factor) {
  if (step == 0 && count == LANES<T>)
    *to += A(factor * sum_across<T>(load(from)));
  else if (step == 1 && count == LANES<T>)
    for (int k = 0; k < LANES<T>; ++k) to[k] += A(factor * from[k]);
  else
    for (int64_t k = 0; k < count; ++k) to[k * step] += A(factor * from[k]);
}

// ---------------------------------------------------------------- tiles

// Where a vector of groups begins in each tensor.
struct Tile {
  int64_t z, p, center, u, dz, dp, dcenter;
  int64_t lane;                        // the first group along the lanes
  int64_t count;                       // of groups
  int64_t rows;                        // entries of a group
  int64_t window[lpunits::MOST_SPACE];  // along each dimension of space

  // The tile that begins `by` lanes further right.
  Tile shifted(const Plan& plan, int64_t by) const {
    Tile other = *this;
    other.move(plan, by);
    other.count = count > by ? count - by : 0;
    return other;
  }

  void move(const Plan& plan, int64_t by) {
    lane += by;
    z += by * plan.z.lane, p += by * plan.p.lane, center += by * plan.center.lane, u += by * plan.u.lane;
    dz += by * plan.dz.lane, dp += by * plan.dp.lane, dcenter += by * plan.dcenter.lane;
    for (int s = 0; s < plan.spaces; ++s)
      if (plan.space[s].dim < 0) window[s] = lane;
  }
};

// Steps from one tile to the next.
class Walk {
  const Plan& plan;
  const int64_t width;
  int64_t index[lpunits::MOST_DIMS] = {};  // along each dimension of the groups

 public:
  Tile tile;

  Walk(const Plan& plan, int64_t task, int width) : plan(plan), width(width) {
    const int64_t blocks = (plan.lanes + width - 1) / width, first = task % blocks;
    task /= blocks;
    for (int d = plan.dims - 1; d >= 0; --d) {
      index[d] = task % plan.sizes[d];
      task /= plan.sizes[d];
    }
    begin_row();
    move(first * width);
  }

  void next() {
    if (tile.lane + width < plan.lanes) return move(width);
    for (int d = plan.dims - 1; d >= 0; --d) {
      if (++index[d] < plan.sizes[d]) break;
      index[d] = 0;
    }
    begin_row();
    move(0);
  }

 private:
  void move(int64_t by) {
    tile.move(plan, by);
    tile.count = plan.lanes - tile.lane < width ? plan.lanes - tile.lane : width;
  }

  void begin_row() {
    const auto offset = [&](const Operand& of) {
      int64_t at = 0;
      for (int d = 0; d < plan.dims; ++d) at += index[d] * of.outer[d];
      return at;
    };
    tile.lane = 0;
    tile.z = offset(plan.z), tile.p = offset(plan.p), tile.u = offset(plan.u);
    tile.center = offset(plan.center), tile.dz = offset(plan.dz);
    tile.dp = offset(plan.dp), tile.dcenter = offset(plan.dcenter);
    tile.rows = plan.rows;
    for (int s = 0; s < plan.spaces; ++s) tile.window[s] = plan.space[s].dim < 0 ? 0 : index[plan.space[s].dim];
    if (plan.offsets) {
      const int64_t first = plan.offsets[index[0]];
      tile.rows = plan.offsets[index[0] + 1] - first;
      tile.z += first * plan.z.row, tile.dz += first * plan.dz.row;
    }
  }
};

// An entry of a window: how far it is from the window's start, along each dimension and in memory.
struct Place { int64_t along[lpunits::MOST_SPACE], at; };

// One entry of all windows of a tile: where it is, and the lanes in which it is inside of the image.
struct Entry { int64_t at, step, begin, end; };

INLINE Entry window_entry(const Plan& plan, const Tile& tile, const Place& place) {
  Entry entry = {place.at, plan.z.lane, 0, tile.count};
  for (int s = 0; s < plan.spaces; ++s) {
    const Space& space = plan.space[s];
    const int64_t start = tile.window[s] * space.stride - space.padding, x = start + place.along[s];
    entry.at += start * space.step;
    if (space.dim < 0) {
      entry.step = space.stride * space.step;
      const int64_t last = x + (tile.count - 1) * space.stride;
      if (x < 0) entry.begin = (-x + space.stride - 1) / space.stride;
      if (last >= space.size && entry.end)
        entry.end = x >= space.size ? 0 : (space.size - x + space.stride - 1) / space.stride;
    } else if (x < 0 || x >= space.size) {
      entry.end = 0;
    }
  }
  if (entry.begin > entry.end) entry.begin = entry.end;
  return entry;
}

// How many entries of window o count, along one dimension.
inline int64_t entries_that_count(const Space& space, int64_t o, bool include_padding) {
  const int64_t x = o * space.stride - space.padding;
  const int64_t stop = space.size + (include_padding ? space.padding : 0);
  int64_t count = x >= stop ? 0 : (stop - x + space.dilation - 1) / space.dilation;
  if (count > space.kernel) count = space.kernel;
  if (!include_padding && x < 0) count -= (-x + space.dilation - 1) / space.dilation;
  return count;
}

// ---------------------------------------------------------------- chunks of tiles

// T: what is computed in; S: what is stored.
template <class T, class S> class Pool {
  static constexpr int W = LANES<T>;
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
    return (2 * rows(plan, plan.rows) + 11) * tiles * BYTES + places_bytes(plan);
  }

  Pool(const Plan& plan, int64_t tiles, void* scratch, bool backward) : plan(plan), backward(backward) {
    places = static_cast<Place*>(scratch);
    if (plan.spaces) find_places();
    T* at = reinterpret_cast<T*>(static_cast<char*>(scratch) + places_bytes(plan));
    const auto take = [&](int64_t vectors) { return at += vectors * W, at - vectors * W; };
    c.b = take(rows(plan, plan.rows) * tiles), c.log = take(rows(plan, plan.rows) * tiles);
    for (T** numbers : {&c.p, &c.n, &c.grad, &c.u, &c.dp, &c.m, &c.unit, &c.s, &c.moment})
      *numbers = take(tiles);
    c.careful = reinterpret_cast<Ints<T>*>(take(tiles));
    c.first = first, c.last_row = last_row;
    c.has_center = plan.center.data, c.wants_dp = plan.dp_size;
  }

  // Read the tiles; compute; in single precision, do again what needs more.
  void compute(const Tile* tiles, int count, void* scratch) {
    c.tiles = count;
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
      for (int64_t i = 0; i < rows(plan, tile.rows); ++i) {
        const T* row = c.b + (first[t] + i) * W;
        if (plan.spaces) {  // windows overlap; dz is of the type T
          const Entry entry = window_entry(plan, tile, places[i]);
          T* dz = static_cast<T*>(plan.dz.data) + tile.dz + entry.at;
          if (entry.step == 1 && entry.begin == 0 && entry.end == W)
            for (int k = 0; k < W; ++k) dz[k] += row[k];
          else
            for (int64_t k = entry.begin; k < entry.end; ++k) dz[k * entry.step] += row[k];
          continue;
        }
        const int64_t entries = entries_of_row(tile, t, i);
        scatter(row, static_cast<S*>(plan.dz.data) + tile.dz + i * row_step(plan.dz), lane_step(plan.dz), entries);
        if (plan.dcenter_size)
          add(row, dcenter + tile.dcenter + i * row_step(plan.dcenter), lane_step(plan.dcenter), entries, T(-1));
      }
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
  // Numbers per group.
  T* group(T* of, int t) const { return plan.shared ? of + t : of + t * W; }
  int64_t groups(const Tile& tile) const { return plan.shared ? 1 : tile.count; }
  template <class N> void read_groups(const N* from, int64_t step, const Tile& tile, int t, T rest, T* to) const {
    if (plan.shared) to[t] = T(read(*from));
    else gather<T>(from, step, tile.count, rest, to + t * W);
  }

  void read_tile(const Tile& tile, int t) {
    const int64_t entries = tile.rows > 0 ? tile.rows : 1;  // an empty group is that of a zero
    const int64_t count = rows(plan, entries);
    first[t + 1] = first[t] + count;
    last_row[t] = entries - (count - 1) * W;
    using Parameter = std::conditional_t<sizeof(S) == 8, double, float>;
    read_groups(static_cast<const Parameter*>(plan.p.data) + tile.p, plan.p.lane, tile, t, T(1), c.p);
    if (plan.shared) {
      c.p[t] = c.p[t] > T(HUGE_ORDER) ? T(HUGE_ORDER) : c.p[t];
      c.n[t] = T(entries);
    } else {
      const Vec<T> p = load(c.p + t * W), most = all(T(HUGE_ORDER));
      store(c.p + t * W, p > most ? most : p);
      store(c.n + t * W, all(T(entries)));
    }
    if (backward)
      read_groups(static_cast<const S*>(plan.u.data) + tile.u, plan.u.lane, tile, t, T(0), c.grad);
    if (plan.spaces) return read_windows(tile, t);
    if (!tile.rows) return store(c.b + first[t] * W, Vec<T>{});
    const S* z = static_cast<const S*>(plan.z.data) + tile.z;
    const Parameter* center = static_cast<const Parameter*>(plan.center.data);
    if (center) center += tile.center;
    const int64_t z_row = row_step(plan.z), z_lane = lane_step(plan.z);
    const int64_t center_row = row_step(plan.center), center_lane = lane_step(plan.center);
    const bool plain = z_lane == 1 && (!center || center_lane == 1);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t inside = entries_of_row(tile, t, i);
      T* row = c.b + (first[t] + i) * W;
      if (plain && inside == W) {
        const Vec<T> values = load_as<T>(z + i * z_row);
        store(row, center ? values - load_as<T>(center + i * center_row) : values);
        continue;
      }
      gather<T>(z + i * z_row, z_lane, inside, T(0), row);
      if (!center) continue;
      T subtract[W];
      gather<T>(center + i * center_row, center_lane, inside, T(0), subtract);
      store(row, load(row) - load(subtract));
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

  template <bool SHARED, int ROWS> bool run_rows() {
    Math<T, SHARED, ROWS> math(c);
    return backward ? math.backward() : math.forward();
  }
  bool run() {
    if (plan.shared) return run_rows<true, 0>();
    if constexpr (sizeof(T) == 4)
      if (!plan.offsets) switch (plan.rows) {
        case 2: return run_rows<false, 2>();
        case 3: return run_rows<false, 3>();
        case 4: return run_rows<false, 4>();
        case 5: return run_rows<false, 5>();
      }
    return run_rows<false, 0>();
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
    T* b = c.b + first[t] * W;
    if (plan.shared) {
      for (int64_t k = 0; k < tile.rows; ++k) b[k] = T(again.c.b[k]);
      return;
    }
    for (int part = 0; part < count; ++part)
      for (int64_t i = 0; i < tile.rows; ++i)
        for (int k = 0; k < HALF; ++k)
          b[i * W + part * HALF + k] = T(again.c.b[(again.first[part] + i) * HALF + k]);
  }
};

// ---------------------------------------------------------------- the whole call

template <class F> auto with_types(Type type, F f) {
  switch (type) {
    case Type::float64: return f(double{}, double{});
    case Type::float16: return f(float{}, float16{});
    case Type::bfloat16: return f(float{}, bfloat16{});
    default: return f(float{}, float{});
  }
}

template <class T> int tile_width(const Plan& plan) { return plan.shared ? 1 : LANES<T>; }

int64_t tasks(const Plan& plan) {
  return with_types(plan.type, [&](auto t, auto) {
    const int64_t width = tile_width<decltype(t)>(plan);
    int64_t count = (plan.lanes + width - 1) / width;
    for (int d = 0; d < plan.dims; ++d) count *= plan.sizes[d];
    return count;
  });
}

template <class T> int64_t sums_bytes(const Plan& plan) {
  return ((plan.dp_size + plan.dcenter_size) * int64_t(sizeof(T)) + BYTES - 1) / BYTES * BYTES;
}

int64_t scratch_bytes(const Plan& plan) {
  return with_types(plan.type, [&](auto t, auto s) -> int64_t {
    using T = decltype(t);
    using S = decltype(s);
    const int64_t again = sizeof(T) == 4 ? Pool<double, S>::bytes(plan, 2) : 0;
    return Pool<T, S>::bytes(plan, Pool<T, S>::most_tiles(plan)) + again + sums_bytes<T>(plan);
  });
}

// Calls work(pool, tiles, count) for a chunk after the other.
template <class T, class S, class F>
void each_chunk(const Plan& plan, int64_t begin, int64_t end, char* scratch, bool backward, F work) {
  const int64_t most = Pool<T, S>::most_tiles(plan);
  Pool<T, S> pool(plan, most, scratch, backward);
  char* rest = scratch + Pool<T, S>::bytes(plan, most);
  const int width = tile_width<T>(plan);
  Walk walk(plan, begin, width);
  Tile tiles[MOST_TILES];
  while (begin < end) {
    const int64_t left = end - begin;
    const int count = int(left < most ? left : most);
    for (int t = 0; t < count; ++t, walk.next()) tiles[t] = walk.tile;
    pool.compute(tiles, count, rest);
    work(pool, tiles, count);
    begin += count;
  }
}

void forward(const Plan& plan, int64_t begin, int64_t end, void* scratch) {
  with_types(plan.type, [&](auto t, auto s) {
    each_chunk<decltype(t), decltype(s)>(plan, begin, end, static_cast<char*>(scratch), false,
                                         [&](auto& pool, const Tile* tiles, int) { pool.write_values(tiles); });
  });
}

void backward(const Plan& plan, int64_t begin, int64_t end, void* scratch, double* dp, double* dcenter) {
  with_types(plan.type, [&](auto t, auto s) {
    using T = decltype(t);
    T* sums = static_cast<T*>(scratch);
    const int64_t size = plan.dp_size + plan.dcenter_size;
    for (int64_t k = 0; k < size; ++k) sums[k] = 0;
    const auto flush = [&] {
      for (int64_t k = 0; k < size; ++k) {
        (k < plan.dp_size ? dp[k] : dcenter[k - plan.dp_size]) += double(sums[k]);
        sums[k] = 0;
      }
    };
    const int64_t sweep = 1 + (plan.dp_size ? plan.dp_size : plan.dcenter_size / plan.rows) / LANES<T>;
    int64_t additions = 0;
    each_chunk<T, decltype(s)>(plan, begin, end, static_cast<char*>(scratch) + sums_bytes<T>(plan), true,
                               [&](auto& pool, const Tile* tiles, int count) {
                                 pool.write_gradients(tiles, sums, sums + plan.dp_size);
                                 additions += count;
                                 if (additions >= ADDITIONS * sweep) flush(), additions = 0;
                               });
    flush();
  });
}

// ---------------------------------------------------------------- beside the pooling

// Spreads a difference in any bit over all of them (the constants are Chris Wellons').
inline uint32_t hash(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

void dropout(const float* __restrict x, float* __restrict y, int64_t first, int64_t last, float rate, uint64_t seed) {
  const float scale = 1 / (1 - rate);
  const uint32_t threshold = uint32_t(double(rate) * 4294967296.0);
  while (first < last) {  // up to the next multiple of 2^32, as a position is hashed in two halves
    const int64_t next = ((first >> 32) + 1) << 32, stop = next < last ? next : last;
    const uint32_t low = uint32_t(seed) + hash(uint32_t(first >> 32)), high = uint32_t(seed >> 32);
    for (int64_t k = first; k < stop; ++k)
      y[k] = hash(hash(uint32_t(k) * 0x9E3779B1u + low) ^ high) < threshold ? 0 : x[k] * scale;
    first = stop;
  }
}

// v <- momentum v + g + decay w,  w <- w - lr v,  and then the norm of every filter is bounded. A
// filter is still in the nearest cache when it is scaled.
void descend(float* __restrict w, float* __restrict v, const float* __restrict g, int64_t filters, int64_t size,
             float lr, float momentum, float decay, float max_norm) {
  constexpr int W = LANES<float>;
  for (int64_t f = 0; f < filters; ++f, w += size, v += size, g += size) {
    Vec<float> square = {};
    int64_t k = 0;
    for (; k + W <= size; k += W) {
      const Vec<float> velocity = load(v + k) * momentum + (load(g + k) + load(w + k) * decay);
      const Vec<float> weight = load(w + k) - velocity * lr;
      store(v + k, velocity), store(w + k, weight);
      square += weight * weight;
    }
    float total = sum_across<float>(square);
    for (; k < size; ++k) {
      v[k] = v[k] * momentum + (g[k] + w[k] * decay);
      w[k] -= v[k] * lr;
      total += w[k] * w[k];
    }
    if (total <= max_norm * max_norm) continue;
    const float scale = max_norm / __builtin_sqrtf(total);
    for (k = 0; k < size; ++k) w[k] *= scale;
  }
}

}  // namespace

#define JOIN(a, b) a##b
#define KERNELS(name) JOIN(kernels_, name)
#define TEXT(name) #name
#define NAME(name) TEXT(name)

const lpunits::Kernels* lpunits::KERNELS(INSTRUCTIONS)() {
  static const Kernels kernels = {NAME(INSTRUCTIONS), LANES<float>, tasks, scratch_bytes, forward, backward, dropout, descend};
  return &kernels;
}
