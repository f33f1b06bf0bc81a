// Towers of dense layers with a ReLU between two of them, forward and backward, a few rows at a time.
//
// All towers see the same rows. A part of the work is some rows of one tower through all of its layers, so that what lies
// between two layers stays in the cache; of gradients by weights it is some inputs of one layer. Every sum is made in the
// same order however many threads there are, and a row's numbers do not depend on the others.
#include <atomic>
#include <cstring>
#include <vector>

#include "team.h"
#include "vectors.h"

namespace {

constexpr long kRows = 96;         // of a part, at most
constexpr long kSeen = 512;        // rows that a gradient by weights goes through before those of the next inputs
constexpr int kInputs = 8 * kTall;  // whose weights' gradients are a part
constexpr long kAlone = 1 << 20;   // multiplications that are done before another thread would have begun

constexpr long filled(long numbers) { return (numbers + kLanes - 1) / kLanes * kLanes; }

struct Dense {
  int inputs, outputs;
  long before;  // how many numbers the tower's and other towers' hidden layers before this one give for a row
};

struct Tower {
  std::vector<Dense> layers;
  int first;  // of its layers, among all towers'

  int depth() const { return layers.size(); }
  bool hidden(int k) const { return k + 1 < depth(); }
};

// The depth of each tower, then its features and the outputs of each layer.
std::vector<Tower> towers_of(ffi::Span<const int64_t> numbers) {
  std::vector<Tower> towers;
  long before = 0;
  int first = 0;
  for (size_t at = 0; at < numbers.size();) {
    const int depth = numbers[at++];
    Tower tower{{}, first};
    for (int k = 0; k < depth; ++k, ++at) {
      tower.layers.push_back({(int)numbers[at], (int)numbers[at + 1], before});
      if (k + 1 < depth) before += numbers[at + 1];
    }
    ++at;
    first += depth;
    towers.push_back(std::move(tower));
  }
  return towers;
}

int widest(const std::vector<Tower>& towers) {
  int most = 0;
  for (const Tower& tower : towers)
    for (const Dense& layer : tower.layers) most = std::max({most, layer.inputs, layer.outputs});
  return most;
}

bool is_little(const std::vector<Tower>& towers, long count) {
  long numbers = 0;
  for (const Tower& tower : towers)
    for (const Dense& layer : tower.layers) numbers += (long)layer.inputs * layer.outputs;
  return numbers * count < kAlone;
}

// How the rows of one tower are cut, so that all threads have as much to do.
struct Cut {
  long count, parts, rows;
  Cut(long count, long towers, long threads) : count(count), parts(std::max(1L, (count + kRows - 1) / kRows)) {
    while (parts * towers % threads && parts < count) ++parts;
    rows = ((count + parts - 1) / parts + kTall - 1) / kTall * kTall;
  }
  long first(int part) const { return part % parts * rows; }
  long few(int part) const { return std::max(0L, std::min(rows, count - first(part))); }
  int tower(int part) const { return part / parts; }
};

inline Vector load_some(const float* from, long there) {
  if (there >= kLanes) return load(from);
  Vector some{};
  std::memcpy(&some, from, there * sizeof(float));
  return some;
}

inline void store_some(float* to, Vector what, long room) {
  if (room >= kLanes) return store(to, what);
  std::memcpy(to, &what, room * sizeof(float));
}

// Rows of `width` numbers, each with zeros after it up to whole vectors.
void pad(const float* from, long rows, long width, float* to) {
  for (long m = 0; m < rows; ++m, from += width, to += filled(width)) {
    std::copy(from, from + width, to);
    std::fill(to + width, to + filled(width), 0.0f);
  }
}

// to[n][m] = from[m][n] for all `rows`; a row of `to` is filled(rows) long.
void turn(const float* from, long rows, long width, float* to) {
  const long wide = filled(rows);
  for (long m = 0; m < rows; m += kLanes)
    for (long n = 0; n < width; n += kLanes) {
      if (m + kLanes <= rows && n + kLanes <= width) {
        turn_square(from + m * width + n, width, to + n * wide + m, wide);
        continue;
      }
      for (long j = n; j < std::min(n + kLanes, width); ++j)
        for (long i = m; i < std::min(m + kLanes, rows); ++i) to[j * wide + i] = from[i * width + j];
    }
}

const float* numbers_of(const ffi::RemainingArgs& given, int k) {
  return given.get<ffi::Buffer<ffi::F32>>(k)->typed_data();
}

// A thread's own copy of a tower's kernels, turned. Read by another thread, it would have to come out of that one's cache,
// which takes longer than to turn them again.
struct Turned {
  long call = 0;  // for which they were turned
  std::vector<const float*> kernels;  // of the layers but the first, whose place is empty

  // The kernels are those from number `from` on of what is `given`.
  void take(const Tower& tower, const ffi::RemainingArgs& given, int from) {
    long room = 0;
    for (int k = 1; k < tower.depth(); ++k) room += tower.layers[k].outputs * filled(tower.layers[k].inputs);
    float* place = memory.get(room);
    kernels.assign(1, nullptr);
    for (int k = 1; k < tower.depth(); ++k) {
      const Dense& l = tower.layers[k];
      turn(numbers_of(given, from + k - 1), l.inputs, l.outputs, place);
      kernels.push_back(place);
      place += l.outputs * filled(l.inputs);
    }
  }

 private:
  Scratch memory;
};

}  // namespace

// x [N, features]; then kernel [inputs, outputs] and bias of each layer of each tower -> what the hidden layers give, one
// after the other, [N, outputs] each, where there is room for it; and what each tower gives.
static ffi::Error Forward(ffi::ThreadPool threads, ffi::Span<const int64_t> numbers, ffi::Buffer<ffi::F32> x,
                          ffi::RemainingArgs given, ffi::ResultBuffer<ffi::F32> hidden, ffi::RemainingRets out) {
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
        pad(kernel, l.inputs, l.outputs, padded);
        kernel = padded;
        padded += l.inputs * filled(l.outputs);
        pad(bias, 1, l.outputs, padded);
        bias = padded;
        padded += filled(l.outputs);
      }
      kernels.push_back(kernel), biases.push_back(bias);
    }

  Team team(threads, is_little(towers, count));
  const Cut cut(count, towers.size(), team.size());
  team.share(cut.parts * towers.size(), [&](int part) {
    static thread_local Scratch one, other;
    const Tower& tower = towers[cut.tower(part)];
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
      products(in, Every{l.inputs}, few, Runs{1, 0, l.inputs}, kernels[tower.first + k], filled(l.outputs),
               [&](int m, int n, Vector sum) {
                 const Vector y = sum + load(bias + n);
                 store_some(to + (long)m * l.outputs + n, is_hidden ? relu(y) : y, l.outputs - n);
               });
      in = to;
      std::swap(now, next);
    }
  });
  return ffi::Error::Success();
}

// What Forward kept; then the gradient by what each tower gave, then the kernels of each tower but its first -> the
// gradients by what each hidden layer gave before its ReLU, laid down as what was kept.
static ffi::Error Slopes(ffi::ThreadPool threads, ffi::Span<const int64_t> numbers, ffi::Buffer<ffi::F32> hidden,
                         ffi::RemainingArgs given, ffi::ResultBuffer<ffi::F32> slopes) {
  const std::vector<Tower> towers = towers_of(numbers);
  const int wide = towers.size();
  const auto& head = towers[0].layers.back();
  const long count = given.get<ffi::Buffer<ffi::F32>>(0)->element_count() / head.outputs;
  static std::atomic<long> calls{0};
  const long call = ++calls;
  Team team(threads, is_little(towers, count));
  const Cut cut(count, wide, team.size());
  team.share(cut.parts * wide, [&](int part) {
    static thread_local std::vector<Turned> all_turned;
    const Tower& tower = towers[cut.tower(part)];
    if ((int)all_turned.size() < wide) all_turned.resize(wide);
    Turned& turned = all_turned[cut.tower(part)];
    if (turned.call != call) {
      turned.take(tower, given, wide + tower.first - cut.tower(part));
      turned.call = call;
    }
    const long first = cut.first(part), few = cut.few(part);
    const float* come = numbers_of(given, cut.tower(part)) + first * tower.layers.back().outputs;
    for (int k = tower.depth() - 1; k > 0; --k) {
      const Dense &l = tower.layers[k], &below = tower.layers[k - 1];
      const long at = below.before * count + first * below.outputs;
      const float* gave = hidden.typed_data() + at;
      float* to = slopes->typed_data() + at;
      products(come, Every{l.outputs}, few, Runs{1, 0, l.outputs}, turned.kernels[k], filled(l.inputs),
               [&](int m, int n, Vector sum) {
                 const long place = (long)m * l.inputs + n, there = l.inputs - n;
                 store_some(to + place, load_some(gave + place, there) > 0 ? sum : Vector{}, there);
               });
      come = to;
    }
  });
  return ffi::Error::Success();
}

// x, what Forward kept, what Slopes gave; then the gradient by what each tower gave -> the gradients by kernel and bias of
// each layer of each tower.
static ffi::Error Weights(ffi::ThreadPool threads, ffi::Span<const int64_t> numbers, ffi::Buffer<ffi::F32> x,
                          ffi::Buffer<ffi::F32> hidden, ffi::Buffer<ffi::F32> slopes, ffi::RemainingArgs given,
                          ffi::RemainingRets gradients) {
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
  Team team(threads, is_little(towers, count));
  team.share(parts.size(), [&](int number) {
    static thread_local Scratch some_slopes, some_sums;
    const Part& part = parts[number];
    const Tower& tower = towers[part.tower];
    const Dense& l = tower.layers[part.layer];
    const int at = 2 * (tower.first + part.layer), width = filled(l.outputs), inputs = part.end - part.begin;
    const float* in = part.layer ? hidden.typed_data() + tower.layers[part.layer - 1].before * count : x.typed_data();
    const float* slope = tower.hidden(part.layer) ? slopes.typed_data() + l.before * count
                                                  : numbers_of(given, part.tower);
    float* to = (*gradients.get<ffi::Buffer<ffi::F32>>(at))->typed_data() + part.begin * l.outputs;
    float* sums = to;
    if (width != l.outputs) {
      float* padded = some_slopes.get(count * width);
      pad(slope, count, l.outputs, padded);
      slope = padded;
      sums = some_sums.get((long)inputs * width);
    }
    std::fill(sums, sums + (long)inputs * width, 0.0f);
    for (long m = 0; m < count; m += kSeen)
      outer_products(in + m * l.inputs + part.begin, Every{l.inputs}, slope + m * width, Every{width},
                     std::min(kSeen, count - m), Runs{1, 0, inputs}, sums, width);
    if (sums != to)
      for (long k = 0; k < inputs; ++k) std::copy(sums + k * width, sums + k * width + l.outputs, to + k * l.outputs);
    if (part.begin) return;
    float* bias = (*gradients.get<ffi::Buffer<ffi::F32>>(at + 1))->typed_data();
    for (int n = 0; n < width; n += kLanes) {
      Vector sum{};
      for (long m = 0; m < count; ++m) sum += load(slope + m * width + n);
      store_some(bias + n, sum, l.outputs - n);
    }
  });
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(weft_towers, Forward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<ffi::Span<const int64_t>>("towers")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .RemainingArgs()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(weft_towers_slopes, Slopes,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<ffi::Span<const int64_t>>("towers")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .RemainingArgs()
                                  .Ret<ffi::Buffer<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(weft_towers_weights, Weights,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<ffi::Span<const int64_t>>("towers")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .RemainingArgs()
                                  .RemainingRets());
