// Vectors of floats as wide as the machine's registers, and the two sums of products that every kernel here consists of.
//
// Written with the vector extension of GCC and Clang, so that one source serves any processor. A tile of R rows by V
// vectors stays in registers while its sums are made: with AVX-512, 6 x 4 or 8 x 2 of its 32 registers, at which one core
// of an AMD EPYC does 0.95 of the multiplications that it can do at all.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#if defined(__AVX512F__)
constexpr int kLanes = 16, kWide = 4;
#elif defined(__AVX__)
constexpr int kLanes = 8, kWide = 2;
#else
constexpr int kLanes = 4, kWide = 2;
#endif
constexpr int kTall = 6;  // rows of a tile that is kWide vectors wide

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef float Anywhere __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float))));

static inline Vector load(const float* from) { return *reinterpret_cast<const Anywhere*>(from); }
static inline void store(float* to, Vector what) { *reinterpret_cast<Anywhere*>(to) = what; }
static inline Vector all(float number) { return number - Vector{}; }
// What is not a number stays so, and is noticed.
static inline Vector relu(Vector x) { return x <= 0 ? Vector{} : x; }

constexpr long filled(long numbers) { return (numbers + kLanes - 1) / kLanes * kLanes; }

static inline Vector load_some(const float* from, long there) {
  if (there >= kLanes) return load(from);
  Vector some{};
  std::memcpy(&some, from, there * sizeof(float));
  return some;
}

static inline void store_some(float* to, Vector what, long room) {
  if (room >= kLanes) return store(to, what);
  std::memcpy(to, &what, room * sizeof(float));
}

// Of a and b the lanes without the bit Step, b's in place of a's lanes that have it; and those with it, likewise.
template <int Step, int... Lane>
static inline void exchange(Vector& a, Vector& b, std::integer_sequence<int, Lane...>) {
#ifdef __clang__
  const Vector low = __builtin_shufflevector(a, b, (Lane & Step ? kLanes + Lane - Step : Lane)...);
  b = __builtin_shufflevector(a, b, (Lane & Step ? kLanes + Lane : Lane + Step)...);
#else
  typedef int Numbers __attribute__((vector_size(kLanes * sizeof(int))));
  const Vector low = __builtin_shuffle(a, b, Numbers{(Lane & Step ? kLanes + Lane - Step : Lane)...});
  b = __builtin_shuffle(a, b, Numbers{(Lane & Step ? kLanes + Lane : Lane + Step)...});
#endif
  a = low;
}

template <int Step>
static inline void exchange_all(Vector (&square)[kLanes]) {
  for (int k = 0; k < kLanes; ++k)
    if (!(k & Step)) exchange<Step>(square[k], square[k + Step], std::make_integer_sequence<int, kLanes>());
  if constexpr (Step > 1) exchange_all<Step / 2>(square);
}

// to[n][m] = from[m][n] of a square of kLanes rows; rows are `width` and `wide` numbers apart.
static inline void turn_square(const float* from, long width, float* to, long wide) {
  Vector square[kLanes];
  for (int k = 0; k < kLanes; ++k) square[k] = load(from + k * width);
  exchange_all<kLanes / 2>(square);
  for (int k = 0; k < kLanes; ++k) store(to + k * wide, square[k]);
}

// Rows of `width` numbers.
struct Every {
  int width;
  long operator()(int m) const { return (long)m * width; }
};

// Which numbers a row has: `segments` runs of `length` numbers, `apart` from one beginning to the next. Between the
// weights of two runs lie those of `skipped` other numbers.
struct Runs {
  int segments;
  long apart;
  int length;
  int skipped = 0;
};

// sums[r][v] = sum over k of rows[r][k] * weights[k][v], where `weights` has `width` numbers for each k.
template <int R, int V>
static inline void multiply(const float* const* rows, const Runs& runs, const float* weights, int width,
                            Vector (&sums)[R][V]) {
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sums[r][v] = Vector{};
  for (int s = 0; s < runs.segments; ++s, weights += (long)runs.skipped * width) {
    const float* row[R];
    for (int r = 0; r < R; ++r) row[r] = rows[r] + s * runs.apart;
    for (int k = 0; k < runs.length; ++k, weights += width) {
      Vector wide[V];
      for (int v = 0; v < V; ++v) wide[v] = load(weights + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        Vector one = all(row[r][k]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sums[r][v] += one * wide[v];
      }
    }
  }
}

template <int R, int V, class At, class Emit>
static inline void tiles(const float* x, At at, int count, const Runs& runs, const float* weights, int width, int from,
                         Emit emit) {
  for (int m = 0; m < count; m += R) {
    const float* rows[R];
    for (int r = 0; r < R; ++r) rows[r] = x + at(std::min(m + r, count - 1));
    Vector sums[R][V];
    multiply<R, V>(rows, runs, weights + from, width, sums);
    for (int r = 0; r < std::min(R, count - m); ++r)
      for (int v = 0; v < V; ++v) emit(m + r, from + v * kLanes, sums[r][v]);
  }
}

// emit(m, n, vector): the products of row m of `count` with `weights` ([numbers of a row, width]), kLanes at a time.
// Row m begins at x + at(m). `width` is a multiple of kLanes.
template <class At, class Emit>
static void products(const float* x, At at, int count, const Runs& runs, const float* weights, int width, Emit emit) {
  int n = 0;
  for (; n + kWide * kLanes <= width; n += kWide * kLanes)
    tiles<kTall, kWide>(x, at, count, runs, weights, width, n, emit);
  if (kWide > 2)
    for (; n + 2 * kLanes <= width; n += 2 * kLanes) tiles<8, 2>(x, at, count, runs, weights, width, n, emit);
  for (; n < width; n += kLanes) tiles<8, 1>(x, at, count, runs, weights, width, n, emit);
}

template <int R, int V, class At, class From>
static inline void outer(const float* x, At at, const float* g, From from, int count, float* to, int width) {
  Vector sums[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sums[r][v] = load(to + (long)r * width + v * kLanes);
  for (int m = 0; m < count; ++m) {
    const float *column = x + at(m), *row = g + from(m);
    Vector wide[V];
    for (int v = 0; v < V; ++v) wide[v] = load(row + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      Vector one = all(column[r]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] += one * wide[v];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store(to + (long)r * width + v * kLanes, sums[r][v]);
}

template <int R, int V, class At, class From>
static inline void outers(const float* x, At at, const float* g, From from, int count, const Runs& runs, float* to,
                          int width, int n) {
  for (int s = 0; s < runs.segments; ++s) {
    const float* begin = x + s * runs.apart;
    float* sums = to + (long)s * runs.length * width + n;
    int k = 0;
    for (; k + R <= runs.length; k += R)
      outer<R, V>(begin + k, at, g + n, from, count, sums + (long)k * width, width);
    for (; k < runs.length; ++k) outer<1, V>(begin + k, at, g + n, from, count, sums + (long)k * width, width);
  }
}

// to[k][n] += sum over m of (number k of row m) * g[from(m) + n]: the gradient by the weights of `products`.
template <class At, class From>
static void outer_products(const float* x, At at, const float* g, From from, int count, const Runs& runs, float* to,
                           int width) {
  int n = 0;
  for (; n + kWide * kLanes <= width; n += kWide * kLanes)
    outers<kTall, kWide>(x, at, g, from, count, runs, to, width, n);
  if (kWide > 2)
    for (; n + 2 * kLanes <= width; n += 2 * kLanes) outers<8, 2>(x, at, g, from, count, runs, to, width, n);
  for (; n < width; n += kLanes) outers<8, 1>(x, at, g, from, count, runs, to, width, n);
}
