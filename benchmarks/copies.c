/* Counts the bytes of memcpy and memmove by the library that calls them: preloaded into every process of a run.

   Each process has a file of its own in $WEFT_COPIES, mapped and shared, so that what is counted outlives it however it
   ends: where its output goes, which tells one worker from another, then an entry for each place that calls. Only
   whole observations count, one or several: sizes that are a multiple of $WEFT_OBSERVATION bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PLACES 4096
#define TITLE 4096

struct place {
  _Atomic(uintptr_t) caller;
  _Atomic(uint64_t) bytes;
  char library[112];
};

struct counts {
  char title[TITLE];
  struct place places[PLACES];
};

typedef void *copy(void *, const void *, size_t);

static copy *next_memcpy, *next_memmove;
static struct counts *counts;
static size_t observation;

static void *byte_by_byte(void *to, const void *from, size_t n) {
  volatile char *t = to;
  const char *f = from;
  if (t <= f || t >= f + n)
    for (size_t i = 0; i < n; i++) t[i] = f[i];
  else
    while (n--) t[n] = f[n];
  return to;
}

static void count(void *caller, size_t n) {
  uintptr_t key = (uintptr_t)caller;
  for (size_t i = 0, at = key * 0x9E3779B97F4A7C15u >> 52; i < PLACES; i++, at = (at + 1) % PLACES) {
    struct place *place = &counts->places[at];
    uintptr_t found = atomic_load(&place->caller);
    if (!found && atomic_compare_exchange_strong(&place->caller, &found, key)) {
      Dl_info info;
      if (dladdr(caller, &info) && info.dli_fname) {
        const char *name = strrchr(info.dli_fname, '/');
        strncpy(place->library, name ? name + 1 : info.dli_fname, sizeof place->library - 1);
      }
      found = key;
    }
    if (found == key) {
      atomic_fetch_add(&place->bytes, n);
      return;
    }
  }
}

static void *counted(copy *next, void *caller, void *to, const void *from, size_t n) {
  if (counts && n >= observation && n % observation == 0) count(caller, n);
  return next ? next(to, from, n) : byte_by_byte(to, from, n);
}

void *memcpy(void *restrict to, const void *restrict from, size_t n) {
  return counted(next_memcpy, __builtin_return_address(0), to, from, n);
}

void *memmove(void *to, const void *from, size_t n) {
  return counted(next_memmove, __builtin_return_address(0), to, from, n);
}

void *__memcpy_chk(void *to, const void *from, size_t n, size_t room) {
  if (n > room) abort();
  return counted(next_memcpy, __builtin_return_address(0), to, from, n);
}

void *__memmove_chk(void *to, const void *from, size_t n, size_t room) {
  if (n > room) abort();
  return counted(next_memmove, __builtin_return_address(0), to, from, n);
}

__attribute__((constructor)) static void begin(void) {
  next_memcpy = (copy *)dlsym(RTLD_NEXT, "memcpy");
  next_memmove = (copy *)dlsym(RTLD_NEXT, "memmove");
  const char *folder = getenv("WEFT_COPIES"), *bytes = getenv("WEFT_OBSERVATION");
  if (!folder || !bytes || !(observation = strtoul(bytes, NULL, 10))) return;
  char path[512];
  snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
  int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0) return;
  void *made = MAP_FAILED;
  if (ftruncate(file, sizeof(struct counts)) == 0)
    made = mmap(NULL, sizeof(struct counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (made == MAP_FAILED) return;
  struct counts *mine = made;
  if (readlink("/proc/self/fd/1", mine->title, TITLE - 1) < 0) return;
  counts = mine;
}
