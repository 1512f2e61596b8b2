/*
 * Records what a process does to the files below one folder, in the order in which it was done, and makes calls fail
 * on demand. Loaded by LD_PRELOAD.
 *
 * RECORD_ROOT  the folder, an absolute path
 * RECORD_LOG   where the record is appended to
 * RECORD_MARK  a path; what is written to it becomes a mark in the record, and `!arm ...` or `!disarm` a command
 *
 * Nothing is really synced: what a sync would have kept is for the replay to say, and the page cache outlives the
 * process. The memory of a log's index (-shm) is not recorded: SQLite maps it, and no power cut spares it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_FILES 65536
#define MARK 1

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t handles[MOST_FILES];
static uint32_t last_handle = MARK;
static int record = -1;
static char root[4096];
static char mark[4096];

/* The fault that is armed: from the call `at` of a kind on, counted from the arming. */
static struct {
  char kinds[16];
  long at, seen, fired;
  int lasting, error, is_short;
  char part[256];
} fault;

static int (*real_open)(const char *, int, ...);
static int (*real_close)(int);
static long (*real_syscall)(long, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_mkdir)(const char *, mode_t);
static int (*real_rmdir)(const char *);
static int (*real_remove)(const char *);
static int (*real_unlinkat)(int, const char *, int);
static int (*real_link)(const char *, const char *);
static int (*real_ioctl)(int, unsigned long, ...);

static void find_calls(void) {
  *(void **)&real_open = dlsym(RTLD_NEXT, "open64");
  *(void **)&real_close = dlsym(RTLD_NEXT, "close");
  *(void **)&real_syscall = dlsym(RTLD_NEXT, "syscall");
  *(void **)&real_write = dlsym(RTLD_NEXT, "write");
  *(void **)&real_writev = dlsym(RTLD_NEXT, "writev");
  *(void **)&real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
  *(void **)&real_pwritev = dlsym(RTLD_NEXT, "pwritev64");
  *(void **)&real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
  *(void **)&real_fsync = dlsym(RTLD_NEXT, "fsync");
  *(void **)&real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
  *(void **)&real_rename = dlsym(RTLD_NEXT, "rename");
  *(void **)&real_unlink = dlsym(RTLD_NEXT, "unlink");
  *(void **)&real_mkdir = dlsym(RTLD_NEXT, "mkdir");
  *(void **)&real_rmdir = dlsym(RTLD_NEXT, "rmdir");
  *(void **)&real_remove = dlsym(RTLD_NEXT, "remove");
  *(void **)&real_unlinkat = dlsym(RTLD_NEXT, "unlinkat");
  *(void **)&real_link = dlsym(RTLD_NEXT, "link");
  *(void **)&real_ioctl = dlsym(RTLD_NEXT, "ioctl");
}

static void take(char *to, const char *name) {
  const char *value = getenv(name);
  if (value) snprintf(to, 4096, "%s", value);
  unsetenv(name);
}

__attribute__((constructor)) static void begin(void) {
  char log[4096] = "";
  find_calls();
  /* `env` and the like come before node. */
  if (strcmp(program_invocation_short_name, "node") != 0) return;
  take(root, "RECORD_ROOT");
  take(mark, "RECORD_MARK");
  take(log, "RECORD_LOG");
  unsetenv("LD_PRELOAD");
  int file = real_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  /* Out of the way of the numbers that a process expects for its first files. */
  record = fcntl(file, F_DUPFD_CLOEXEC, 1000);
  if (file >= 0) real_close(file);
  if (record < 0) {
    fprintf(stderr, "the recorder cannot write to %s\n", log);
    abort();
  }
}

static int is_kept(const char *path) {
  size_t length = strlen(root), all = strlen(path);
  if (record < 0 || length == 0 || strncmp(path, root, length) != 0) return 0;
  if (path[length] != '/' && path[length] != 0) return 0;
  return all < 4 || strcmp(path + all - 4, "-shm") != 0;
}

static uint32_t handle_of(int file) {
  return file >= 0 && file < MOST_FILES ? handles[file] : 0;
}

static void put(char kind, uint32_t handle, uint64_t at, const void *data, uint32_t length) {
  struct __attribute__((packed)) {
    char kind;
    uint32_t handle;
    uint64_t at;
    uint32_t length;
  } head = {kind, handle, at, length};
  struct iovec parts[2] = {{&head, sizeof head}, {(void *)data, length}};
  int error = errno;
  if (real_writev(record, parts, 2) != (ssize_t)(sizeof head + length)) {
    fprintf(stderr, "the record is incomplete\n");
    abort();
  }
  errno = error;
}

/* 0: the call may pass; 1: it fails, with errno set; 2: it writes half. */
static int fails(char kind, const char *path) {
  if (fault.at == 0 || !strchr(fault.kinds, kind)) return 0;
  if (path && fault.part[0] && !strstr(path, fault.part)) return 0;
  fault.seen += 1;
  if (fault.seen < fault.at) return 0;
  if (fault.is_short && kind == 'w' && fault.seen == fault.at) return fault.fired = 2;
  if (!fault.lasting && fault.seen > fault.at + fault.is_short) return 0;
  fault.fired = 1;
  errno = fault.error;
  return 1;
}

static char paths[MOST_FILES][256];

static const char *path_of(int file) { return paths[file]; }

/* `!arm KINDS AT LASTING ERRNO SHORT PART`; PART of a path, `-` for all. `!disarm` fails when the fault has struck. */
static ssize_t command(const char *text, size_t length) {
  char line[512];
  snprintf(line, sizeof line, "%.*s", (int)length, text);
  long fired = fault.fired;
  memset(&fault, 0, sizeof fault);
  if (strncmp(line, "!arm ", 5) != 0) {
    errno = EBUSY;
    return fired ? -1 : (ssize_t)length;
  }
  sscanf(line, "!arm %15s %ld %d %d %d %255s", fault.kinds, &fault.at, &fault.lasting, &fault.error,
         &fault.is_short, fault.part);
  if (strcmp(fault.part, "-") == 0) fault.part[0] = 0;
  return (ssize_t)length;
}

static ssize_t note(const void *data, size_t length) {
  if (length > 0 && *(const char *)data == '!') return command(data, length);
  put('m', 0, 0, data, (uint32_t)length);
  return (ssize_t)length;
}

static int opened(const char *path, int flags, mode_t mode) {
  int is_mark = record >= 0 && mark[0] && strcmp(path, mark) == 0;
  /* What has no name from the beginning is gone after a power cut in any case. */
  if ((flags & O_TMPFILE) == O_TMPFILE || (!is_mark && !is_kept(path))) return real_open(path, flags, mode);
  pthread_mutex_lock(&lock);
  int file = -1;
  if (is_mark || !(flags & O_CREAT) || !fails('o', path)) file = real_open(path, flags, mode);
  if (file >= MOST_FILES) abort();
  if (file >= 0) {
    handles[file] = is_mark ? MARK : ++last_handle;
    snprintf(paths[file], sizeof paths[file], "%s", path + (is_mark ? 0 : strlen(root)));
    if (!is_mark) put('o', handles[file], (uint64_t)flags, path, (uint32_t)strlen(path));
  }
  pthread_mutex_unlock(&lock);
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
  if (!handle_of(file)) return;
  pthread_mutex_lock(&lock);
  handles[file] = 0;
  pthread_mutex_unlock(&lock);
}

int close(int file) {
  forget(file);
  return real_close(file);
}

/* What the kernel copies by itself is not seen: it is refused, and whoever wants it copies by writing. */
static int refused(int error) {
  errno = error;
  return -1;
}

ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *to_at, size_t length, unsigned flags) {
  if (handle_of(to)) return refused(ENOSYS);
  return real_syscall(SYS_copy_file_range, from, at, to, to_at, length, flags);
}

ssize_t sendfile(int to, int from, off_t *at, size_t length) {
  if (handle_of(to)) return refused(EINVAL);
  return real_syscall(SYS_sendfile, to, from, at, length);
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t length) { return sendfile(to, from, at, length); }

/* libuv closes so, and does nothing else so that the record is about. */
long syscall(long number, ...) {
  va_list more;
  va_start(more, number);
  long given[6];
  for (int n = 0; n < 6; n++) given[n] = va_arg(more, long);
  va_end(more);
  if (number == SYS_close) forget((int)given[0]);
  if (number == SYS_copy_file_range && handle_of((int)given[2])) return refused(ENOSYS);
  return real_syscall(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

/* At -1: where the file stands. */
static ssize_t written(int file, const char *data, size_t length, off_t at) {
  if (handles[file] == MARK) {
    pthread_mutex_lock(&lock);
    ssize_t noted = note(data, length);
    pthread_mutex_unlock(&lock);
    return noted;
  }
  pthread_mutex_lock(&lock);
  int fate = fails('w', path_of(file));
  if (fate == 2) length = length / 2;
  ssize_t done = -1;
  if (fate != 1) done = at < 0 ? real_write(file, data, length) : real_pwrite(file, data, length, at);
  if (done > 0) {
    off_t from = at < 0 ? lseek(file, 0, SEEK_CUR) - done : at;
    put('w', handles[file], (uint64_t)from, data, (uint32_t)done);
  }
  pthread_mutex_unlock(&lock);
  return done;
}

ssize_t write(int file, const void *data, size_t length) {
  return handle_of(file) ? written(file, data, length, -1) : real_write(file, data, length);
}

static ssize_t pwritten(int file, const void *data, size_t length, off_t at) {
  return handle_of(file) ? written(file, data, length, at) : real_pwrite(file, data, length, at);
}

ssize_t pwrite(int file, const void *data, size_t length, off_t at) { return pwritten(file, data, length, at); }
ssize_t pwrite64(int file, const void *data, size_t length, off64_t at) { return pwritten(file, data, length, at); }

static ssize_t vector_written(int file, const struct iovec *parts, int count, off_t at) {
  size_t length = 0;
  for (int n = 0; n < count; n++) length += parts[n].iov_len;
  char *all = malloc(length ? length : 1), *end = all;
  for (int n = 0; n < count; n++) {
    memcpy(end, parts[n].iov_base, parts[n].iov_len);
    end += parts[n].iov_len;
  }
  ssize_t done = written(file, all, length, at);
  int error = errno;
  free(all);
  errno = error;
  return done;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
  return handle_of(file) ? vector_written(file, parts, count, -1) : real_writev(file, parts, count);
}

static ssize_t pwritten_vector(int file, const struct iovec *parts, int count, off_t at) {
  return handle_of(file) ? vector_written(file, parts, count, at) : real_pwritev(file, parts, count, at);
}

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) {
  return pwritten_vector(file, parts, count, at);
}
ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t at) {
  return pwritten_vector(file, parts, count, at);
}

static int truncated(int file, off_t length) {
  if (!handle_of(file)) return real_ftruncate(file, length);
  pthread_mutex_lock(&lock);
  int result = fails('t', path_of(file)) ? -1 : real_ftruncate(file, length);
  if (result == 0) put('t', handles[file], (uint64_t)length, "", 0);
  pthread_mutex_unlock(&lock);
  return result;
}

int ftruncate(int file, off_t length) { return truncated(file, length); }
int ftruncate64(int file, off64_t length) { return truncated(file, length); }

static int synced(int file) {
  pthread_mutex_lock(&lock);
  int result = fails('s', path_of(file)) ? -1 : 0;
  put(result == 0 ? 's' : 'f', handles[file], 0, "", 0);
  pthread_mutex_unlock(&lock);
  return result;
}

int fsync(int file) { return handle_of(file) ? synced(file) : real_fsync(file); }
int fdatasync(int file) { return handle_of(file) ? synced(file) : real_fdatasync(file); }

/* One or two paths, with a zero between them. */
static void put_paths(char kind, const char *path, const char *other) {
  char both[8192];
  int length = snprintf(both, sizeof both, "%s%c%s", path, 0, other ? other : "");
  put(kind, 0, 0, both, (uint32_t)length);
}

#define NAMED(kind, path, other, call)                 \
  do {                                                 \
    if (!is_kept(path)) return call;                   \
    pthread_mutex_lock(&lock);                         \
    int result = fails('n', path) ? -1 : call;         \
    if (result == 0) put_paths(kind, path, other);     \
    pthread_mutex_unlock(&lock);                       \
    return result;                                     \
  } while (0)

int rename(const char *from, const char *to) { NAMED('r', from, to, real_rename(from, to)); }
int link(const char *from, const char *to) { NAMED('l', from, to, real_link(from, to)); }
int unlink(const char *path) { NAMED('u', path, NULL, real_unlink(path)); }
int mkdir(const char *path, mode_t mode) { NAMED('d', path, NULL, real_mkdir(path, mode)); }
int rmdir(const char *path) { NAMED('u', path, NULL, real_rmdir(path)); }
/* Node 24 removes files by std::filesystem, which calls these two. */
int remove(const char *path) { NAMED('u', path, NULL, real_remove(path)); }

int unlinkat(int folder, const char *name, int flags) {
  char link[64], path[8192];
  if (name[0] == '/') {
    snprintf(path, sizeof path, "%s", name);
  } else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = folder < 0 ? -1 : readlink(link, path, 4096);
    if (length < 0) return real_unlinkat(folder, name, flags);
    snprintf(path + length, sizeof path - length, "/%s", name);
  }
  NAMED('u', path, NULL, real_unlinkat(folder, name, flags));
}

int ioctl(int file, unsigned long request, ...) {
  va_list more;
  va_start(more, request);
  void *argument = va_arg(more, void *);
  va_end(more);
  if (request == FICLONE && handle_of(file)) return refused(EOPNOTSUPP);
  return real_ioctl(file, request, argument);
}
