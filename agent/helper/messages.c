#include "agent/helper/messages.h"

#include <errno.h>
#include <string.h>

#include "agent/helper/describe_fds.h"
#include "agent/helper/helper_state.h"
#include "agent/helper/requests.h"
#include "agent/helper/task_source.h"
#include "agent/helper/wait_words.h"
#include "agent/maps/mapped_file.h"
#include "agent/maps/perf_map.h"
#include "agent/sys/large.h"

/* What a runtime calls its code is a name too: with `stacks` none leaves the process. */
static int open_for_daemon(const char* path) {
  if (!stackd_perf_map_is_at(path)) return stackd_mapped_file_open(stackd_own_fd_get(&stackd_helper.files->maps), path);
  return stackd_helper.settings->share == STACKD_SHARE_STACKS ? -EPERM : stackd_perf_map_open();
}

static void open_file(const struct stackd_open_file* request) {
  struct stackd_file reply;
  memset(&reply, 0, sizeof(reply));
  reply.header.type = STACKD_MSG_FILE;
  reply.header.size_bytes = sizeof(reply);
  reply.request_id = request->request_id;
  char path[STACKD_PATH_BYTES];
  stackd_copy_string(path, sizeof(path), request->path);
  int fd = open_for_daemon(path);
  if (fd < 0) reply.error = fd;
  stackd_connection_answer(&stackd_helper.connection, &reply.header, fd);
  if (fd >= 0) stackd_own_fd_drop(fd);
}

static void read_image(const struct stackd_read_image* request) {
  static STACKD_LARGE struct stackd_image reply;
  memset(&reply, 0, sizeof(reply));
  reply.header.type = STACKD_MSG_IMAGE;
  reply.header.size_bytes = sizeof(reply);
  reply.request_id = request->request_id;
  reply.error = stackd_helper.settings->share == STACKD_SHARE_STACKS
                    ? -EPERM
                    : stackd_mapped_file_read(stackd_own_fd_get(&stackd_helper.files->maps), request->avma, reply.bytes,
                                              request->size_bytes);
  stackd_connection_answer(&stackd_helper.connection, &reply.header, -1);
}

static void describe_fds(const struct stackd_describe_fds* request) {
  static STACKD_LARGE struct stackd_fd_names names;
  stackd_fd_names(request, &names);
  stackd_connection_answer(&stackd_helper.connection, &names.header, -1);
}

static void answer_waits(const struct stackd_ask_waits* request) {
  static STACKD_LARGE struct stackd_wait_words words;
  stackd_wait_words(request, &words);
  stackd_connection_answer(&stackd_helper.connection, &words.header, -1);
}

static void describe_tasks(const struct stackd_describe_tasks* request) {
  unsigned limit_ms = request->limit_ms < STACKD_MAX_TASK_LIMIT_MS ? request->limit_ms : STACKD_MAX_TASK_LIMIT_MS;
  int fd = stackd_task_table(limit_ms);
  struct stackd_tasks reply;
  memset(&reply, 0, sizeof(reply));
  reply.header.type = STACKD_MSG_TASKS;
  reply.header.size_bytes = sizeof(reply);
  reply.request_id = request->request_id;
  if (fd < 0) reply.error = fd;
  stackd_connection_answer(&stackd_helper.connection, &reply.header, fd);
  if (fd >= 0) stackd_own_fd_drop(fd);
}

void stackd_helper_answer(const union stackd_message* message) {
  switch (message->header.type) {
    case STACKD_MSG_OPEN_FILE:
      open_file(&message->open_file);
      break;
    case STACKD_MSG_READ_IMAGE:
      read_image(&message->read_image);
      break;
    case STACKD_MSG_DESCRIBE_FDS:
    case STACKD_MSG_DESCRIBE_EPOLLS:
      describe_fds(&message->describe_fds);
      break;
    case STACKD_MSG_ASK_WAITS:
      answer_waits(&message->ask_waits);
      break;
    case STACKD_MSG_DESCRIBE_TASKS:
      describe_tasks(&message->describe_tasks);
      break;
    case STACKD_MSG_DUMP_READ:
      stackd_requests_count_read();
      break;
    default:
      break;
  }
}
