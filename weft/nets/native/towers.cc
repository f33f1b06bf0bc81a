// Towers of dense layers with a ReLU between two of them, forward and backward, a few rows at a time.
//
// All towers see the same rows. A part of the work is some rows of one tower through all of its layers, so that what lies
// between two layers stays in the cache; of gradients by weights it is some inputs of one layer. Every sum is made in the
// same order however many threads there are, and a row's numbers do not depend on the others.
//
// With `half`, where the processor has them, the factors of products are rounded to bfloat16 (halves.h), but for those of
// first layers: they are few, and what an environment or a policy gave should be known to more than a 256th.
#include <array>
#include <atomic>
#include <vector>

#include "halves.h"
#include "team.h"
#include "towers.h"
#include "vectors.h"

namespace {

constexpr long kSeen = 512;        // rows that a gradient by weights goes through before those of the next inputs
constexpr int kInputs = 8 * kTall;  // whose weights' gradients are a part

const float* numbers_of(const ffi::RemainingArgs& given, int k) {
  return given.get<ffi::Buffer<ffi::F32>>(k)->typed_data();
}

// A thread's own copy of a tower's kernels, turned or in pairs. Read by another thread, it would have to come out of that
// one's cache, which takes longer than to make it again.
struct Copied {
  long call = 0;  // for which it was made
  std::vector<const float*> kernels;  // of the layers; the places of those that are left out are empty

  // Of the layers from `first` on. The kernel of layer k is number `from` + `step` * (k - first) of what is `given`.
  template <class Room, class Lay>
  void take(const Tower& tower, const ffi::RemainingArgs& given, int first, int from, int step, Room room, Lay lay) {
    long all = 0;
    for (int k = first; k < tower.depth(); ++k) all += room(tower.layers[k]);
    float* place = memory.get(all);
    kernels.assign(first, nullptr);
    for (int k = first; k < tower.depth(); ++k, from += step) {
      const Dense& l = tower.layers[k];
      lay(numbers_of(given, from), l.inputs, l.outputs, place);
      kernels.push_back(place);
      place += room(l);
    }
  }

 private:
  Scratch memory;
};

Copied& copy_of(std::vector<Copied>& copies, int towers, int tower) {
  if ((int)copies.size() < towers) copies.resize(towers);
  return copies[tower];
}

}  // namespace

// x [N, features]; then kernel [inputs, outputs] and bias of each layer of each tower -> what the hidden layers give, one
// after the other, [N, outputs] each, where there is room for it; and what each tower gives.
static ffi::Error Forward(ffi::ThreadPool threads, ffi::Span<const int64_t> numbers, bool half,
                          ffi::Buffer<ffi::F32> x, ffi::RemainingArgs given, ffi::ResultBuffer<ffi::F32> hidden,
                          ffi::RemainingRets out) {
  half = half && kHalves;
  const std::vector<Tower> towers = towers_of(numbers);
  const long count = x.dimensions()[0], width = filled(widest(towers));
  const bool kept = hidden->element_count() > 0;
  static thread_local Scratch all_padded;
  long room = 0;
  for (const Tower& tower : towers)
    for (const Dense& l : tower.layers) room += filled(l.outputs) * (l.inputs + 1);
  float* padded = all_padded.get(room);
  std::vector<const float*> kernels, biases;
  for (const Tower& tower : towers)
    for (const Dense& l : tower.layers) {
      const float *kernel = numbers_of(given, 2 * kernels.size()), *bias = numbers_of(given, 2 * kernels.size() + 1);
      if (l.outputs % kLanes) {
        if (!half || &l == &tower.layers[0]) {
          pad(kernel, l.inputs, l.outputs, padded);
          kernel = padded;
          padded += l.inputs * filled(l.outputs);
        }
        pad(bias, 1, l.outputs, padded);
        bias = padded;
        padded += filled(l.outputs);
      }
      kernels.push_back(kernel), biases.push_back(bias);
    }

  static std::atomic<long> calls{0};
  const long call = ++calls;
  Team team(threads, is_little(towers, count));
  const Cut cut(count, towers.size(), team.size());
  team.share(cut.parts * towers.size(), [&](int part) {
    static thread_local Scratch one, other, in_pairs;
    static thread_local std::vector<Copied> copies;
    const Tower& tower = towers[cut.tower(part)];
    Copied& copy = copy_of(copies, towers.size(), cut.tower(part));
    if (half && copy.call != call) {
      copy.take(
          tower, given, 1, 2 * tower.first + 2, 2,
          [](const Dense& l) {
            return l.outputs > kFew ? pairs_of(l.inputs) * filled(l.outputs) : filled(pairs_of(l.inputs)) * l.outputs;
          },
          [](const float* kernel, long inputs, long outputs, float* to) {
            if (outputs > kFew) return pair_strips(kernel, outputs, inputs, outputs, to);
            pair_turned_numbers(kernel, inputs, outputs, to);
          });
      copy.call = call;
    }
    const long first = cut.first(part), few = cut.few(part);
    float *now = one.get(cut.rows * width), *next = other.get(cut.rows * width);
    const float* in = x.typed_data() + first * tower.layers[0].inputs;
    for (int k = 0; k < tower.depth(); ++k) {
      const Dense& l = tower.layers[k];
      const float* bias = biases[tower.first + k];
      const bool is_hidden = tower.hidden(k);
      float* to = now;
      if (!is_hidden)
        to = (*out.get<ffi::Buffer<ffi::F32>>(cut.tower(part)))->typed_data() + first * l.outputs;
      else if (kept)
        to = hidden->typed_data() + l.before * count + first * l.outputs;
      const auto emit = [&](int m, int n, Vector sum) {
        const Vector y = sum + load(bias + n);
        store_some(to + (long)m * l.outputs + n, is_hidden ? relu(y) : y, l.outputs - n);
      };
      if (half && k) {
        float* pairs = in_pairs.get(few * filled(pairs_of(l.inputs)));
        pair_numbers(in, few, l.inputs, pairs);
        if (l.outputs > kFew)
          half_products(pairs, few, pairs_of(l.inputs), copy.kernels[k], filled(l.outputs), emit);
        else
          few_products(pairs, few, pairs_of(l.inputs), copy.kernels[k], l.outputs, emit);
      } else {
        products(in, Every{l.inputs}, few, Runs{1, 0, l.inputs}, kernels[tower.first + k], filled(l.outputs), emit);
      }
      in = to;
      std::swap(now, next);
    }
  });
  return ffi::Error::Success();
}

// What Forward kept; then the gradient by what each tower gave, then the kernels of each tower but its first -> the
// gradients by what each hidden layer gave before its ReLU, laid down as what was kept.
static ffi::Error Slopes(ffi::ThreadPool threads, ffi::Span<const int64_t> numbers, bool half,
                         ffi::Buffer<ffi::F32> hidden, ffi::RemainingArgs given,
                         ffi::ResultBuffer<ffi::F32> slopes) {
  half = half && kHalves;
  const std::vector<Tower> towers = towers_of(numbers);
  const int wide = towers.size();
  const auto& head = towers[0].layers.back();
  const long count = given.get<ffi::Buffer<ffi::F32>>(0)->element_count() / head.outputs;
  static std::atomic<long> calls{0};
  const long call = ++calls;
  Team team(threads, is_little(towers, count));
  const Cut cut(count, wide, team.size());
  team.share(cut.parts * wide, [&](int part) {
    static thread_local std::vector<Copied> copies;
    static thread_local Scratch in_pairs;
    const Tower& tower = towers[cut.tower(part)];
    Copied& turned = copy_of(copies, wide, cut.tower(part));
    if (turned.call != call) {
      turned.take(tower, given, 1, wide + tower.first - cut.tower(part), 1,
                  [&](const Dense& l) { return (half ? pairs_of(l.outputs) : l.outputs) * filled(l.inputs); },
                  half ? pair_turned_strips : turn);
      turned.call = call;
    }
    const long first = cut.first(part), few = cut.few(part);
    const float* come = numbers_of(given, cut.tower(part)) + first * tower.layers.back().outputs;
    for (int k = tower.depth() - 1; k > 0; --k) {
      const Dense &l = tower.layers[k], &below = tower.layers[k - 1];
      const long at = below.before * count + first * below.outputs;
      const float* gave = hidden.typed_data() + at;
      float* to = slopes->typed_data() + at;
      const auto emit = [&](int m, int n, Vector sum) {
        const long place = (long)m * l.inputs + n, there = l.inputs - n;
        store_some(to + place, load_some(gave + place, there) > 0 ? sum : Vector{}, there);
      };
      if (half) {
        float* pairs = in_pairs.get(few * filled(pairs_of(l.outputs)));
        pair_numbers(come, few, l.outputs, pairs);
        half_products(pairs, few, pairs_of(l.outputs), turned.kernels[k], filled(l.inputs), emit);
      } else {
        products(come, Every{l.outputs}, few, Runs{1, 0, l.outputs}, turned.kernels[k], filled(l.inputs), emit);
      }
      come = to;
    }
  });
  return ffi::Error::Success();
}

// x, what Forward kept, what Slopes gave; then the gradient by what each tower gave -> the gradients by kernel and bias of
// each layer of each tower.
static ffi::Error Weights(ffi::ThreadPool threads, ffi::Span<const int64_t> numbers, bool half,
                          ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> hidden, ffi::Buffer<ffi::F32> slopes,
                          ffi::RemainingArgs given, ffi::RemainingRets gradients) {
  half = half && kHalves;
  const std::vector<Tower> towers = towers_of(numbers);
  const long count = x.dimensions()[0];
  struct Part {
    int tower, layer;
    long begin, end;  // of the inputs
  };
  std::vector<Part> parts;
  for (int t = 0; t < (int)towers.size(); ++t)
    for (int k = 0; k < towers[t].depth(); ++k)
      for (long begin = 0; begin < towers[t].layers[k].inputs; begin += kInputs)
        parts.push_back({t, k, begin, std::min<long>(begin + kInputs, towers[t].layers[k].inputs)});
  static std::atomic<long> calls{0};
  const long call = ++calls;
  Team team(threads, is_little(towers, count));
  team.share(parts.size(), [&](int number) {
    static thread_local Scratch some_slopes, some_sums, in_pairs, slope_pairs;
    static thread_local std::array<long, 3> paired;  // which slopes are in pairs: of which call, layer and rows
    const Part& part = parts[number];
    const Tower& tower = towers[part.tower];
    const Dense& l = tower.layers[part.layer];
    const bool rounds = half && part.layer;
    const int at = 2 * (tower.first + part.layer), width = filled(l.outputs), inputs = part.end - part.begin;
    const float* in = part.layer ? hidden.typed_data() + tower.layers[part.layer - 1].before * count : x.typed_data();
    const float* slope = tower.hidden(part.layer) ? slopes.typed_data() + l.before * count
                                                  : numbers_of(given, part.tower);
    float* to = (*gradients.get<ffi::Buffer<ffi::F32>>(at))->typed_data() + part.begin * l.outputs;
    float* sums = to;
    long wide = l.outputs;  // of a row of slopes
    const bool few = rounds && l.outputs <= kFew;
    const long all_sums = few ? l.outputs * filled(inputs) : (long)inputs * width;
    if (width != l.outputs) {
      sums = some_sums.get(all_sums);
      if (!rounds) {
        float* padded = some_slopes.get(count * width);
        pad(slope, count, l.outputs, padded);
        slope = padded;
        wide = width;
      }
    }
    std::fill(sums, sums + all_sums, 0.0f);
    for (long m = 0; m < count; m += kSeen) {
      const long seen = std::min(kSeen, count - m);
      const float *x = in + m * l.inputs + part.begin, *g = slope + m * wide;
      if (!rounds) {
        outer_products(x, Every{l.inputs}, g, Every{width}, seen, Runs{1, 0, inputs}, sums, width);
        continue;
      }
      float *of_x = in_pairs.get(pairs_of(seen) * filled(inputs)), *of_g = slope_pairs.get(pairs_of(seen) * width);
      if (few) {
        pair_strips(x, l.inputs, seen, inputs, of_x);
        pair_rows(g, wide, seen, wide, of_g, width);
        half_outer_products(of_g, width, of_x, pairs_of(seen), wide, sums, filled(inputs));
        paired = {};  // other slopes are in their place
        continue;
      }
      if (const std::array<long, 3> these{call, at, m}; paired != these) {
        pair_strips(g, wide, seen, wide, of_g);
        paired = these;
      }
      pair_rows(x, l.inputs, seen, inputs, of_x, filled(inputs));
      half_outer_products(of_x, filled(inputs), of_g, pairs_of(seen), inputs, sums, width);
    }
    if (sums != to)
      for (long k = 0; k < inputs; ++k)
        for (long n = 0; n < l.outputs; ++n) to[k * l.outputs + n] = sums[few ? n * filled(inputs) + k : k * width + n];
    if (part.begin) return;
    float* bias = (*gradients.get<ffi::Buffer<ffi::F32>>(at + 1))->typed_data();
    for (int n = 0; n < width; n += kLanes) {
      Vector sum{};
      for (long m = 0; m < count; ++m) sum += load_some(slope + m * wide + n, wide - n);
      store_some(bias + n, sum, l.outputs - n);
    }
  });
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(weft_towers, Forward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<ffi::Span<const int64_t>>("towers")
                                  .Attr<bool>("half")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .RemainingArgs()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(weft_towers_slopes, Slopes,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<ffi::Span<const int64_t>>("towers")
                                  .Attr<bool>("half")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .RemainingArgs()
                                  .Ret<ffi::Buffer<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(weft_towers_weights, Weights,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<ffi::Span<const int64_t>>("towers")
                                  .Attr<bool>("half")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .RemainingArgs()
                                  .RemainingRets());
