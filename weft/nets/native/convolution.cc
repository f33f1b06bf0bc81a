// Convolutions of bytes, each with a bias and a ReLU after it, forward and backward, a few images at a time.
//
// An image's numbers are never copied into patches: in [height, width, channels] the part of a patch that lies in one
// row of the image is one run of numbers, so a patch is a few runs, and the products read it where it is. All layers of
// a few images are done before the next images are looked at, so that what lies between two layers stays in the cache.
// Every sum is made in the same order however many threads there are.
#include <cstdint>
#include <vector>

#include "team.h"
#include "vectors.h"

namespace {

constexpr int kImages = 4;   // that a part of the forward pass has, at most
constexpr int kGroups = 16;  // that a batch is cut into where gradients are added up, at most

struct Layer {
  int height, width, channels, size, stride, features, rows, columns;

  int inputs() const { return height * width * channels; }
  int outputs() const { return rows * columns * features; }
  int weights() const { return size * size * channels * features; }
  int reach() const { return (size + stride - 1) / stride; }  // how many patches of one line an input is in, at most
  Runs patch() const { return {size, (long)width * channels, size * channels}; }
};

// Rows that begin where a list says.
struct In {
  const int* list;
  int operator()(int m) const { return list[m]; }
};

// [height, width, channels] and then [size, stride, features] of each layer.
std::vector<Layer> layers_of(ffi::Span<const int64_t> numbers) {
  std::vector<Layer> layers;
  int height = numbers[0], width = numbers[1], channels = numbers[2];
  for (size_t k = 3; k + 3 <= numbers.size(); k += 3) {
    int size = numbers[k], stride = numbers[k + 1], features = numbers[k + 2];
    layers.push_back({height, width, channels, size, stride, features, (height - size) / stride + 1,
                      (width - size) / stride + 1});
    height = layers.back().rows, width = layers.back().columns, channels = features;
  }
  return layers;
}

// Where the patches of `images` images begin.
std::vector<int> patches_of(const Layer& l, int images) {
  std::vector<int> at;
  for (int n = 0; n < images; ++n)
    for (int i = 0; i < l.rows; ++i)
      for (int j = 0; j < l.columns; ++j)
        at.push_back(((n * l.height + i * l.stride) * l.width + j * l.stride) * l.channels);
  return at;
}

// The bytes of images as floats up to 1. Where they lie in planes, one for each channel, pixels are put together.
template <int Channels>
void join_planes(const uint8_t* bytes, long pixels, float* to) {
  for (long p = 0; p < pixels; ++p)
    for (int c = 0; c < Channels; ++c) to[p * Channels + c] = bytes[c * pixels + p] * (1.0f / 255.0f);
}

void to_floats(const uint8_t* bytes, int images, const Layer& l, bool planes, float* to) {
  const long each = l.inputs(), pixels = (long)l.height * l.width;
  if (!planes || l.channels == 1) {
    for (long k = 0; k < images * each; ++k) to[k] = bytes[k] * (1.0f / 255.0f);
    return;
  }
  for (int n = 0; n < images; ++n, bytes += each, to += each) {
    if (l.channels == 4) {
      join_planes<4>(bytes, pixels, to);
      continue;
    }
    for (long p = 0; p < pixels; ++p)
      for (int c = 0; c < l.channels; ++c) to[p * l.channels + c] = bytes[c * pixels + p] * (1.0f / 255.0f);
  }
}

// out [images, rows, columns, features] = relu(in convolved with weights + bias).
void convolve(const Layer& l, const std::vector<int>& patches, int images, const float* in, const float* weights,
              const float* bias, float* out) {
  products(in, In{patches.data()}, images * l.rows * l.columns, l.patch(), weights, l.features,
           [&](int m, int n, Vector sum) {
             store(out + (long)m * l.features + n, relu(sum + load(bias + n)));
           });
}

// Along one side of an image: the inputs from `begin` to `end` (every stride-th one) are in the patches that begin from
// `low` to `high` of their strides before them; elsewhere there are none.
struct Stretch {
  int begin, end, low, high;
  int lines() const { return std::max(0, high - low + 1); }
};

std::vector<Stretch> stretches(int inputs, int patches, int reach) {
  std::vector<Stretch> found;
  for (int i = 0; i < inputs; ++i) {
    const int low = std::max(0, i - patches + 1), high = std::min(i, reach - 1);
    if (found.empty() || low != found.back().low || high != found.back().high) found.push_back({i, i, low, high});
    found.back().end = i + 1;
  }
  return found;
}

// Inputs that are in as many patches, through the same weights: where the gradients of those patches begin, and where
// their own are put; those of one image after those of another, so that fewer images are a part of each list.
struct Phase {
  Runs runs;
  std::vector<int> slopes, inputs;
  const float* weights;
};

struct Phases {
  std::vector<Phase> list;
  std::vector<float> turned;  // the weights as inputs see them, [stride, stride, reach, reach, features, channels]
};

void turn(const Layer& l, const float* weights, std::vector<float>& to) {
  to.reserve((size_t)l.stride * l.stride * l.reach() * l.reach() * l.features * l.channels);
  for (int phase = 0; phase < l.stride * l.stride; ++phase)
    for (int u = l.reach() - 1; u >= 0; --u)
      for (int v = l.reach() - 1; v >= 0; --v) {
        const int y = phase / l.stride + u * l.stride, x = phase % l.stride + v * l.stride;
        const float* from = weights + (long)(y * l.size + x) * l.channels * l.features;
        for (int f = 0; f < l.features; ++f)
          for (int c = 0; c < l.channels; ++c)
            to.push_back(y < l.size && x < l.size ? from[(long)c * l.features + f] : 0.0f);
      }
}

Phases phases_of(const Layer& l, int images, const float* weights) {
  Phases phases;
  turn(l, weights, phases.turned);
  const long each = (long)l.features * l.channels;
  const float* turned = phases.turned.data();
  for (int down = 0; down < l.stride; ++down)
    for (int across = 0; across < l.stride; ++across, turned += each * l.reach() * l.reach())
      for (const Stretch& i : stretches((l.height - down + l.stride - 1) / l.stride, l.rows, l.reach()))
        for (const Stretch& j : stretches((l.width - across + l.stride - 1) / l.stride, l.columns, l.reach())) {
          Phase phase{{i.lines(), (long)l.columns * l.features, j.lines() * l.features,
                       (l.reach() - j.lines()) * l.features}};
          phase.weights = turned + each * ((l.reach() - 1 - i.high) * l.reach() + l.reach() - 1 - j.high);
          for (int n = 0; n < images; ++n)
            for (int y = i.begin; y < i.end; ++y)
              for (int x = j.begin; x < j.end; ++x) {
                phase.slopes.push_back(((n * l.rows + y - i.high) * l.columns + x - j.high) * l.features);
                phase.inputs.push_back(((n * l.height + y * l.stride + down) * l.width + x * l.stride + across) *
                                       l.channels);
              }
          phases.list.push_back(std::move(phase));
        }
  return phases;
}

long hidden_of(const std::vector<Layer>& layers) {
  long numbers = 0;
  for (size_t k = 0; k + 1 < layers.size(); ++k) numbers += layers[k].outputs();
  return numbers;
}

}  // namespace

// images [N, height, width, channels] bytes, or [N, channels, height, width] where they are `planes`; then kernel [size,
// size, channels, features] and bias of each layer -> what the last layer gives, [N, ...]; and, where there is room for
// it, what the others give: of the first layer for all images, then of the next.
static ffi::Error Forward(ffi::ThreadPool threads, ffi::Span<const int64_t> numbers, bool planes,
                          ffi::Buffer<ffi::U8> images, ffi::RemainingArgs given, ffi::ResultBuffer<ffi::F32> out,
                          ffi::ResultBuffer<ffi::F32> hidden) {
  const std::vector<Layer> layers = layers_of(numbers);
  const int count = images.element_count() / layers[0].inputs();
  const bool kept = hidden->element_count() > 0;
  Team team(threads);
  const int each = std::max(1, std::min(kImages, count / (2 * team.size())));
  const long between = hidden_of(layers);
  std::vector<std::vector<int>> patches;
  std::vector<const float*> weights;
  for (size_t k = 0; k < layers.size(); ++k) {
    patches.push_back(patches_of(layers[k], each));
    weights.push_back(given.get<ffi::Buffer<ffi::F32>>(2 * k)->typed_data());
    weights.push_back(given.get<ffi::Buffer<ffi::F32>>(2 * k + 1)->typed_data());
  }
  team.share((count + each - 1) / each, [&](int part) {
    static thread_local Scratch floats, others;
    const int first = part * each, few = std::min(each, count - first);
    float* in = floats.get((size_t)each * layers[0].inputs());
    to_floats(images.typed_data() + (long)first * layers[0].inputs(), few, layers[0], planes, in);
    float* next = kept ? hidden->typed_data() : others.get((size_t)each * between);
    for (size_t k = 0; k < layers.size(); ++k) {
      const Layer& l = layers[k];
      float* to = kept ? next + (long)first * l.outputs() : next;
      if (k + 1 == layers.size()) to = out->typed_data() + (long)first * l.outputs();
      convolve(l, patches[k], few, in, weights[2 * k], weights[2 * k + 1], to);
      next += (long)(kept ? count : each) * l.outputs();
      in = to;
    }
  });
  return ffi::Error::Success();
}

// images, what Forward gave and kept, the gradient by what it gave, then the kernels -> the gradients by kernel and bias
// of each layer.
static ffi::Error Backward(ffi::ThreadPool threads, ffi::Span<const int64_t> numbers, bool planes,
                           ffi::Buffer<ffi::U8> images, ffi::Buffer<ffi::F32> out, ffi::Buffer<ffi::F32> hidden,
                           ffi::Buffer<ffi::F32> slope, ffi::RemainingArgs kernels, ffi::RemainingRets gradients) {
  const std::vector<Layer> layers = layers_of(numbers);
  const int depth = layers.size(), count = images.element_count() / layers[0].inputs();
  const int groups = std::max(1, std::min(kGroups, count / kImages));
  std::vector<std::vector<int>> patches;
  std::vector<Phases> phases;
  std::vector<const float*> given;  // to each layer; to the first the images, as floats
  std::vector<long> place;          // where a layer's gradients begin among all
  long total = 0;
  const float* kept = hidden.typed_data();
  for (int k = 0; k < depth; ++k) {
    const Layer& l = layers[k];
    patches.push_back(patches_of(l, kImages));
    phases.push_back(k ? phases_of(l, kImages, kernels.get<ffi::Buffer<ffi::F32>>(k)->typed_data()) : Phases());
    given.push_back(kept);
    kept += k ? (long)count * l.inputs() : 0;
    place.push_back(total);
    total += l.weights() + l.features;
  }
  static thread_local Scratch all_sums;
  float* sums = all_sums.get((size_t)groups * total);

  Team team(threads);
  team.share(groups, [&](int group) {
    static thread_local Scratch floats, between;
    float* in = floats.get((size_t)kImages * layers[0].inputs());
    float* sum = sums + group * total;
    std::fill(sum, sum + total, 0.0f);
    std::vector<float*> slopes{between.get((size_t)kImages * (hidden_of(layers) + layers[depth - 1].outputs()))};
    for (const Layer& l : layers) slopes.push_back(slopes.back() + (long)kImages * l.outputs());

    const int end = (long)(group + 1) * count / groups;
    for (int first = (long)group * count / groups; first < end; first += kImages) {
      const int few = std::min(kImages, end - first);
      to_floats(images.typed_data() + (long)first * layers[0].inputs(), few, layers[0], planes, in);
      const long last = layers[depth - 1].outputs();
      const float *gave = out.typed_data() + first * last, *come = slope.typed_data() + first * last;
      for (long k = 0; k < few * last; ++k) slopes[depth - 1][k] = gave[k] > 0 ? come[k] : 0.0f;
      for (int k = depth - 1; k >= 0; --k) {
        const Layer& l = layers[k];
        const int patched = few * l.rows * l.columns;
        const float* from = k ? given[k] + (long)first * l.inputs() : in;
        float *to = sum + place[k], *bias = to + l.weights();
        outer_products(from, In{patches[k].data()}, slopes[k], Every{l.features}, patched, l.patch(), to, l.features);
        for (int m = 0; m < patched; ++m)
          for (int n = 0; n < l.features; ++n) bias[n] += slopes[k][(long)m * l.features + n];
        for (const Phase& phase : phases[k].list) {
          const int inputs = (long)phase.inputs.size() * few / kImages;
          products(slopes[k], In{phase.slopes.data()}, inputs, phase.runs, phase.weights, l.channels,
                   [&](int m, int n, Vector sum) {
                     const long at = phase.inputs[m] + n;
                     store(slopes[k - 1] + at, load(from + at) > 0 ? sum : Vector{});
                   });
        }
      }
    }
  });
  // All groups' sums are one: in the groups' order, whoever adds them up.
  team.share(2 * depth, [&](int piece) {
    const Layer& l = layers[piece / 2];
    const long begin = place[piece / 2] + (piece % 2 ? l.weights() : 0), numbers = piece % 2 ? l.features : l.weights();
    float* to = (*gradients.get<ffi::Buffer<ffi::F32>>(piece))->typed_data();
    std::copy(sums + begin, sums + begin + numbers, to);
    for (int group = 1; group < groups; ++group)
      for (long k = 0; k < numbers; ++k) to[k] += sums[group * total + begin + k];
  });
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(weft_convolve, Forward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<ffi::Span<const int64_t>>("layers")
                                  .Attr<bool>("planes")
                                  .Arg<ffi::Buffer<ffi::U8>>()
                                  .RemainingArgs()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(weft_convolve_back, Backward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<ffi::Span<const int64_t>>("layers")
                                  .Attr<bool>("planes")
                                  .Arg<ffi::Buffer<ffi::U8>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .RemainingArgs()
                                  .RemainingRets());
