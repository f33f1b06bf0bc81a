// Towers of dense layers: what a call is told of them, how their rows are cut into parts, their kernels turned.
#pragma once

#include <vector>

#include "team.h"
#include "vectors.h"

namespace {

constexpr long kRows = 96;        // of a part, at most
constexpr long kAlone = 1 << 20;  // multiplications that are done before another thread would have begun

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

}  // namespace
