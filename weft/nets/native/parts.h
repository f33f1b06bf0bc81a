// Work cut into parts that the threads of XLA's own pool share, the calling one among them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// Calls work(k) once for each k below `parts`, and returns when all have returned.
//
// A thread takes the next part that nobody has, so the calling thread waits only for parts that another one is in: where
// the pool is busy or waits itself, the caller does everything, and nothing can wait for ever.
static void in_parts(const ffi::ThreadPool& threads, int parts, std::function<void(int)> work) {
  struct Shared {
    std::function<void(int)> work;
    int parts;
    std::atomic<int> taken{0};
    int finished = 0;
    std::mutex mutex;
    std::condition_variable all;

    void take() {
      for (int k; (k = taken.fetch_add(1)) < parts;) {
        work(k);
        std::lock_guard<std::mutex> lock(mutex);
        if (++finished == parts) all.notify_all();
      }
    }
  };
  auto shared = std::make_shared<Shared>();
  shared->work = std::move(work);
  shared->parts = parts;
  ffi::ThreadPool pool = threads;
  for (int64_t helpers = std::min<int64_t>(pool.num_threads(), parts) - 1; helpers > 0; --helpers)
    pool.Schedule([shared] { shared->take(); });
  shared->take();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->all.wait(lock, [&] { return shared->finished == parts; });
}

// Memory of one thread for one purpose, which it keeps: `numbers` floats, aligned to a line of the cache.
struct Scratch {
  float* memory = nullptr;
  size_t room = 0;

  float* get(size_t numbers) {
    if (numbers > room) {
      std::free(memory);
      room = (numbers + 15) / 16 * 16;
      memory = static_cast<float*>(std::aligned_alloc(64, room * sizeof(float)));
    }
    return memory;
  }
  ~Scratch() { std::free(memory); }
};
