/*
 * A machine that fails: a disk that returns wrong bytes or errors, that becomes read-only, vanishes, or does not sync, no
 * more open files, and a clock that was set. It concerns the files below one folder, and the process's time. Loaded by
 * LD_PRELOAD.
 *
 * BAD_ROOT     the folder, an absolute path
 * BAD_CONTROL  a file with a struct control, which the test writes while the process runs
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MOST_FILES 65536

/* Of 4 bytes each; bad-machine.ts has the same order. */
struct control {
  int32_t wrong_reads; /* one of so many reads returns a wrong byte; 0: none */
  int32_t failed_reads; /* one of so many reads fails with EIO */
  int32_t write_error; /* the error of each change of a file or a name, and of each file that is opened for it */
  int32_t sync_error;
  int32_t open_error; /* of each open */
  int32_t read_error; /* of each read */
  int32_t clock_days; /* added to the time */
  int32_t sync_ms; /* how long a sync takes longer, in ms */
  uint32_t wrong, failed; /* what was done so far */
};

static volatile struct control none, *control = &none;
static char root[4096];
static unsigned char is_ours[MOST_FILES];
static uint32_t state = 1;

static int (*real_open)(const char *, int, ...);
static int (*real_close)(int);
static long (*real_syscall)(long, ...);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_preadv)(int, const struct iovec *, int, off_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static int (*real_ftruncate)(int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_mkdir)(const char *, mode_t);
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_gettimeofday)(struct timeval *, void *);
static time_t (*real_time)(time_t *);

static void find(void *call, const char *name) { *(void **)call = dlsym(RTLD_NEXT, name); }

static void find_calls(void) {
  find(&real_open, "open64");
  find(&real_close, "close");
  find(&real_syscall, "syscall");
  find(&real_read, "read");
  find(&real_pread, "pread64");
  find(&real_preadv, "preadv64");
  find(&real_pwrite, "pwrite64");
  find(&real_write, "write");
  find(&real_pwritev, "pwritev64");
  find(&real_writev, "writev");
  find(&real_ftruncate, "ftruncate64");
  find(&real_fsync, "fsync");
  find(&real_fdatasync, "fdatasync");
  find(&real_rename, "rename");
  find(&real_unlink, "unlink");
  find(&real_mkdir, "mkdir");
  find(&real_clock_gettime, "clock_gettime");
  find(&real_gettimeofday, "gettimeofday");
  find(&real_time, "time");
}

__attribute__((constructor)) static void begin(void) {
  find_calls();
  const char *folder = getenv("BAD_ROOT"), *path = getenv("BAD_CONTROL");
  /* `env` and the like come before node. */
  if (!folder || !path || strcmp(program_invocation_short_name, "node") != 0) return;
  snprintf(root, sizeof root, "%s", folder);
  int file = real_open(path, O_RDWR | O_CLOEXEC);
  void *mapped = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || mapped == MAP_FAILED) abort();
  real_close(file);
  control = mapped;
  unsetenv("LD_PRELOAD");
}

static int is_below(const char *path) {
  size_t length = strlen(root);
  return length > 0 && path && strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int ours(int file) { return file >= 0 && file < MOST_FILES && is_ours[file]; }

/* Threads may get the same number; a disk would not mind. */
static uint32_t random_below(uint32_t end) {
  state = state * 1664525u + 1013904223u;
  return (uint32_t)(((uint64_t)state * end) >> 32);
}

static int fails(int error) {
  if (error == 0) return 0;
  errno = error;
  return 1;
}

static int opened(const char *path, int flags, mode_t mode) {
  if (!is_below(path)) return real_open(path, flags, mode);
  int is_change = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0;
  if (fails(control->open_error) || (is_change && fails(control->write_error))) return -1;
  int file = real_open(path, flags, mode);
  if (file >= 0 && file < MOST_FILES) is_ours[file] = 1;
  return file;
}

static mode_t mode_of(int flags, va_list more) {
  return flags & (O_CREAT | __O_TMPFILE) ? (mode_t)va_arg(more, int) : 0;
}

int open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = mode_of(flags, more);
  va_end(more);
  return opened(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = mode_of(flags, more);
  va_end(more);
  return opened(path, flags, mode);
}

static void forget(int file) {
  if (file >= 0 && file < MOST_FILES) is_ours[file] = 0;
}

int close(int file) {
  forget(file);
  return real_close(file);
}

/* libuv closes so. */
long syscall(long number, ...) {
  va_list more;
  va_start(more, number);
  long given[6];
  for (int n = 0; n < 6; n++) given[n] = va_arg(more, long);
  va_end(more);
  if (number == SYS_close) forget((int)given[0]);
  return real_syscall(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

static int refuses_reads(void) {
  if (fails(control->read_error)) return 1;
  if (control->failed_reads == 0 || random_below((uint32_t)control->failed_reads) != 0) return 0;
  control->failed += 1;
  return fails(EIO);
}

static ssize_t lied(char *data, ssize_t length) {
  if (length <= 0 || control->wrong_reads == 0 || random_below((uint32_t)control->wrong_reads) != 0) return length;
  data[random_below((uint32_t)length)] ^= (char)(1u << random_below(8));
  control->wrong += 1;
  return length;
}

ssize_t read(int file, void *data, size_t length) {
  if (!ours(file)) return real_read(file, data, length);
  return refuses_reads() ? -1 : lied(data, real_read(file, data, length));
}

static ssize_t read_at(int file, void *data, size_t length, off_t at) {
  if (!ours(file)) return real_pread(file, data, length, at);
  return refuses_reads() ? -1 : lied(data, real_pread(file, data, length, at));
}

ssize_t pread(int file, void *data, size_t length, off_t at) { return read_at(file, data, length, at); }
ssize_t pread64(int file, void *data, size_t length, off64_t at) { return read_at(file, data, length, at); }

static ssize_t read_parts(int file, const struct iovec *parts, int count, off_t at) {
  if (!ours(file)) return real_preadv(file, parts, count, at);
  return refuses_reads() ? -1 : real_preadv(file, parts, count, at);
}

ssize_t preadv(int file, const struct iovec *parts, int count, off_t at) { return read_parts(file, parts, count, at); }
ssize_t preadv64(int file, const struct iovec *parts, int count, off64_t at) { return read_parts(file, parts, count, at); }

#define CHANGE(file, call) return ours(file) && fails(control->write_error) ? -1 : (call)

ssize_t write(int file, const void *data, size_t length) { CHANGE(file, real_write(file, data, length)); }
ssize_t pwrite(int file, const void *data, size_t length, off_t at) { CHANGE(file, real_pwrite(file, data, length, at)); }
ssize_t pwrite64(int file, const void *data, size_t length, off64_t at) { CHANGE(file, real_pwrite(file, data, length, at)); }
ssize_t writev(int file, const struct iovec *parts, int count) { CHANGE(file, real_writev(file, parts, count)); }
ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) { CHANGE(file, real_pwritev(file, parts, count, at)); }
ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t at) { CHANGE(file, real_pwritev(file, parts, count, at)); }
int ftruncate(int file, off_t length) { CHANGE(file, real_ftruncate(file, length)); }
int ftruncate64(int file, off64_t length) { CHANGE(file, real_ftruncate(file, length)); }

static int refuses_sync(int file) {
  if (!ours(file)) return 0;
  usleep(control->sync_ms * 1000);
  return fails(control->sync_error);
}

int fsync(int file) { return refuses_sync(file) ? -1 : real_fsync(file); }
int fdatasync(int file) { return refuses_sync(file) ? -1 : real_fdatasync(file); }

#define NAMED(path, call) return is_below(path) && fails(control->write_error) ? -1 : (call)

int rename(const char *from, const char *to) { NAMED(from, real_rename(from, to)); }
int unlink(const char *path) { NAMED(path, real_unlink(path)); }
int mkdir(const char *path, mode_t mode) { NAMED(path, real_mkdir(path, mode)); }

static time_t shift(void) { return (time_t)control->clock_days * 86400; }

int clock_gettime(clockid_t clock, struct timespec *at) {
  int result = real_clock_gettime(clock, at);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += shift();
  return result;
}

int gettimeofday(struct timeval *at, void *zone) {
  int result = real_gettimeofday(at, zone);
  if (result == 0) at->tv_sec += shift();
  return result;
}

time_t time(time_t *at) {
  time_t now = real_time(NULL) + shift();
  if (at) *at = now;
  return now;
}
