/* Delays every fsync and fdatasync, because most disks are slower than the bench's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

typedef int (*sync_call)(int);

static void wait_a_little(void) {
  const char *text = getenv("SLOW_FSYNC_MS");
  double ms = text ? atof(text) : 0;
  struct timespec rest = {(time_t)(ms / 1000), (long)((ms - (long)(ms / 1000) * 1000) * 1000000)};
  while (nanosleep(&rest, &rest) != 0) {
  }
}

int fsync(int file) {
  static sync_call real;
  if (!real) real = (sync_call)dlsym(RTLD_NEXT, "fsync");
  wait_a_little();
  return real(file);
}

int fdatasync(int file) {
  static sync_call real;
  if (!real) real = (sync_call)dlsym(RTLD_NEXT, "fdatasync");
  wait_a_little();
  return real(file);
}
