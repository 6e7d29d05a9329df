// Where the groups are in memory: numbers of every type, tiles of groups, windows.
#pragma once
#include <type_traits>
#include <utility>

#include "plan.h"
#include "vectors.h"

namespace {

using lpunits::Operand;
using lpunits::Plan;
using lpunits::Space;
using lpunits::Type;

// ---------------------------------------------------------------- numbers in memory

struct bfloat16 { uint16_t bits; };
#ifdef __FLT16_MAX__
using float16 = _Float16;
#else
using float16 = __fp16;
#endif

INLINE float read(bool x) { return x; }
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

// Booleans side by side as 0 and 1: each byte as often as a number has bytes. No byte has to leave
// the 16 bytes in which processors can move them: all of these hold every boolean.
template <class T, size_t... K> INLINE Vec<T> load_booleans(const bool* from, std::index_sequence<K...>) {
  typedef uint8_t Bytes __attribute__((vector_size(BYTES)));
  typedef uint8_t Given __attribute__((vector_size(LANES<T>)));
  Given given;
  std::memcpy(&given, from, LANES<T>);
  const Bytes everywhere = __builtin_shufflevector(given, given, (K % LANES<T>)...);
  const Bytes spread = __builtin_shufflevector(everywhere, everywhere, (K / 16 * 16 + K / sizeof(T) % 16)...);
  return as<Ints<T>>(spread) != 0 ? all(T(1)) : Vec<T>{};
}

// A vector of numbers side by side.
template <class T, class S> INLINE Vec<T> load_as(const S* from) {
  if constexpr (std::is_same_v<T, S>) return load(from);
  if constexpr (std::is_same_v<S, bool>) return load_booleans<T>(from, std::make_index_sequence<BYTES>());
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
  int64_t z, p, center, weight, u, dz, dp, dcenter, dweight;
  int64_t lane;                        // the first group along the lanes
  int64_t count;                       // of groups
  int64_t rows;                        // entries of a group
  const int64_t* rows_at;              // where they are along z; null: one after the other
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
    if (plan.weight.data) weight += by * plan.weight.lane, dweight += by * plan.dweight.lane;
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
    if (plan.weight.data) tile.weight = offset(plan.weight), tile.dweight = offset(plan.dweight);
    tile.rows = plan.rows, tile.rows_at = nullptr;
    for (int s = 0; s < plan.spaces; ++s) tile.window[s] = plan.space[s].dim < 0 ? 0 : index[plan.space[s].dim];
    if (plan.offsets) {
      const int64_t first = plan.offsets[index[0]];
      tile.rows = plan.offsets[index[0] + 1] - first;
      if (plan.rows_at) {
        tile.rows_at = plan.rows_at + first;
      } else {
        tile.z += first * plan.z.row, tile.dz += first * plan.dz.row;
        if (plan.weight.data) tile.weight += first * plan.weight.row, tile.dweight += first * plan.dweight.row;
      }
    }
  }
};

// An entry of a window: how far it is from the window's start, along each dimension and in memory.
struct Place { int64_t along[lpunits::MOST_SPACE], at; };

// One entry of all windows of a tile: where it is, and the lanes in which it is inside of the image,
// or of the image with its padding.
struct Entry { int64_t at, step, begin, end; };

INLINE Entry window_entry(const Plan& plan, const Tile& tile, const Place& place, bool padded = false) {
  Entry entry = {place.at, plan.z.lane, 0, tile.count};
  for (int s = 0; s < plan.spaces; ++s) {
    const Space& space = plan.space[s];
    const int64_t start = tile.window[s] * space.stride - space.padding, margin = padded ? space.padding : 0;
    const int64_t x = start + place.along[s] + margin, size = space.size + 2 * margin;
    entry.at += start * space.step;
    if (space.dim < 0) {
      entry.step = space.stride * space.step;
      const int64_t last = x + (tile.count - 1) * space.stride;
      if (x < 0) entry.begin = (-x + space.stride - 1) / space.stride;
      if (last >= size && entry.end) entry.end = x >= size ? 0 : (size - x + space.stride - 1) / space.stride;
    } else if (x < 0 || x >= size) {
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

}  // namespace
