// Preloaded into a process, this makes one chosen call of the system fail: of those that write,
// sync, rename or open files below one folder or make folders there, or of large allocations.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

enum Mode { kOnce, kFromThenOn, kKill, kShort };
constexpr int kFiles = 1, kMemory = 2;
constexpr int kMostDescriptors = 4096;
constexpr size_t kLarge = 64 * 1024;

std::atomic<int> watched{0};
std::atomic<long> count{0};
long target = -1;
int mode = kOnce;
char root[4096] = "";
std::atomic<bool> below[kMostDescriptors];

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// Count a call of a kind, and tell whether it is to fail.
bool fails(int kind) {
  if ((watched.load() & kind) == 0) return false;
  const long number = count.fetch_add(1);
  if (mode == kFromThenOn ? number < target : number != target) return false;
  if (target < 0) return false;
  if (mode == kKill) _exit(137);
  return true;
}

bool inside(const char* path) {
  return root[0] != 0 && path != nullptr && strncmp(path, root, strlen(root)) == 0;
}

bool tracked(int descriptor) {
  return descriptor >= 0 && descriptor < kMostDescriptors && below[descriptor].load();
}

int opened(int descriptor, bool is_inside) {
  if (descriptor >= 0 && descriptor < kMostDescriptors) below[descriptor] = is_inside;
  return descriptor;
}

int fail(int number) {
  errno = number;
  return -1;
}

template <typename Call>
ssize_t written(int descriptor, size_t size, Call call) {
  if (tracked(descriptor) && fails(kFiles)) {
    if (mode == kShort && size > 1) return call(size / 2);
    if (mode != kShort) return fail(ENOSPC);
  }
  return call(size);
}

}  // namespace

extern "C" {

void fault_arm(int kinds, long number, int how, const char* folder) {
  strncpy(root, folder, sizeof(root) - 1);
  target = number;
  mode = how;
  count = 0;
  watched = kinds;
}

long fault_count() {
  watched = 0;
  return count.load();
}

ssize_t write(int descriptor, const void* data, size_t size) {
  static auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  return written(descriptor, size, [&](size_t n) { return real(descriptor, data, n); });
}

ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  static auto real = next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return written(descriptor, size, [&](size_t n) { return real(descriptor, data, n, offset); });
}

ssize_t pwrite64(int descriptor, const void* data, size_t size, off64_t offset) {
  static auto real = next<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  return written(descriptor, size, [&](size_t n) { return real(descriptor, data, n, offset); });
}

#define SYNC(name)                                              \
  int name(int descriptor) {                                    \
    static auto real = next<int (*)(int)>(#name);               \
    if (tracked(descriptor) && fails(kFiles)) return fail(EIO); \
    return real(descriptor);                                    \
  }
SYNC(fsync)
SYNC(fdatasync)

int ftruncate64(int descriptor, off64_t size) {
  static auto real = next<int (*)(int, off64_t)>("ftruncate64");
  if (tracked(descriptor) && fails(kFiles)) return fail(EIO);
  return real(descriptor, size);
}

int rename(const char* from, const char* to) {
  static auto real = next<int (*)(const char*, const char*)>("rename");
  if (inside(to) && fails(kFiles)) return fail(EIO);
  return real(from, to);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  static auto real = next<int (*)(int, const char*, int, const char*)>("renameat");
  if (inside(to) && fails(kFiles)) return fail(EIO);
  return real(from_folder, from, to_folder, to);
}

int mkdir(const char* path, mode_t permissions) {
  static auto real = next<int (*)(const char*, mode_t)>("mkdir");
  if (inside(path) && fails(kFiles)) return fail(ENOSPC);
  return real(path, permissions);
}

#define OPEN(name)                                                  \
  int name(const char* path, int flags, ...) {                      \
    static auto real = next<int (*)(const char*, int, ...)>(#name); \
    va_list more;                                                   \
    va_start(more, flags);                                          \
    const mode_t permissions = va_arg(more, mode_t);                \
    va_end(more);                                                   \
    if (inside(path) && fails(kFiles)) return fail(EMFILE);         \
    return opened(real(path, flags, permissions), inside(path));    \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                     \
  int name(int folder, const char* path, int flags, ...) {               \
    static auto real = next<int (*)(int, const char*, int, ...)>(#name); \
    va_list more;                                                        \
    va_start(more, flags);                                               \
    const mode_t permissions = va_arg(more, mode_t);                     \
    va_end(more);                                                        \
    if (inside(path) && fails(kFiles)) return fail(EMFILE);              \
    return opened(real(folder, path, flags, permissions), inside(path)); \
  }
OPENAT(openat)
OPENAT(openat64)

void* malloc(size_t size) {
  if (size >= kLarge && fails(kMemory)) return errno = ENOMEM, nullptr;
  return __libc_malloc(size);
}

void* calloc(size_t number, size_t size) {
  if (number * size >= kLarge && fails(kMemory)) return errno = ENOMEM, nullptr;
  return __libc_calloc(number, size);
}

void* realloc(void* old, size_t size) {
  if (size >= kLarge && fails(kMemory)) return errno = ENOMEM, nullptr;
  return __libc_realloc(old, size);
}

int posix_memalign(void** result, size_t alignment, size_t size) {
  if (size >= kLarge && fails(kMemory)) return ENOMEM;
  *result = __libc_memalign(alignment, size);
  return *result == nullptr ? ENOMEM : 0;
}

void* aligned_alloc(size_t alignment, size_t size) {
  if (size >= kLarge && fails(kMemory)) return errno = ENOMEM, nullptr;
  return __libc_memalign(alignment, size);
}

}  // extern "C"
