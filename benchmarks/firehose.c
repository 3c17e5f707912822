/* A paced server of event streams, cheap enough to measure what a client costs.
 *
 *   firehose CHUNKS [DELAY_US [TOKENS]]
 *
 * Listens on a free port of 127.0.0.1 and prints it. Every POST gets CHUNKS chat-completion chunks of TOKENS tokens each
 * (default 1), one write each, DELAY_US microseconds apart (default 0: as fast as possible), then the finish chunk, the
 * usage chunk and [DONE]. All streams keep to the same beat, as those of a server that decodes in batches do. A GET answers with a list of one model. One thread a connection. Ends when its standard input
 * is closed.
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

/* One chunk of the chunked body. */
static int write_chunk(int fd, const char *data) {
  char buffer[4096];
  int length = snprintf(buffer, sizeof buffer, "%zx\r\n%s\r\n", strlen(data), data);
  return write_all(fd, buffer, (size_t)length);
}

static int write_stream(int fd) {
  static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
  char event[2048], text[512] = "";
  for (int i = 0; i < tokens && i < 64; i++) strcat(text, " hello");
  if (write_all(fd, head, sizeof head - 1)) return -1;
  snprintf(event, sizeof event,
           "data: " HEAD "\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":null,\"content\":\"%s\"},"
           "\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}]}\n\n", text);
  struct timespec due;
  clock_gettime(CLOCK_MONOTONIC, &due);
  if (delay_us) due.tv_nsec -= due.tv_nsec % (delay_us * 1000L);
  for (int i = 0; i < chunks; i++) {
    if (delay_us) {
      due.tv_nsec += delay_us * 1000L;
      while (due.tv_nsec >= 1000000000L) { due.tv_nsec -= 1000000000L; due.tv_sec++; }
      while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR) {}
    }
    if (write_chunk(fd, event)) return -1;
  }
  if (write_chunk(fd, "data: " HEAD "\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":null},"
                      "\"logprobs\":null,\"finish_reason\":\"length\",\"matched_stop\":null}]}\n\n")) return -1;
  snprintf(event, sizeof event,
           "data: " HEAD "\"choices\":[],\"usage\":{\"prompt_tokens\":64,\"total_tokens\":%d,\"completion_tokens\":%d,"
           "\"prompt_tokens_details\":null}}\n\n", 64 + chunks * tokens, chunks * tokens);
  if (write_chunk(fd, event) || write_chunk(fd, "data: [DONE]\n\n")) return -1;
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
  pthread_t thread;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 * 1024);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  pthread_create(&thread, &small, end_with_input, NULL);
  for (;;) {
    int fd = accept(listener, NULL, NULL);
    if (fd >= 0 && pthread_create(&thread, &small, serve, (void *)(long)fd)) close(fd);
  }
}
