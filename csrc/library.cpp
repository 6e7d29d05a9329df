// The operators of torch: checks tensors, makes plans of them, and shares the work among threads.
//
// The schemas are in ops/__init__.py, so that plain torch can serve them where this file is not.
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
  plan.shared = z_steps[rows] == 1 && sizes[rows] > 1 && usefulness(sizes[rows], width, 0.95 * joins) > most;
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

// ---------------------------------------------------------------- pooling one dimension

// z, p and center by their steps along the dimensions of z; p has size 1 along dim.
void plan_pool(Plan& plan, std::vector<Part>& parts, const Tensor& z, const Tensor& p, const OptionalTensor& center,
               int64_t dim) {
  check_cpu("z", z);
  STD_TORCH_CHECK(dim >= 0 && dim < z.dim() && z.size(dim) > 0, "dim must be a dimension of z that is not empty");
  const Sizes sizes = sizes_of(z);
  plan.type = type_of(z);
  plan.rows = sizes[dim];
  plan.z.data = data_of(z), plan.p.data = data_of(p);
  Sizes z_steps(z.strides().begin(), z.strides().end());
  parts.push_back({&plan.z, z_steps});
  Sizes groups = sizes;
  groups[dim] = 1;
  parts.push_back({&plan.p, steps("p", p, groups)});
  if (center) {
    plan.center.data = data_of(*center);
    parts.push_back({&plan.center, steps("center", *center, sizes)});
  }
  const int64_t lanes = choose_lanes(plan, sizes, z_steps, dim);
  lay_out(plan, parts, sizes, dim, lanes, by_step(z_steps), true);
}

Sizes with_dim(const Tensor& u, int64_t dim) {  // the steps of a result, which lacks dim
  Sizes found(u.strides().begin(), u.strides().end());
  found.insert(found.begin() + dim, 0);
  return found;
}
Sizes without_dim(const Tensor& z, int64_t dim) {
  Sizes sizes = sizes_of(z);
  sizes.erase(sizes.begin() + dim);
  return sizes;
}

void pool_into(const Tensor& z, const Tensor& p_given, const OptionalTensor& center_given, int64_t dim, const Tensor& u) {
  const Tensor p = parameter("p", p_given, z);
  const OptionalTensor center = center_given ? OptionalTensor(parameter("center", *center_given, z)) : std::nullopt;
  Plan plan;
  plan.u.data = data_of(u);
  std::vector<Part> parts = {{&plan.u, with_dim(u, dim)}};
  plan_pool(plan, parts, z, p, center, dim);
  run_forward(plan, z.numel());
}

Tensor lp_pool(const Tensor& z, const Tensor& p, const OptionalTensor& center, int64_t dim) {
  STD_TORCH_CHECK(dim >= 0 && dim < z.dim(), "dim must be a dimension of z");
  const Tensor u = new_empty(z, without_dim(z, dim));
  pool_into(z, p, center, dim, u);
  return u;
}

Tensor lp_pool_out(const Tensor& z, const Tensor& p, const OptionalTensor& center, int64_t dim, Tensor out) {
  STD_TORCH_CHECK(out.scalar_type() == z.scalar_type() && sizes_of(out) == without_dim(z, dim), "out must be like u");
  check_cpu("out", out);
  pool_into(z, p, center, dim, out);
  return out;
}

Tensor backward_into(const Tensor& grad, const Tensor& z, const Tensor& p_given, const OptionalTensor& center_given,
                     int64_t dim, bool need_p, bool need_center, const Tensor& dz, Tensor& dcenter) {
  check_cpu("grad", grad);
  STD_TORCH_CHECK(grad.scalar_type() == z.scalar_type() && sizes_of(grad) == without_dim(z, dim), "grad must be like u");
  const Tensor p = parameter("p", p_given, z);
  const OptionalTensor center = center_given ? OptionalTensor(parameter("center", *center_given, z)) : std::nullopt;
  Tensor dp = new_gradient(p, need_p);
  dcenter = new_gradient(center ? *center : p, need_center && center);
  Plan plan;
  plan.dp_size = dp.numel(), plan.dcenter_size = dcenter.numel();
  plan.u.data = data_of(grad), plan.dz.data = data_of(dz);
  std::vector<Part> parts = {{&plan.u, with_dim(grad, dim)}, {&plan.dz, Sizes(dz.strides().begin(), dz.strides().end())}};
  parts.push_back({&plan.dp, contiguous_steps(p, size_t(z.dim()))});
  if (center) parts.push_back({&plan.dcenter, contiguous_steps(*center, size_t(z.dim()))});
  plan_pool(plan, parts, z, p, center, dim);
  run_backward(plan, z.numel(), 1, dp, dcenter);
  if (center_given) dcenter = in_type_of(dcenter, *center_given);
  return in_type_of(dp, p_given);
}

std::tuple<Tensor, Tensor, Tensor> lp_pool_backward(const Tensor& grad, const Tensor& z, const Tensor& p,
                                                    const OptionalTensor& center, int64_t dim, bool need_p, bool need_center) {
  const Tensor dz = new_like(z);
  Tensor dcenter;
  const Tensor dp = backward_into(grad, z, p, center, dim, need_p, need_center, dz, dcenter);
  return {dz, dp, dcenter};
}

// Writes the gradient in z into dz, and returns that in p: for loops that keep their memory.
Tensor lp_pool_backward_into_(const Tensor& grad, const Tensor& z, const Tensor& p, int64_t dim, bool need_p, Tensor dz) {
  check_cpu("dz", dz);
  STD_TORCH_CHECK(dz.scalar_type() == z.scalar_type() && sizes_of(dz) == sizes_of(z), "dz must be like z");
  Tensor none;
  return backward_into(grad, z, p, std::nullopt, dim, need_p, false, dz, none);
}

// ---------------------------------------------------------------- windows

// z is (batch, channels, ...), p (channels,). In half precision windows are computed on a float32
// copy, because overlapping gradients are added up in place.
Tensor at_least_float(const Tensor& z) {
  const bool half = z.scalar_type() == ScalarType::Half || z.scalar_type() == ScalarType::BFloat16;
  return half ? torch::stable::to(z, ScalarType::Float) : z;
}

struct Windows {
  Sizes kernel, stride, padding, dilation;  // a number for each dimension of space
  bool ceil_mode, count_include_pad;

  // As many windows as torch's own pooling has.
  Sizes result(const Tensor& z) const {
    const size_t spaces = size_t(z.dim()) - 2;
    STD_TORCH_CHECK(z.dim() > 2 && spaces <= MOST_SPACE, "z must have a batch, channels and 1 to 3 dimensions of space");
    Sizes sizes = {z.size(0), z.size(1)};
    for (const Sizes* numbers : {&kernel, &stride, &padding, &dilation})
      STD_TORCH_CHECK(numbers->size() == spaces, "windows need a number for each dimension of space");
    for (size_t s = 0; s < spaces; ++s) {
      STD_TORCH_CHECK(kernel[s] > 0 && stride[s] > 0 && dilation[s] > 0 && padding[s] >= 0, "windows need a size");
      const int64_t size = z.size(int64_t(s) + 2), room = size + 2 * padding[s] - dilation[s] * (kernel[s] - 1) - 1;
      STD_TORCH_CHECK(room >= 0, "z must be at least as large as a window");
      int64_t count = (room + (ceil_mode ? stride[s] - 1 : 0)) / stride[s] + 1;
      if (ceil_mode && (count - 1) * stride[s] >= size + padding[s]) --count;  // it would start beyond
      sizes.push_back(count);
    }
    return sizes;
  }
};

// Returns how many tasks belong to one image: its windows overlap, so that one thread has them all.
int64_t plan_windows(Plan& plan, const Tensor& z, const Tensor& p, const Windows& windows, const Tensor& u, const Tensor* dz) {
  check_cpu("z", z);
  STD_TORCH_CHECK(p.dim() == 1 && p.size(0) == z.size(1), "p must have one order per channel");
  const Sizes sizes = windows.result(z);
  STD_TORCH_CHECK(sizes_of(u) == sizes && u.scalar_type() == z.scalar_type(), "grad must be like u");
  const size_t rank = size_t(z.dim());
  plan.type = type_of(z);
  plan.count_include_pad = windows.count_include_pad;
  plan.spaces = int(rank) - 2;
  // Either channels lie side by side, or positions along the last dimension do.
  const int64_t lanes = z.stride(1) == 1 && z.size(1) > 1 ? 1 : int64_t(rank) - 1;
  Sizes z_steps(rank, 0), dz_steps(rank, 0), p_steps(rank, 0), dp_steps(rank, 0), order(rank);
  z_steps[0] = z.stride(0), z_steps[1] = z.stride(1), p_steps[1] = p.stride(0), dp_steps[1] = 1;
  if (dz) dz_steps = z_steps, plan.dz.data = data_of(*dz);
  for (size_t d = 0; d < rank; ++d) order[d] = int64_t(d);
  std::vector<Part> parts = {{&plan.z, z_steps}, {&plan.p, p_steps}, {&plan.dp, dp_steps}, {&plan.dz, dz_steps},
                             {&plan.u, Sizes(u.strides().begin(), u.strides().end())}};
  lay_out(plan, parts, sizes, -1, lanes, order, false);
  plan.z.data = data_of(z), plan.p.data = data_of(p), plan.u.data = data_of(u);
  int64_t images = 1;
  for (int d = 0; d < (lanes == 1 ? 1 : 2); ++d) images *= sizes[d];
  for (int s = 0; s < plan.spaces; ++s) {
    const int64_t d = s + 2;
    const int dim = d == lanes ? -1 : int(d) - (d > lanes ? 1 : 0);
    plan.space[s] = {z.size(d), windows.kernel[s], windows.stride[s], windows.padding[s], windows.dilation[s], z.stride(d), dim};
    plan.rows *= windows.kernel[s];
  }
  return images ? kernels().tasks(plan) / images : 1;
}

// Whether the channels of an image, or of a volume, lie side by side.
bool channels_last(const Tensor& z) {
  int64_t step = z.size(1);
  bool dense = z.dim() > 3 && z.stride(1) == 1 && !z.is_contiguous();
  for (int64_t d = z.dim() - 1; d != 1; d = d == 2 ? 0 : d - 1) {
    dense = dense && (z.stride(d) == step || z.size(d) == 1);
    if (d == 0) break;
    step *= z.size(d);
  }
  return dense;
}

Tensor lp_pool_nd(const Tensor& z_given, const Tensor& p_given, Sizes kernel, Sizes stride, Sizes padding, Sizes dilation,
                  bool ceil_mode, bool count_include_pad) {
  const Tensor z = at_least_float(z_given), p = parameter("p", p_given, z);
  const Windows windows = {kernel, stride, padding, dilation, ceil_mode, count_include_pad};
  using torch::headeronly::MemoryFormat;
  const MemoryFormat format = !channels_last(z) ? MemoryFormat::Contiguous
                              : z.dim() == 4    ? MemoryFormat::ChannelsLast
                                                : MemoryFormat::ChannelsLast3d;
  const Tensor u = torch::stable::empty(windows.result(z), z.scalar_type(), std::nullopt, z.device(), std::nullopt, format);
  Plan plan;
  plan_windows(plan, z, p, windows, u, nullptr);
  run_forward(plan, u.numel() * plan.rows);
  return in_type_of(u, z_given);
}

std::tuple<Tensor, Tensor> lp_pool_nd_backward(const Tensor& grad_given, const Tensor& z_given, const Tensor& p_given, Sizes kernel,
                                               Sizes stride, Sizes padding, Sizes dilation, bool ceil_mode,
                                               bool count_include_pad, bool need_p) {
  Tensor z = at_least_float(z_given), dz = new_like(z);
  const Tensor grad = at_least_float(grad_given), p = parameter("p", p_given, z);
  check_cpu("grad", grad);
  const auto alike = [](const Tensor& a, const Tensor& b) {
    return std::equal(a.strides().begin(), a.strides().end(), b.strides().begin());
  };
  Tensor sums = dz;
  if (!alike(z, dz)) z = torch::stable::contiguous(z), sums = new_like(z);
  torch::stable::zero_(sums);
  Tensor dp = new_gradient(p, need_p), none;
  Plan plan;
  plan.dp_size = dp.numel();
  const int64_t unit = plan_windows(plan, z, p, {kernel, stride, padding, dilation, ceil_mode, count_include_pad}, grad, &sums);
  run_backward(plan, grad.numel() * plan.rows, unit, dp, none);
  if (sums.data_ptr() != dz.data_ptr()) torch::stable::copy_(dz, sums);
  return {in_type_of(dz, z_given), in_type_of(dp, p_given)};
}

// ---------------------------------------------------------------- segments

// Group g of z, (rows, ...), has the rows from offsets[g] to offsets[g+1]; p broadcasts to the result.
void plan_segments(Plan& plan, std::vector<Part>& parts, const Tensor& z, const Tensor& p, const Tensor& offsets) {
  check_cpu("z", z), check_cpu("offsets", offsets);
  STD_TORCH_CHECK(offsets.scalar_type() == ScalarType::Long && offsets.dim() == 1 && offsets.is_contiguous() && offsets.numel() > 0,
                  "offsets must be a vector of int64, one more than there are groups");
  const int64_t groups = offsets.numel() - 1;
  plan.offsets = offsets.const_data_ptr<int64_t>();
  STD_TORCH_CHECK(plan.offsets[0] == 0 && plan.offsets[groups] == z.size(0), "offsets must go from 0 to the rows of z, ", z.size(0));
  plan.type = type_of(z);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t rows = plan.offsets[g + 1] - plan.offsets[g];
    STD_TORCH_CHECK(rows >= 0, "offsets must not fall");
    plan.rows = std::max(plan.rows, rows);
  }
  // The dimensions of the groups: which segment, then those of z behind the first. The entries of a
  // group are one more, in front, which only z has.
  Sizes sizes = sizes_of(z), z_steps(z.strides().begin(), z.strides().end()), groups_sizes = sizes;
  groups_sizes[0] = groups;
  sizes.insert(sizes.begin() + 1, groups);
  sizes[0] = plan.rows;
  z_steps.insert(z_steps.begin() + 1, 0);
  Sizes p_steps = steps("p", p, groups_sizes);
  p_steps.insert(p_steps.begin(), 0);
  plan.z.data = data_of(z), plan.p.data = data_of(p);
  parts.push_back({&plan.z, z_steps}), parts.push_back({&plan.p, p_steps});
  const int64_t lanes = choose_lanes(plan, sizes, z_steps, 0, 2);
  Sizes order = by_step(z_steps, 2);
  lay_out(plan, parts, sizes, 0, lanes, order, false);
}

Sizes with_front(Sizes steps) {
  steps.insert(steps.begin(), 0);
  return steps;
}

Tensor lp_pool_segments(const Tensor& z, const Tensor& p_given, const Tensor& offsets) {
  const Tensor p = parameter("p", p_given, z);
  Sizes sizes = sizes_of(z);
  sizes[0] = offsets.numel() - 1;
  const Tensor u = new_empty(z, sizes);
  Plan plan;
  plan.u.data = data_of(u);
  std::vector<Part> parts = {{&plan.u, with_front(Sizes(u.strides().begin(), u.strides().end()))}};
  plan_segments(plan, parts, z, p, offsets);
  run_forward(plan, z.numel());
  return u;
}

std::tuple<Tensor, Tensor> lp_pool_segments_backward(const Tensor& grad, const Tensor& z, const Tensor& p_given,
                                                     const Tensor& offsets, bool need_p) {
  check_cpu("grad", grad);
  const Tensor p = parameter("p", p_given, z);
  Sizes sizes = sizes_of(z);
  sizes[0] = offsets.numel() - 1;
  STD_TORCH_CHECK(grad.scalar_type() == z.scalar_type() && sizes_of(grad) == sizes, "grad must be like u");
  const Tensor dz = new_like(z);
  Tensor dp = new_gradient(p, need_p), none;
  Plan plan;
  plan.dp_size = dp.numel();
  plan.u.data = data_of(grad), plan.dz.data = data_of(dz);
  Sizes dz_steps(dz.strides().begin(), dz.strides().end());
  dz_steps.insert(dz_steps.begin() + 1, 0);
  std::vector<Part> parts = {{&plan.u, with_front(Sizes(grad.strides().begin(), grad.strides().end()))},
                             {&plan.dz, dz_steps},
                             {&plan.dp, with_front(contiguous_steps(p, size_t(z.dim())))}};
  plan_segments(plan, parts, z, p, offsets);
  run_backward(plan, z.numel(), 1, dp, none);
  return {dz, in_type_of(dp, p_given)};
}

// ---------------------------------------------------------------- dropout and descent

Tensor dropout(const Tensor& x_given, double rate, int64_t seed) {
  check_cpu("x", x_given);
  STD_TORCH_CHECK(x_given.scalar_type() == ScalarType::Float, "x must be float32");
  const Tensor x = torch::stable::contiguous(x_given), y = new_like(x);
  share(x.numel(), x.numel(), 1, [&](int64_t, int64_t first, int64_t last) {
    kernels().dropout(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), first, last, float(rate), uint64_t(seed));
  });
  return y;
}

void descend_(std::vector<Tensor> weights, std::vector<Tensor> velocities, std::vector<Tensor> grads, Sizes filter_sizes,
              double lr, double momentum, double weight_decay, std::vector<double> max_norms) {
  STD_TORCH_CHECK(velocities.size() == weights.size() && grads.size() == weights.size() &&
                      filter_sizes.size() == weights.size() && max_norms.size() == weights.size(),
                  "there must be a velocity, a gradient, a filter size and a norm for each weight");
  for (size_t k = 0; k < weights.size(); ++k) {
    const Sizes sizes = sizes_of(weights[k]);
    for (const Tensor* t : {&weights[k], &velocities[k], &grads[k]}) {
      check_cpu("every tensor", *t);
      STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float && t->is_contiguous() && sizes_of(*t) == sizes,
                      "weight, velocity and gradient must be contiguous float32 tensors of one shape");
    }
    const int64_t size = filter_sizes[k], values = weights[k].numel();
    STD_TORCH_CHECK(size > 0 && values % size == 0, "a weight must consist of whole filters");
    float *w = weights[k].mutable_data_ptr<float>(), *v = velocities[k].mutable_data_ptr<float>();
    const float* g = grads[k].const_data_ptr<float>();
    share(values / size, values, 1, [&](int64_t, int64_t first, int64_t last) {
      kernels().descend(w + first * size, v + first * size, g + first * size, last - first, size, float(lr), float(momentum),
                        float(weight_decay), float(max_norms[k]));
    });
  }
}

std::string instruction_set() { return kernels().name; }

}  // namespace
}  // namespace lpunits

STABLE_TORCH_LIBRARY_IMPL(lpunits, CPU, m) {
  m.impl("lp_pool", TORCH_BOX(&lpunits::lp_pool));
  m.impl("lp_pool.out", TORCH_BOX(&lpunits::lp_pool_out));
  m.impl("lp_pool_backward", TORCH_BOX(&lpunits::lp_pool_backward));
  m.impl("lp_pool_backward_into_", TORCH_BOX(&lpunits::lp_pool_backward_into_));
  m.impl("lp_pool_nd", TORCH_BOX(&lpunits::lp_pool_nd));
  m.impl("lp_pool_nd_backward", TORCH_BOX(&lpunits::lp_pool_nd_backward));
  m.impl("lp_pool_segments", TORCH_BOX(&lpunits::lp_pool_segments));
  m.impl("lp_pool_segments_backward", TORCH_BOX(&lpunits::lp_pool_segments_backward));
  m.impl("dropout", TORCH_BOX(&lpunits::dropout));
  m.impl("descend_", TORCH_BOX(&lpunits::descend_));
}

STABLE_TORCH_LIBRARY_IMPL(lpunits, CompositeExplicitAutograd, m) {
  m.impl("instruction_set", TORCH_BOX(&lpunits::instruction_set));
}
