/*
 * Sends prepared HTTP requests, and prints what came back as one line of JSON. A client in JavaScript takes as much of the
 * processor as the server, and then measures itself.
 *
 *   load-client HOST PORT CONNECTIONS FILE
 *
 * FILE holds each request as its length (four bytes, in this machine's order) and its bytes. Each connection sends the next
 * request after an answer. Answers have a Content-Length or are chunked; an answer to HEAD is not understood.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_BYTES = 16384, READ_BYTES = 1 << 20, EVENTS = 256, STATUSES = 600 };

/* What of an answer comes next. */
enum part { HEAD, CONTENT, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER, DONE };

struct connection {
  int socket;
  const char *unsent;
  size_t unsent_bytes;
  /* Whether it waits until the socket takes more. */
  int is_waiting;
  enum part part;
  char head[HEAD_BYTES];
  size_t head_bytes;
  int status;
  /* Bytes of the content or of the chunk that are still to come. */
  unsigned long long left;
  /* Bytes of the line that is being read: a chunk's size, or a trailer. */
  size_t line_bytes;
  double sent_at;
};

static const char *next_request, *requests_end;
static int epoll;
static long statuses[STATUSES];
static unsigned long long received;
static double *latencies;
static size_t answers;

static void fail(const char *what) {
  fprintf(stderr, "load-client: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
  exit(1);
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Returns how many requests the file holds. */
static size_t open_requests(const char *path) {
  int file = open(path, O_RDONLY);
  struct stat facts;
  if (file < 0 || fstat(file, &facts) != 0) fail(path);
  next_request = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
  if (next_request == MAP_FAILED) fail(path);
  requests_end = next_request + facts.st_size;
  size_t count = 0;
  uint32_t length;
  for (const char *at = next_request; at < requests_end; at += sizeof length + length) {
    memcpy(&length, at, sizeof length);
    count++;
  }
  return count;
}

static void watch(struct connection *c, int operation, int is_sending) {
  struct epoll_event event = {.events = EPOLLIN | (is_sending ? EPOLLOUT : 0), .data.ptr = c};
  if (epoll_ctl(epoll, operation, c->socket, &event) != 0) fail("epoll_ctl");
}

/* Sends as much as the socket takes, and watches for more room if that is not all. */
static void send_rest(struct connection *c) {
  while (c->unsent_bytes > 0) {
    ssize_t sent = send(c->socket, c->unsent, c->unsent_bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) fail("send");
    if (sent < 0) break;
    c->unsent += sent;
    c->unsent_bytes -= (size_t)sent;
  }
  int is_waiting = c->unsent_bytes > 0;
  if (is_waiting != c->is_waiting) watch(c, EPOLL_CTL_MOD, is_waiting);
  c->is_waiting = is_waiting;
}

/* Returns 0 when all requests have been sent. */
static int send_next(struct connection *c) {
  if (next_request >= requests_end) return 0;
  uint32_t length;
  memcpy(&length, next_request, sizeof length);
  c->unsent = next_request + sizeof length;
  c->unsent_bytes = length;
  next_request = c->unsent + length;
  c->part = HEAD;
  c->head_bytes = 0;
  c->sent_at = seconds_now();
  send_rest(c);
  return 1;
}

static void read_head(struct connection *c) {
  c->status = atoi(c->head + strlen("HTTP/1.1 "));
  const char *length = strcasestr(c->head, "\r\ncontent-length:");
  if (strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL) {
    c->part = CHUNK_SIZE;
    c->left = 0;
    c->line_bytes = 0;
    return;
  }
  c->left = length == NULL ? 0 : strtoull(length + strlen("\r\ncontent-length:"), NULL, 10);
  c->part = c->left > 0 ? CONTENT : DONE;
}

/* Takes bytes of the head. Returns how many of them belong to it. */
static size_t take_head(struct connection *c, const char *bytes, size_t count) {
  size_t before = c->head_bytes;
  size_t room = HEAD_BYTES - 1 - before;
  size_t taken = count < room ? count : room;
  memcpy(c->head + before, bytes, taken);
  c->head_bytes += taken;
  c->head[c->head_bytes] = 0;
  char *end = strstr(c->head + (before > 3 ? before - 3 : 0), "\r\n\r\n");
  if (end == NULL && c->head_bytes == HEAD_BYTES - 1) fail("the head of an answer is too long");
  if (end == NULL) return taken;
  end[2] = 0;
  read_head(c);
  return (size_t)(end + 4 - c->head) - before;
}

static int digit(char byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  if ((byte | 32) >= 'a' && (byte | 32) <= 'f') return (byte | 32) - 'a' + 10;
  return -1;
}

/* Takes a byte of a line between chunks. */
static void take_line_byte(struct connection *c, char byte) {
  if (byte == '\r') return;
  if (byte != '\n') {
    if (c->part == CHUNK_SIZE && digit(byte) >= 0) c->left = c->left * 16 + (unsigned)digit(byte);
    c->line_bytes++;
    return;
  }
  if (c->part == CHUNK_SIZE) c->part = c->left > 0 ? CHUNK : TRAILER;
  else if (c->part == CHUNK_END) c->part = CHUNK_SIZE;
  else if (c->line_bytes == 0) c->part = DONE;
  c->line_bytes = 0;
}

/* Returns whether the answer is complete. */
static int take(struct connection *c, const char *bytes, size_t count) {
  while (count > 0 && c->part != DONE) {
    size_t taken = 1;
    if (c->part == HEAD) {
      taken = take_head(c, bytes, count);
    } else if (c->part == CONTENT || c->part == CHUNK) {
      taken = count < c->left ? count : (size_t)c->left;
      c->left -= taken;
      if (c->left == 0) c->part = c->part == CONTENT ? DONE : CHUNK_END;
    } else {
      take_line_byte(c, *bytes);
    }
    bytes += taken;
    count -= taken;
  }
  return c->part == DONE;
}

static void count_answer(const struct connection *c) {
  latencies[answers++] = seconds_now() - c->sent_at;
  statuses[c->status > 0 && c->status < STATUSES ? c->status : 0]++;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void print_result(double seconds) {
  qsort(latencies, answers, sizeof *latencies, compare);
  printf("{\"seconds\":%f,\"bytes\":%llu,\"median\":%f,\"within99\":%f,\"statuses\":{", seconds, received,
         answers ? latencies[answers / 2] : 0, answers ? latencies[answers * 99 / 100] : 0);
  const char *comma = "";
  for (int status = 0; status < STATUSES; status++) {
    if (statuses[status] == 0) continue;
    printf("%s\"%d\":%ld", comma, status, statuses[status]);
    comma = ",";
  }
  printf("}}\n");
}

static int connected(const char *host, const char *port) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
  if (getaddrinfo(host, port, &hints, &found) != 0) fail("the host is unknown");
  int s = socket(found->ai_family, SOCK_STREAM, 0), yes = 1;
  if (s < 0 || connect(s, found->ai_addr, found->ai_addrlen) != 0) fail("connect");
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  fcntl(s, F_SETFL, O_NONBLOCK);
  freeaddrinfo(found);
  return s;
}

int main(int count, char **arguments) {
  if (count != 5) fail("usage: load-client HOST PORT CONNECTIONS FILE");
  int size = atoi(arguments[3]);
  latencies = malloc((open_requests(arguments[4]) + 1) * sizeof *latencies);
  struct connection *connections = calloc((size_t)size, sizeof *connections);
  char *buffer = malloc(READ_BYTES);
  epoll = epoll_create1(0);
  for (int n = 0; n < size; n++) {
    connections[n].socket = connected(arguments[1], arguments[2]);
    watch(&connections[n], EPOLL_CTL_ADD, 0);
  }
  double since = seconds_now();
  int busy = 0;
  for (int n = 0; n < size; n++) busy += send_next(&connections[n]);
  struct epoll_event events[EVENTS];
  while (busy > 0) {
    int ready = epoll_wait(epoll, events, EVENTS, -1);
    for (int n = 0; n < ready; n++) {
      struct connection *c = events[n].data.ptr;
      if (events[n].events & EPOLLOUT) send_rest(c);
      if (!(events[n].events & ~(unsigned)EPOLLOUT)) continue;
      ssize_t bytes = read(c->socket, buffer, READ_BYTES);
      if (bytes < 0 && errno == EAGAIN) continue;
      if (bytes <= 0) fail("the server closed a connection");
      received += (unsigned long long)bytes;
      if (!take(c, buffer, (size_t)bytes)) continue;
      count_answer(c);
      if (!send_next(c)) busy--;
    }
  }
  print_result(seconds_now() - since);
  return 0;
}
