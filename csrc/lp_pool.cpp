// The kernels: values and gradients of a share of all groups, chunk by chunk.
//
// Compiled once for each instruction set. It includes nothing with inline functions of others, which
// the linker could take from here into code that must run on every processor.
#include "beside.h"
#include "pool.h"

namespace {

constexpr int64_t ADDITIONS = 64;  // in single precision, before a sum is added to a double

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

}  // namespace

#define JOIN(a, b) a##b
#define KERNELS(name) JOIN(kernels_, name)
#define TEXT(name) #name
#define NAME(name) TEXT(name)

const lpunits::Kernels* lpunits::KERNELS(INSTRUCTIONS)() {
  static const Kernels kernels = {NAME(INSTRUCTIONS), LANES<float>, tasks, scratch_bytes, forward, backward, dropout, descend};
  return &kernels;
}
