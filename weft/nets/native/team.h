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
// Each thread has a stretch of the parts, the same from call to call where it can be, so that what it has written is
// still in its cache when it reads it; then it takes those of the others that nobody has. So the calling thread waits only
// for parts that another one is in: where the pool is busy or waits itself, the caller does everything, and nothing can
// wait for ever.
class Team {
 public:
  // With `alone` it is the calling thread only: for what is done before another one would have begun.
  explicit Team(ffi::ThreadPool& threads, bool alone = false)
      : size_(alone ? 1 : std::max<int64_t>(1, threads.num_threads())) {
    if (size_ == 1) return;
    shared_->size = size_;
    shared_->owned = std::make_unique<std::atomic<bool>[]>(size_);
    mine_ = shared_->claim();
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
    one.stretches = size_;
    one.taken = std::make_unique<std::atomic<int>[]>(size_);
    for (int k = 0; k < size_; ++k) one.taken[k] = one.begin(k);
    shared_->begun.fetch_add(1, std::memory_order_release);
    one.take(mine_);
    for (int looks = 0; one.finished.load(std::memory_order_acquire) < parts; ++looks) rest(looks);
  }

 private:
  static constexpr int kWorks = 32;  // of one call; more are the caller's alone

  struct Work {
    std::function<void(int)> work;
    int parts = 0, stretches = 0;
    std::unique_ptr<std::atomic<int>[]> taken;  // of each stretch
    std::atomic<int> finished{0};

    int begin(int stretch) const { return (long)parts * stretch / stretches; }

    void take(int mine) noexcept {  // what a thread is in the middle of cannot be given up: others wait for it
      for (int k = 0; k < stretches; ++k) {
        const int stretch = (mine + k) % stretches, end = begin(stretch + 1);
        for (int part; (part = taken[stretch].fetch_add(1, std::memory_order_relaxed)) < end;) {
          work(part);
          finished.fetch_add(1, std::memory_order_release);
        }
      }
    }
  };
  struct Shared {
    std::array<Work, kWorks> works;
    std::atomic<int> begun{0};
    std::atomic<bool> over{false};
    int size = 1;
    std::unique_ptr<std::atomic<bool>[]> owned;  // of each stretch: whether a thread has it

    // A stretch for this thread: the one that it had in other calls, where no other thread has it in this one.
    int claim() {
      static std::atomic<int> threads{0};
      static thread_local const int usual = threads.fetch_add(1, std::memory_order_relaxed);
      for (int k = 0; k < size; ++k)
        if (const int stretch = (usual + k) % size; !owned[stretch].exchange(true)) return stretch;
      return 0;
    }

    void help() {
      const int mine = claim();
      for (int next = 0, looks = 0; !over.load(std::memory_order_acquire); ++looks) {
        if (next == begun.load(std::memory_order_acquire)) {
          rest(looks);
          continue;
        }
        works[next++].take(mine);
        looks = 0;
      }
    }
  };

  static void rest(int looks) {
    if (looks > 2000) std::this_thread::yield();
  }

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  int size_, mine_ = 0;
};

// Memory of one thread for one purpose, which it keeps: `numbers` floats, aligned to a line of the cache.
class Scratch {
 public:
  float* get(size_t numbers) {
    if (numbers > room_) {
      memory_.reset();
      room_ = 0;
      const size_t room = (numbers + 15) / 16 * 16;
      memory_.reset(static_cast<float*>(std::aligned_alloc(64, room * sizeof(float))));
      if (!memory_) throw std::bad_alloc();
      room_ = room;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
  size_t room_ = 0;
};
