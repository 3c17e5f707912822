/* A paced server of event streams, cheap enough to measure what a client costs.
 *
 *   firehose CHUNKS [DELAY_US [TOKENS]]
 *
 * Listens on a free port of 127.0.0.1 and prints it. Every POST gets CHUNKS chat-completion chunks of TOKENS tokens each
 * (default 1), one write each, DELAY_US microseconds apart (default 0: as fast as possible), then the finish chunk, the
 * usage chunk and [DONE]. A GET answers with a list of one model. One thread a connection. Ends when its standard input
 * is closed.
 *
 * Paced streams keep to one beat, as those of a server that decodes in batches do, and one thread writes them all: to
 * wake a thread for each chunk would take the time of the client that is measured beside it. A beat that was missed,
 * the machine being stopped for a while, is not made up for: no server decodes faster afterwards. A stream that nobody
 * reads holds up the others once its socket is full.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_BYTES (1 << 20)
#define MOST_STREAMS 4096
#define HEAD "{\"id\":\"0a1b2c3d4e5f\",\"object\":\"chat.completion.chunk\",\"created\":1764450000,\"model\":\"mock\","
#define MODELS "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"root\":\"mock\",\"max_model_len\":131072}]}"

static int chunks = 200, delay_us = 0, tokens = 1;

static int write_all(int fd, const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t written = write(fd, bytes, length);
    if (written <= 0) return -1;
    bytes += written;
    length -= (size_t)written;
  }
  return 0;
}

/* Makes one chunk of a chunked body; returns its length. */
static size_t make_chunk(char *chunk, size_t size, const char *data) {
  return (size_t)snprintf(chunk, size, "%zx\r\n%s\r\n", strlen(data), data);
}

static int write_chunk(int fd, const char *data) {
  char chunk[2048];
  return write_all(fd, chunk, make_chunk(chunk, sizeof chunk, data));
}

/* A stream that the beat writes to: `left` chunks more, 0 when it is over. */
struct paced { int fd, left, failed; pthread_cond_t over; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct paced *streams[MOST_STREAMS];
static int streaming = 0;
static char token_chunk[2048];
static size_t token_chunk_length;

/* Writes one chunk to every stream. */
static void beat(void) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < streaming; i++) {
    struct paced *stream = streams[i];
    stream->failed = write_all(stream->fd, token_chunk, token_chunk_length) != 0;
    if (--stream->left > 0 && !stream->failed) continue;
    streams[i--] = streams[--streaming];
    stream->left = 0;
    pthread_cond_signal(&stream->over);
  }
  pthread_mutex_unlock(&lock);
}

static long long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void *keep_the_beat(void *argument) {
  long long due = now_ns(), now;
  (void)argument;
  for (;;) {
    due += delay_us * 1000LL;
    struct timespec at = {.tv_sec = due / 1000000000LL, .tv_nsec = due % 1000000000LL};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {}
    if ((now = now_ns()) - due > delay_us * 1000LL) due = now;
    beat();
  }
}

static int write_paced(int fd) {
  struct paced stream = {.fd = fd, .left = chunks, .over = PTHREAD_COND_INITIALIZER};
  pthread_mutex_lock(&lock);
  int room = streaming < MOST_STREAMS;
  if (room) streams[streaming++] = &stream;
  while (room && stream.left > 0) pthread_cond_wait(&stream.over, &lock);
  pthread_mutex_unlock(&lock);
  return room && !stream.failed ? 0 : -1;
}

static int write_tokens(int fd) {
  if (delay_us) return write_paced(fd);
  for (int i = 0; i < chunks; i++)
    if (write_all(fd, token_chunk, token_chunk_length)) return -1;
  return 0;
}

static int write_stream(int fd) {
  static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
  char usage[1024];
  snprintf(usage, sizeof usage,
           "data: " HEAD "\"choices\":[],\"usage\":{\"prompt_tokens\":64,\"total_tokens\":%d,\"completion_tokens\":%d,"
           "\"prompt_tokens_details\":null}}\n\n", 64 + chunks * tokens, chunks * tokens);
  if (write_all(fd, head, sizeof head - 1) || write_tokens(fd)) return -1;
  if (write_chunk(fd, "data: " HEAD "\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":null},"
                      "\"logprobs\":null,\"finish_reason\":\"length\",\"matched_stop\":null}]}\n\n")) return -1;
  if (write_chunk(fd, usage) || write_chunk(fd, "data: [DONE]\n\n")) return -1;
  return write_all(fd, "0\r\n\r\n", 5);
}

static int write_models(int fd) {
  char answer[512];
  int length = snprintf(answer, sizeof answer,
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                        strlen(MODELS), MODELS);
  return write_all(fd, answer, (size_t)length);
}

/* Returns the length of the first whole request in the buffer, 0 while it is not whole. */
static size_t request_length(char *buffer, size_t filled) {
  buffer[filled] = 0;
  char *end = strstr(buffer, "\r\n\r\n");
  if (!end) return 0;
  char *field = strcasestr(buffer, "content-length:");
  size_t length = (size_t)(end + 4 - buffer) + (field && field < end ? (size_t)atol(field + 15) : 0);
  return filled >= length ? length : 0;
}

static void *serve(void *argument) {
  int fd = (int)(long)argument, on = 1;
  char *buffer = malloc(REQUEST_BYTES + 1);
  size_t filled = 0;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  while (buffer) {
    size_t length;
    while ((length = request_length(buffer, filled)) == 0 && filled < REQUEST_BYTES) {
      ssize_t got = read(fd, buffer + filled, REQUEST_BYTES - filled);
      if (got <= 0) goto over;
      filled += (size_t)got;
    }
    if (length == 0 || (strncmp(buffer, "GET", 3) ? write_stream(fd) : write_models(fd))) break;
    memmove(buffer, buffer + length, filled - length);
    filled -= length;
  }
over:
  close(fd);
  free(buffer);
  return NULL;
}

static void *end_with_input(void *argument) {
  char byte;
  (void)argument;
  while (read(0, &byte, 1) > 0) {}
  exit(0);
}

static void make_token_chunk(void) {
  char event[1536], text[512] = "";
  for (int i = 0; i < tokens && i < 64; i++) strcat(text, " hello");
  snprintf(event, sizeof event,
           "data: " HEAD "\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":null,\"content\":\"%s\"},"
           "\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}]}\n\n", text);
  token_chunk_length = make_chunk(token_chunk, sizeof token_chunk, event);
}

static pthread_attr_t small;

static int start(void *(*job)(void *), void *argument) {
  pthread_t thread;
  return pthread_create(&thread, &small, job, argument);
}

int main(int count, char **arguments) {
  if (count > 1) chunks = atoi(arguments[1]);
  if (count > 2) delay_us = atoi(arguments[2]);
  if (count > 3) tokens = atoi(arguments[3]);
  signal(SIGPIPE, SIG_IGN);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096) ||
      getsockname(listener, (struct sockaddr *)&address, &size)) {
    perror("firehose");
    return 1;
  }
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  make_token_chunk();
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 * 1024);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  if (start(end_with_input, NULL) || (delay_us && start(keep_the_beat, NULL))) return 1;
  for (;;) {
    int fd = accept(listener, NULL, NULL);
    if (fd >= 0 && start(serve, (void *)(long)fd)) close(fd);
  }
}
