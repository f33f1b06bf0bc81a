// The sums of products of vectors.h with factors rounded to bfloat16, half as wide as a float: a processor that has
// them (AVX512_BF16) multiplies two pairs of them in each lane at once, and adds both products to a float.
//
// What is in memory between calls stays float. Factors are rounded to the nearest, laid down in pairs of those whose
// products are added, and an odd number of them is filled up with a zero. A pair has a float's place: what is called
// `pairs` here are float* to bits of which nothing but these functions makes numbers.
#pragma once

#include "vectors.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

constexpr bool kHalves = true;

// Lane k: number 2k of the 2 * kLanes, and the one after it.
static inline Vector neighbours(Vector low, Vector high) {
  return (Vector)_mm512_castsi512_ps((__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
}

// Lane k: lane k of `even`, and that of `odd`.
static inline Vector zipped(Vector even, Vector odd) {
  alignas(64) static constexpr short kOrder[2 * kLanes] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = _mm512_castps_si512((__m512)neighbours(even, odd));
  return (Vector)_mm512_castsi512_ps(_mm512_permutexvar_epi16(_mm512_load_si512(kOrder), both));
}

static inline Vector all_pairs(const float* pair) { return (Vector)_mm512_set1_ps(*pair); }

static inline Vector add_products(Vector sum, Vector x, Vector y) {
  const auto halves = [](Vector pairs) { return (__m512bh)_mm512_castps_si512((__m512)pairs); };
  return (Vector)_mm512_dpbf16_ps((__m512)sum, halves(x), halves(y));
}

// What is there of kLanes numbers, which may be none, and zeros.
static inline Vector load_there(const float* from, long there) {
  const __mmask16 which = there >= kLanes ? 0xffff : (1 << std::max(0L, there)) - 1;
  return (Vector)_mm512_maskz_loadu_ps(which, from);
}

static inline float total(Vector sum) { return _mm512_reduce_add_ps((__m512)sum); }
#else
constexpr bool kHalves = false;  // and nothing calls these

static inline Vector neighbours(Vector, Vector) { return Vector{}; }
static inline Vector zipped(Vector, Vector) { return Vector{}; }
static inline Vector all_pairs(const float*) { return Vector{}; }
static inline Vector add_products(Vector sum, Vector, Vector) { return sum; }
static inline Vector load_there(const float*, long) { return Vector{}; }
static inline float total(Vector) { return 0; }
#endif

constexpr int kFew = 4;  // outputs, which would leave most lanes empty: the lanes are inputs then

constexpr long pairs_of(long numbers) { return (numbers + 1) / 2; }

// Calls each(R, V, n) for the tiles, R rows by V vectors, of a matrix `width` wide, n being their first column: as
// `products` cuts it. What is laid down for them is cut likewise: strips as wide as a tile, one after the other, so
// that all of one stays in the nearest cache.
template <class Each>
static inline void strips(int width, Each each) {
  using Tall = std::integral_constant<int, kTall>;
  using Eight = std::integral_constant<int, 8>;
  int n = 0;
  for (; n + kWide * kLanes <= width; n += kWide * kLanes) each(Tall(), std::integral_constant<int, kWide>(), n);
  for (; n + 2 * kLanes <= width; n += 2 * kLanes) each(Eight(), std::integral_constant<int, 2>(), n);
  for (; n < width; n += kLanes) each(Eight(), std::integral_constant<int, 1>(), n);
}

// Rows of pairs of neighbours: pairs [rows, filled(pairs_of(width))].
static void pair_numbers(const float* from, long rows, long width, float* pairs) {
  for (long m = 0; m < rows; ++m, from += width)
    for (long k = 0; k < width; k += 2 * kLanes, pairs += kLanes)
      store(pairs, neighbours(load_there(from + k, width - k), load_there(from + k + kLanes, width - k - kLanes)));
}

// Pairs of each number and the one below it: pairs [pairs_of(rows), wide] of rows `apart`, of which `width` are there.
static inline void pair_rows(const float* from, long apart, long rows, long width, float* pairs, long wide) {
  for (long m = 0; m < rows; m += 2, from += 2 * apart, pairs += wide)
    for (long n = 0; n < wide; n += kLanes)
      store(pairs + n, zipped(load_there(from + n, width - n),
                              load_there(from + apart + n, m + 1 < rows ? width - n : 0)));
}

// The same in strips: [pairs_of(rows), filled(width)] numbers in all.
static void pair_strips(const float* from, long apart, long rows, long width, float* pairs) {
  strips(filled(width), [&](auto, auto vectors, long n) {
    pair_rows(from + n, apart, rows, width - n, pairs + n * pairs_of(rows), vectors * kLanes);
  });
}

// Neighbours of what is turned, [width, rows], for `few_products`.
static void pair_turned_numbers(const float* from, long rows, long width, float* pairs) {
  for (long n = 0; n < width; ++n)
    for (long k = 0; k < rows; k += 2 * kLanes, pairs += kLanes) {
      float some[2 * kLanes] = {};
      for (long i = 0; i < std::min<long>(2 * kLanes, rows - k); ++i) some[i] = from[(k + i) * width + n];
      store(pairs, neighbours(load(some), load(some + kLanes)));
    }
}

// The same of what is turned, [width, rows]: [pairs_of(width), filled(rows)] numbers in all.
static void pair_turned_strips(const float* from, long rows, long width, float* pairs) {
  strips(filled(rows), [&](auto, auto vectors, long n) {
    float* strip = pairs + n * pairs_of(width);
    for (long m = 0; m < vectors * kLanes; m += kLanes)
      for (long k = 0; k < width; k += 2 * kLanes) {
        Vector square[kLanes];
        for (long i = 0; i < kLanes; ++i) {
          const float* row = from + (n + m + i) * width + k;
          const long there = n + m + i < rows ? width - k : 0;
          square[i] = neighbours(load_there(row, there), load_there(row + kLanes, there - kLanes));
        }
        exchange_all<kLanes / 2>(square);
        for (long i = 0; i < std::min<long>(kLanes, pairs_of(width - k)); ++i)
          store(strip + (k / 2 + i) * vectors * kLanes + m, square[i]);
      }
  });
}

// sums[r][v] += over all k: both products of the pairs x[r * apart + k * step] and weights[k][v].
template <int R, int V>
static inline void multiply_pairs(const float* const* rows, long step, const float* weights, long pairs,
                                  Vector (&sums)[R][V]) {
  Vector own[R][V];  // in registers, whatever becomes of `sums`: GCC would store each sum each time
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) own[r][v] = sums[r][v];
  for (long k = 0; k < pairs; ++k, weights += V * kLanes) {
    Vector wide[V];
    for (int v = 0; v < V; ++v) wide[v] = load(weights + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vector one = all_pairs(rows[r] + k * step);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) own[r][v] = add_products(own[r][v], one, wide[v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sums[r][v] = own[r][v];
}

// `products` of `pair_numbers` with strips of weights; `pairs` of them are summed.
template <class Emit>
static void half_products(const float* x, int count, long pairs, const float* weights, int width, Emit emit) {
  strips(width, [&](auto tall, auto vectors, int n) {
    constexpr int R = tall, V = vectors;
    for (int m = 0; m < count; m += R) {
      const float* rows[R];
      for (int r = 0; r < R; ++r) rows[r] = x + std::min(m + r, count - 1) * filled(pairs);
      Vector sums[R][V]{};
      multiply_pairs<R, V>(rows, 1, weights + n * pairs, pairs, sums);
      for (int r = 0; r < std::min(R, count - m); ++r)
        for (int v = 0; v < V; ++v) emit(m + r, n + v * kLanes, sums[r][v]);
    }
  });
}

// The same with few outputs, the rows of whose weights are those of `pair_turned_numbers`.
template <class Emit>
static void few_products(const float* x, int count, long pairs, const float* weights, int outputs, Emit emit) {
  const long width = filled(pairs);
  for (int m = 0; m < count; ++m, x += width) {
    Vector sums{};
    for (int n = 0; n < outputs; ++n) {
      Vector sum{};
      for (long k = 0; k < width; k += kLanes) sum = add_products(sum, load(x + k), load(weights + n * width + k));
      sums[n] = total(sum);
    }
    emit(m, 0, sums);
  }
}

template <int R, int V>
static inline void half_outer(const float* x, long apart, const float* g, long pairs, float* to, int width) {
  const float* rows[R];
  Vector sums[R][V];
  for (int r = 0; r < R; ++r) {
    rows[r] = x + r;
    for (int v = 0; v < V; ++v) sums[r][v] = load(to + (long)r * width + v * kLanes);
  }
  multiply_pairs<R, V>(rows, apart, g, pairs, sums);
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store(to + (long)r * width + v * kLanes, sums[r][v]);
}

// `outer_products` of `pair_rows`, `inputs` of which are there, `apart` from one to the next, with strips.
static void half_outer_products(const float* x, long apart, const float* g, long pairs, int inputs, float* to,
                                int width) {
  strips(width, [&](auto tall, auto vectors, int n) {
    constexpr int R = tall, V = vectors;
    const auto some = [&](auto rows, int k) {
      half_outer<rows, V>(x + k, apart, g + n * pairs, pairs, to + (long)k * width + n, width);
    };
    int k = 0;
    for (; k + R <= inputs; k += R) some(tall, k);
    for (; k + 4 <= inputs; k += 4) some(std::integral_constant<int, 4>(), k);
    for (; k < inputs; ++k) some(std::integral_constant<int, 1>(), k);
  });
}
