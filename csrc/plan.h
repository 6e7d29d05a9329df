// A pooling in plain numbers: library.cpp makes it from tensors, lp_pool.cpp carries it out.
#pragma once
#include <cstdint>

namespace lpunits {

constexpr int MOST_DIMS = 16;   // dimensions of the groups
constexpr int MOST_SPACE = 3;   // dimensions over which windows slide

enum class Type { float32, float64, float16, bfloat16 };

// A tensor as the groups see it: the step along each of their dimensions, 0 where it is broadcast.
struct Operand {
  void* data = nullptr;
  int64_t row = 0;   // to the next entry of a group
  int64_t lane = 0;  // to the next group of a vector
  int64_t outer[MOST_DIMS] = {};
};

// A dimension of space. Window o starts at o * stride - padding.
struct Space {
  int64_t size, kernel, stride, padding, dilation;
  int64_t step;  // from one position to the next, in z
  int dim;       // which of the groups' dimensions runs over the windows; -1: that of the lanes
};

struct Plan {
  Type type;            // of z, u, dz; the others are float64 beside float64, else float32
  bool shared = false;  // the lanes of a vector share one group, whose entries are contiguous
  int64_t rows = 1;     // entries of a group; of the largest, if there are offsets
  int64_t lanes = 1;    // groups along the dimension that is spread over the lanes
  int dims = 0;         // the other dimensions of the groups
  int64_t sizes[MOST_DIMS] = {};
  Operand z, p, center, weight, u, dz, dp, dcenter;  // a backward reads in u the gradient that arrives
  Operand dweight;                        // one for each entry of z
  bool mask = false;                      // weights are booleans
  int64_t dp_size = 0, dcenter_size = 0;  // 0: not wanted
  const int64_t* offsets = nullptr;  // group g of the first dimension has the rows from offsets[g] on
  const int64_t* rows_at = nullptr;  // which rows of z these are, if not the rows themselves
  int spaces = 0;                    // windows
  Space space[MOST_SPACE] = {};
  bool count_include_pad = true;
};

// What lp_pool.cpp offers, compiled for one instruction set. A task is a vector of groups.
struct Kernels {
  const char* name;
  int lanes;  // float32 values of a vector
  int64_t (*tasks)(const Plan&);
  int64_t (*scratch_bytes)(const Plan&);
  void (*forward)(const Plan&, int64_t first, int64_t last, void* scratch);
  void (*backward)(const Plan&, int64_t first, int64_t last, void* scratch, double* dp, double* dcenter);
  void (*dropout)(const float* x, float* y, int64_t first, int64_t last, float rate, uint64_t seed);
  void (*descend)(float* w, float* v, const float* g, int64_t filters, int64_t size, float lr,
                  float momentum, float decay, float max_norm);
};

const Kernels* kernels_baseline();
const Kernels* kernels_avx2();
const Kernels* kernels_avx512();

}  // namespace lpunits
