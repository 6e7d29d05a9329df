// Tensors of torch as operands of a plan, and a plan's work shared among threads.
#pragma once
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <dirent.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "plan.h"

namespace lpunits {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Sizes = std::vector<int64_t>;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t VALUES_PER_THREAD = 1 << 12;  // waking a thread costs more than fewer take

// ---------------------------------------------------------------- instruction sets

// The best that the processor has; ATEN_CPU_CAPABILITY, which limits torch, limits this too.
const Kernels& kernels() {
  static const Kernels* chosen = [] {
#if defined(__x86_64__)
    const char* limit = std::getenv("ATEN_CPU_CAPABILITY");
    const std::string most = limit ? limit : "avx512";
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512 && most == "avx512") return kernels_avx512();
    if (avx2 && most != "default") return kernels_avx2();
#endif
    return kernels_baseline();
  }();
  return *chosen;
}

// ---------------------------------------------------------------- checks

void check_cpu(const char* name, const Tensor& t) {
  STD_TORCH_CHECK(t.device().type() == torch::headeronly::DeviceType::CPU, name, " must be on the cpu, like z");
}

Type type_of(const Tensor& z) {
  switch (z.scalar_type()) {
    case ScalarType::Float: return Type::float32;
    case ScalarType::Double: return Type::float64;
    case ScalarType::Half: return Type::float16;
    case ScalarType::BFloat16: return Type::bfloat16;
    default: STD_TORCH_CHECK(false, "z must be a floating-point tensor");
  }
}

// Orders and centres in the type that the kernels read.
Tensor parameter(const char* name, const Tensor& t, const Tensor& z) {
  check_cpu(name, t);
  const ScalarType type = z.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
  return t.scalar_type() == type ? t : torch::stable::to(t, type);
}

// ---------------------------------------------------------------- tensors as operands

// A tensor's steps along dimensions of the given sizes, 0 where it is broadcast.
Sizes steps(const char* name, const Tensor& t, const Sizes& sizes) {
  const int64_t missing = int64_t(sizes.size()) - t.dim();
  STD_TORCH_CHECK(missing >= 0, name, " has more dimensions than what it is broadcast to");
  Sizes found(sizes.size(), 0);
  for (int64_t d = 0; d < t.dim(); ++d) {
    STD_TORCH_CHECK(t.size(d) == 1 || t.size(d) == sizes[missing + d], name, " does not broadcast");
    if (t.size(d) != 1) found[missing + d] = t.stride(d);
  }
  return found;
}

// The same for a contiguous tensor of that shape: where its gradient is added up.
Sizes contiguous_steps(const Tensor& t, size_t rank) {
  Sizes found(rank, 0);
  int64_t step = 1;
  for (int64_t d = t.dim() - 1; d >= 0; --d) {
    if (t.size(d) != 1) found[rank - t.dim() + d] = step;
    step *= t.size(d);
  }
  return found;
}

struct Part {  // an operand, and the steps that it is made from
  Operand* operand;
  Sizes steps;
};

// Fills the operands: `rows` is the dimension of the entries, `lanes` that of the lanes, or -1; the
// others are walked through in order, neighbours as one where every tensor allows it.
void lay_out(Plan& plan, std::vector<Part>& parts, const Sizes& sizes, int64_t rows, int64_t lanes, const Sizes& order,
             bool merge) {
  for (auto& [operand, steps] : parts) operand->row = rows < 0 ? 0 : steps[rows];
  for (auto& [operand, steps] : parts) operand->lane = lanes < 0 ? 0 : steps[lanes];
  plan.lanes = lanes < 0 ? 1 : sizes[lanes];
  plan.dims = 0;
  for (int64_t d : order) {
    if (d == rows || d == lanes || (merge && sizes[d] == 1)) continue;
    const int last = plan.dims - 1;
    const bool continues = merge && last >= 0 && std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
      return part.operand->outer[last] == part.steps[d] * sizes[d];
    });
    STD_TORCH_CHECK(continues || plan.dims < MOST_DIMS, "z has too many dimensions");
    const int at = continues ? last : plan.dims++;
    plan.sizes[at] = continues ? plan.sizes[at] * sizes[d] : sizes[d];
    for (auto& [operand, steps] : parts) operand->outer[at] = steps[d];
  }
}

// How much of a vector is used by n values, less what it costs to reach them.
double usefulness(int64_t n, int64_t lanes, double cost) {
  return double(n) / double((n + lanes - 1) / lanes * lanes) * cost;
}
double cost_of_step(int64_t step) { return step == 1 ? 1.0 : step <= 16 ? 0.9 : 0.6; }

// Which dimension is spread over the lanes; -1: none, or the entries themselves (plan.shared).
int64_t choose_lanes(Plan& plan, const Sizes& sizes, const Sizes& z_steps, int64_t rows, int64_t first = 0) {
  const int64_t width = plan.type == Type::float64 ? kernels().lanes / 2 : kernels().lanes;
  int64_t best = -1;
  double most = 0;
  for (int64_t d = first; d < int64_t(sizes.size()); ++d) {
    if (d == rows || sizes[d] == 1) continue;
    const double use = usefulness(sizes[d], width, cost_of_step(z_steps[d]));
    if (use >= most) most = use, best = d;
  }
  // A group across the lanes costs some joins of lanes, as much as two rows.
  const double joins = double(sizes[rows]) / double(sizes[rows] + 2 * width);
  plan.shared = z_steps[rows] == 1 && sizes[rows] > 1 && !plan.rows_at && usefulness(sizes[rows], width, 0.95 * joins) > most;
  return plan.shared ? -1 : best;
}

// The dimensions from the largest step in z to the smallest.
Sizes by_step(const Sizes& z_steps, size_t first = 0) {
  Sizes order(z_steps.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = int64_t(d);
  std::stable_sort(order.begin() + first, order.end(), [&](int64_t a, int64_t b) { return z_steps[a] > z_steps[b]; });
  return order;
}

// ---------------------------------------------------------------- threads

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
std::unique_ptr<void, Free> allocate(int64_t bytes) {
  void* memory = std::aligned_alloc(64, size_t((bytes + 63) / 64 * 64));
  STD_TORCH_CHECK(memory, "out of memory");
  return std::unique_ptr<void, Free>(memory);
}

// GNU OpenMP waits for ever, in a forked child, for the threads that its parent had. Where the
// parent had none, a fork server that has only imported, nothing is lost.
bool threads_lost_in_fork = false;

bool has_threads() {
  int64_t tasks = 0;
  if (DIR* folder = opendir("/proc/self/task")) {
    while (const dirent* entry = readdir(folder)) tasks += entry->d_name[0] != '.';
    closedir(folder);
    return tasks > 1;
  }
  return true;
}
const int watch_forks = pthread_atfork([] { threads_lost_in_fork |= has_threads(); }, [] { threads_lost_in_fork = false; }, nullptr);

// work(slot, first, last) for as many slots as there are threads: the same shares every time.
template <class F> void share(int64_t tasks, int64_t values, int64_t unit, const F& work) {
  const int64_t threads = std::min<int64_t>(torch::stable::get_num_threads(), values / VALUES_PER_THREAD);
  const int64_t slots = threads_lost_in_fork ? 1 : std::max<int64_t>(1, std::min(threads, tasks / unit));
  const auto start = [&](int64_t slot) { return tasks / unit * slot / slots * unit; };
  if (slots == 1) return work(0, int64_t(0), tasks);
  torch::stable::parallel_for(0, slots, 1, [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) work(slot, start(slot), start(slot + 1));
  });
}

void run_forward(const Plan& plan, int64_t values) {
  const int64_t tasks = kernels().tasks(plan), bytes = kernels().scratch_bytes(plan);
  if (!tasks) return;
  share(tasks, values, 1, [&](int64_t, int64_t first, int64_t last) {
    kernels().forward(plan, first, last, allocate(bytes).get());
  });
}

template <class T> void round_to(const double* sums, int64_t size, Tensor& to) {
  if (!size) return;
  T* at = static_cast<T*>(to.mutable_data_ptr());
  for (int64_t k = 0; k < size; ++k) at[k] = T(sums[k]);
}

// Adds up the gradients of p and center; every slot has sums of its own, which are joined in order.
void run_backward(const Plan& plan, int64_t values, int64_t unit, Tensor& dp, Tensor& dcenter) {
  const int64_t tasks = kernels().tasks(plan), bytes = kernels().scratch_bytes(plan);
  const int64_t size = plan.dp_size + plan.dcenter_size;
  const int64_t most = std::max<int64_t>(1, torch::stable::get_num_threads());
  std::vector<double> sums(size_t(most * size), 0.0);
  if (tasks)
    share(tasks, values, unit, [&](int64_t slot, int64_t first, int64_t last) {
      double* mine = sums.data() + slot * size;
      kernels().backward(plan, first, last, allocate(bytes).get(), mine, mine + plan.dp_size);
    });
  for (int64_t slot = 1; slot < most; ++slot)
    for (int64_t k = 0; k < size; ++k) sums[size_t(k)] += sums[size_t(slot * size + k)];
  const auto write = plan.type == Type::float64 ? round_to<double> : round_to<float>;
  write(sums.data(), plan.dp_size, dp);
  write(sums.data() + plan.dp_size, plan.dcenter_size, dcenter);
}

// A contiguous tensor with the type of another. (torch::stable::new_empty looks its operator up by
// name, which takes 6 us.)
Tensor new_empty(const Tensor& like, const Sizes& sizes) {
  Sizes steps(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0; step *= std::max<int64_t>(sizes[d], 1)) steps[d] = step;
  int32_t type;
  AtenTensorHandle made;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(int64_t(sizes.size()), sizes.data(), steps.data(), type,
                                                  aoti_torch_device_type_cpu(), 0, &made));
  return Tensor(made);
}
Sizes sizes_of(const Tensor& t) { return Sizes(t.sizes().begin(), t.sizes().end()); }
void* data_of(const Tensor& t) { return t.data_ptr(); }

// A gradient to add up, of the size of t, in the type that kernels compute in; empty if not wanted.
Tensor new_gradient(const Tensor& t, bool wanted) { return new_empty(t, wanted ? sizes_of(t) : Sizes{0}); }
Tensor new_like(const Tensor& t) {  // in the order of memory that t has
  return t.is_contiguous() ? new_empty(t, sizes_of(t)) : torch::stable::empty_like(t);
}
Tensor in_type_of(const Tensor& gradient, const Tensor& like) {
  return gradient.scalar_type() == like.scalar_type() ? gradient : torch::stable::to(gradient, like.scalar_type());
}

}  // namespace
}  // namespace lpunits
