// Dropout and a step of descent: one pass each.
#pragma once
#include "vectors.h"

namespace {

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
