// Work cut into parts that the threads of XLA's own pool share, the calling one among them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// The threads of one call. They look for the next piece of work without sleeping: a piece is a fraction of a
// millisecond, and to be woken takes a tenth of one.
//
// A thread takes the next part that nobody has, so the calling thread waits only for parts that another one is in: where
// the pool is busy or waits itself, the caller does everything, and nothing can wait for ever.
class Team {
 public:
  // With `alone` it is the calling thread only: for what is done before another one would have begun.
  explicit Team(ffi::ThreadPool& threads, bool alone = false)
      : size_(alone ? 1 : std::max<int64_t>(1, threads.num_threads())) {
    for (int helpers = size_ - 1; helpers > 0; --helpers)
      threads.Schedule([shared = shared_, caller = std::this_thread::get_id()] {
        // Where the pool's queue is full it runs this here and now, on the thread that would have to end it.
        if (std::this_thread::get_id() != caller) shared->help();
      });
  }
  ~Team() { shared_->over.store(true, std::memory_order_release); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }

  // Calls work(k) once for each k below `parts`, and returns when all have returned.
  void share(int parts, std::function<void(int)> work) {
    if (size_ == 1 || parts == 1 || shared_->begun == kWorks) {
      for (int k = 0; k < parts; ++k) work(k);
      return;
    }
    Work& one = shared_->works[shared_->begun];
    one.work = std::move(work);
    one.parts = parts;
    shared_->begun.fetch_add(1, std::memory_order_release);
    one.take();
    for (int looks = 0; one.finished.load(std::memory_order_acquire) < parts; ++looks) rest(looks);
  }

 private:
  static constexpr int kWorks = 32;  // of one call; more are the caller's alone

  struct Work {
    std::function<void(int)> work;
    int parts = 0;
    std::atomic<int> taken{0}, finished{0};

    void take() noexcept {  // what a thread is in the middle of cannot be given up: others wait for it
      for (int k; (k = taken.fetch_add(1, std::memory_order_relaxed)) < parts;) {
        work(k);
        finished.fetch_add(1, std::memory_order_release);
      }
    }
  };
  struct Shared {
    std::array<Work, kWorks> works;
    std::atomic<int> begun{0};
    std::atomic<bool> over{false};

    void help() {
      for (int next = 0, looks = 0; !over.load(std::memory_order_acquire); ++looks) {
        if (next == begun.load(std::memory_order_acquire)) {
          rest(looks);
          continue;
        }
        works[next++].take();
        looks = 0;
      }
    }
  };

  static void rest(int looks) {
    if (looks > 2000) std::this_thread::yield();
  }

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  int size_;
};

// Memory of one thread for one purpose, which it keeps: `numbers` floats, aligned to a line of the cache.
struct Scratch {
  float* memory = nullptr;
  size_t room = 0;

  float* get(size_t numbers) {
    if (numbers > room) {
      std::free(memory);
      room = (numbers + 15) / 16 * 16;
      memory = static_cast<float*>(std::aligned_alloc(64, room * sizeof(float)));
      if (memory == nullptr) throw std::bad_alloc();
    }
    return memory;
  }
  ~Scratch() { std::free(memory); }
};
