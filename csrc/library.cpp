// The operators of torch: checks tensors, makes plans of them. The schemas are in ops/schemas.py, so that plain torch
// can serve them where this file is not.
#include "tensors.h"

namespace lpunits {
namespace {

// z, p, center and weight by their steps along the dimensions of z; p has size 1 along dim.
void plan_pool(Plan& plan, std::vector<Part>& parts, const Tensor& z, const Tensor& p, const OptionalTensor& center,
               const OptionalTensor& weight, int64_t dim) {
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
  if (weight) {
    plan.weight.data = data_of(*weight), plan.mask = weight->scalar_type() == ScalarType::Bool;
    parts.push_back({&plan.weight, steps("weight", *weight, sizes)});
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

OptionalTensor parameter(const char* name, const OptionalTensor& t, const Tensor& z) {
  return t ? OptionalTensor(parameter(name, *t, z)) : std::nullopt;
}
// Weights, or a mask as it is.
OptionalTensor weights(const OptionalTensor& weight, const Tensor& z) {
  if (!weight || weight->scalar_type() != ScalarType::Bool) return parameter("weight", weight, z);
  check_cpu("weight", *weight);
  return weight;
}
// The gradient by the weights, one for each entry of z; empty if not wanted.
Tensor new_weight_gradient(const Tensor& z, const Tensor& p, bool wanted) { return new_empty(p, wanted ? sizes_of(z) : Sizes{0}); }

void pool_into(const Tensor& z, const Tensor& p_given, const OptionalTensor& center_given, int64_t dim,
               const OptionalTensor& weight_given, const Tensor& u) {
  const Tensor p = parameter("p", p_given, z);
  const OptionalTensor center = parameter("center", center_given, z), weight = weights(weight_given, z);
  Plan plan;
  plan.u.data = data_of(u);
  std::vector<Part> parts = {{&plan.u, with_dim(u, dim)}};
  plan_pool(plan, parts, z, p, center, weight, dim);
  run_forward(plan, z.numel());
}

Tensor lp_pool(const Tensor& z, const Tensor& p, const OptionalTensor& center, int64_t dim, const OptionalTensor& weight) {
  STD_TORCH_CHECK(dim >= 0 && dim < z.dim(), "dim must be a dimension of z");
  const Tensor u = new_empty(z, without_dim(z, dim));
  pool_into(z, p, center, dim, weight, u);
  return u;
}

Tensor lp_pool_out(const Tensor& z, const Tensor& p, const OptionalTensor& center, int64_t dim, const OptionalTensor& weight,
                   Tensor out) {
  STD_TORCH_CHECK(out.scalar_type() == z.scalar_type() && sizes_of(out) == without_dim(z, dim), "out must be like u");
  check_cpu("out", out);
  pool_into(z, p, center, dim, weight, out);
  return out;
}

struct Gradients { Tensor dp, dcenter, dweight; };

Gradients backward_into(const Tensor& grad, const Tensor& z, const Tensor& p_given, const OptionalTensor& center_given, int64_t dim,
                        bool need_p, bool need_center, const OptionalTensor& weight_given, bool need_weight, const Tensor& dz) {
  check_cpu("grad", grad);
  STD_TORCH_CHECK(grad.scalar_type() == z.scalar_type() && sizes_of(grad) == without_dim(z, dim), "grad must be like u");
  const Tensor p = parameter("p", p_given, z);
  const OptionalTensor center = parameter("center", center_given, z), weight = weights(weight_given, z);
  Tensor dp = new_gradient(p, need_p), dcenter = new_gradient(center ? *center : p, need_center && center);
  const Tensor dweight = new_weight_gradient(z, p, need_weight && weight);
  Plan plan;
  plan.dp_size = dp.numel(), plan.dcenter_size = dcenter.numel();
  plan.u.data = data_of(grad), plan.dz.data = data_of(dz);
  std::vector<Part> parts = {{&plan.u, with_dim(grad, dim)}, {&plan.dz, Sizes(dz.strides().begin(), dz.strides().end())}};
  parts.push_back({&plan.dp, contiguous_steps(p, size_t(z.dim()))});
  if (center) parts.push_back({&plan.dcenter, contiguous_steps(*center, size_t(z.dim()))});
  if (dweight.numel()) {
    plan.dweight.data = data_of(dweight);
    parts.push_back({&plan.dweight, Sizes(dweight.strides().begin(), dweight.strides().end())});
  }
  plan_pool(plan, parts, z, p, center, weight, dim);
  run_backward(plan, z.numel(), 1, dp, dcenter);
  return {in_type_of(dp, p_given), center_given ? in_type_of(dcenter, *center_given) : dcenter, dweight};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> lp_pool_backward(const Tensor& grad, const Tensor& z, const Tensor& p,
                                                            const OptionalTensor& center, int64_t dim, bool need_p,
                                                            bool need_center, const OptionalTensor& weight, bool need_weight) {
  const Tensor dz = new_like(z);
  const Gradients found = backward_into(grad, z, p, center, dim, need_p, need_center, weight, need_weight, dz);
  return {dz, found.dp, found.dcenter, found.dweight};
}

// Writes the gradient in z into dz, and returns that in p: for loops that keep their memory.
Tensor lp_pool_backward_into_(const Tensor& grad, const Tensor& z, const Tensor& p, int64_t dim, bool need_p, Tensor dz) {
  check_cpu("dz", dz);
  STD_TORCH_CHECK(dz.scalar_type() == z.scalar_type() && sizes_of(dz) == sizes_of(z), "dz must be like z");
  return backward_into(grad, z, p, std::nullopt, dim, need_p, false, std::nullopt, false, dz).dp;
}

// ---------------------------------------------------------------- windows

// z is (batch, channels, ...), p (channels,). In half precision windows are computed on a float32 copy: overlapping
// gradients are added up in place.
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
      const int64_t size = z.size(int64_t(s) + 2), more = ceil_mode ? stride[s] - 1 : 0;
      const int64_t room = size + 2 * padding[s] - dilation[s] * (kernel[s] - 1) - 1 + more;
      STD_TORCH_CHECK(room >= 0 && size > 0, "z must be at least as large as a window");
      int64_t count = room / stride[s] + 1;
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

// The rows of each segment, in their order: rows_at[offsets[g]] to rows_at[offsets[g+1] - 1].
std::tuple<Tensor, Tensor> group_rows(const Tensor& index_given, int64_t segments) {
  check_cpu("index", index_given);
  STD_TORCH_CHECK(index_given.scalar_type() == ScalarType::Long && index_given.dim() == 1, "index must be a vector of int64");
  const Tensor index = torch::stable::contiguous(index_given);
  const int64_t *of = index.const_data_ptr<int64_t>(), rows = index.numel();
  const Tensor offsets = new_empty(index, Sizes{segments + 1}), rows_at = new_empty(index, Sizes{rows});
  int64_t *at = offsets.mutable_data_ptr<int64_t>(), *sorted = rows_at.mutable_data_ptr<int64_t>();
  std::fill_n(at, segments + 1, 0);
  for (int64_t i = 0; i < rows; ++i) {
    STD_TORCH_CHECK(of[i] >= 0 && of[i] < segments, "index must be from 0 to num_segments - 1 = ", segments - 1, ", got ", of[i]);
    ++at[of[i] + 1];
  }
  for (int64_t g = 0; g < segments; ++g) at[g + 1] += at[g];
  std::vector<int64_t> next(at, at + segments);
  for (int64_t i = 0; i < rows; ++i) sorted[next[size_t(of[i])]++] = i;
  return {offsets, rows_at};
}

// Group g of z, (rows, ...), has the rows from offsets[g] to offsets[g+1], of z or of rows_at; p
// broadcasts to the result, weight to z.
struct Segments {
  const Tensor &z, p, &offsets;
  const OptionalTensor &rows_at, weight;
  Plan plan;
  std::vector<Part> parts;

  Segments(const Tensor& z, const Tensor& p, const Tensor& offsets, const OptionalTensor& rows_at, const OptionalTensor& weight)
      : z(z), p(parameter("p", p, z)), offsets(offsets), rows_at(rows_at), weight(weights(weight, z)) {}

  Sizes result() const {
    Sizes sizes = sizes_of(z);
    sizes[0] = offsets.numel() - 1;
    return sizes;
  }
  // An operand with the dimensions of z, or of the groups: the entries of a group are one dimension
  // more, in front of which segment it is.
  void like_z(Operand& operand, const Tensor& t, Sizes steps) { add(operand, t, std::move(steps), 1); }
  void like_groups(Operand& operand, const Tensor& t, Sizes steps) { add(operand, t, std::move(steps), 0); }
  void add(Operand& operand, const Tensor& t, Sizes steps, int64_t at) {
    steps.insert(steps.begin() + at, 0);
    operand.data = data_of(t);
    parts.push_back({&operand, steps});
  }

  void lay_out_all() {
    check_cpu("z", z), check_cpu("offsets", offsets);
    STD_TORCH_CHECK(offsets.scalar_type() == ScalarType::Long && offsets.dim() == 1 && offsets.is_contiguous() && offsets.numel() > 0,
                    "offsets must be a vector of int64, one more than there are groups");
    const int64_t groups = offsets.numel() - 1;
    plan.offsets = offsets.const_data_ptr<int64_t>();
    STD_TORCH_CHECK(plan.offsets[0] == 0 && plan.offsets[groups] == z.size(0), "offsets must go from 0 to the rows of z, ", z.size(0));
    if (rows_at) {
      STD_TORCH_CHECK(rows_at->scalar_type() == ScalarType::Long && rows_at->is_contiguous() && rows_at->numel() == z.size(0),
                      "rows_at must be a vector of int64, one for each row of z");
      plan.rows_at = rows_at->const_data_ptr<int64_t>();
      STD_TORCH_CHECK(std::all_of(plan.rows_at, plan.rows_at + z.size(0), [&](int64_t i) { return i >= 0 && i < z.size(0); }),
                      "rows_at must be rows of z");
    }
    plan.type = type_of(z);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t rows = plan.offsets[g + 1] - plan.offsets[g];
      STD_TORCH_CHECK(rows >= 0, "offsets must not fall");
      plan.rows = std::max(plan.rows, rows);
    }
    const Sizes z_steps(z.strides().begin(), z.strides().end());
    like_z(plan.z, z, z_steps);
    like_groups(plan.p, p, steps("p", p, result()));
    if (weight) {
      like_z(plan.weight, *weight, steps("weight", *weight, sizes_of(z)));
      plan.mask = weight->scalar_type() == ScalarType::Bool;
    }
    Sizes sizes = sizes_of(z), order = z_steps;
    sizes.insert(sizes.begin() + 1, groups), order.insert(order.begin() + 1, 0);
    sizes[0] = plan.rows;
    const int64_t lanes = choose_lanes(plan, sizes, order, 0, 2);
    lay_out(plan, parts, sizes, 0, lanes, by_step(order, 2), false);
  }
};

Tensor lp_pool_segments(const Tensor& z, const Tensor& p, const Tensor& offsets, const OptionalTensor& rows_at,
                        const OptionalTensor& weight) {
  Segments segments(z, p, offsets, rows_at, weight);
  const Tensor u = new_empty(z, segments.result());
  segments.like_groups(segments.plan.u, u, Sizes(u.strides().begin(), u.strides().end()));
  segments.lay_out_all();
  run_forward(segments.plan, z.numel());
  return u;
}

std::tuple<Tensor, Tensor, Tensor> lp_pool_segments_backward(const Tensor& grad, const Tensor& z, const Tensor& p,
                                                             const Tensor& offsets, bool need_p, const OptionalTensor& rows_at,
                                                             const OptionalTensor& weight, bool need_weight) {
  check_cpu("grad", grad);
  Segments segments(z, p, offsets, rows_at, weight);
  Plan& plan = segments.plan;
  STD_TORCH_CHECK(grad.scalar_type() == z.scalar_type() && sizes_of(grad) == segments.result(), "grad must be like u");
  const Tensor dz = new_like(z), dweight = new_weight_gradient(z, segments.p, need_weight && weight);
  Tensor dp = new_gradient(segments.p, need_p), none;
  plan.dp_size = dp.numel();
  segments.like_groups(plan.u, grad, Sizes(grad.strides().begin(), grad.strides().end()));
  segments.like_z(plan.dz, dz, Sizes(dz.strides().begin(), dz.strides().end()));
  segments.like_groups(plan.dp, dp, contiguous_steps(segments.p, size_t(z.dim())));
  if (dweight.numel()) segments.like_z(plan.dweight, dweight, Sizes(dweight.strides().begin(), dweight.strides().end()));
  segments.lay_out_all();
  run_backward(plan, z.numel(), 1, dp, none);
  return {dz, in_type_of(dp, p), dweight};
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
  m.impl("group_rows", TORCH_BOX(&lpunits::group_rows));
  m.impl("dropout", TORCH_BOX(&lpunits::dropout));
  m.impl("descend_", TORCH_BOX(&lpunits::descend_));
}

STABLE_TORCH_LIBRARY_IMPL(lpunits, CompositeExplicitAutograd, m) {
  m.impl("instruction_set", TORCH_BOX(&lpunits::instruction_set));
}
