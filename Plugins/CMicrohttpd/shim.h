#include <microhttpd.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>

// What the importer cannot see: variadic functions, and constants behind _GNU_SOURCE.

typedef struct CMicrohttpdConfiguration {
  unsigned int flags;
  int listenSocket;
  size_t memoryLimit;
  unsigned int connectionLimit;
  unsigned int timeoutSeconds;
  // 0 and 1: one thread.
  unsigned int threads;
  // Both or neither; PEM text that the daemon keeps pointing at.
  const char *certificate;
  const char *key;
} CMicrohttpdConfiguration;

// The head of each request names the closure that the other callbacks get, through `uri`.
static inline struct MHD_Daemon *cmicrohttpd_start(
    const CMicrohttpdConfiguration *configuration, MHD_AccessHandlerCallback handler,
    MHD_RequestCompletedCallback completed,
    void *(*uri)(void *, const char *, struct MHD_Connection *), void *closure) {
  struct MHD_OptionItem items[12];
  int count = 0;
#define CMICROHTTPD_ITEM(o, v, p) \
  items[count++] = (struct MHD_OptionItem){(o), (intptr_t)(v), (void *)(p)}
  CMICROHTTPD_ITEM(MHD_OPTION_LISTEN_SOCKET, configuration->listenSocket, 0);
  CMICROHTTPD_ITEM(MHD_OPTION_CONNECTION_MEMORY_LIMIT, configuration->memoryLimit, 0);
  CMICROHTTPD_ITEM(MHD_OPTION_CONNECTION_LIMIT, configuration->connectionLimit, 0);
  CMICROHTTPD_ITEM(MHD_OPTION_CONNECTION_TIMEOUT, configuration->timeoutSeconds, 0);
  CMICROHTTPD_ITEM(MHD_OPTION_NOTIFY_COMPLETED, completed, closure);
  CMICROHTTPD_ITEM(MHD_OPTION_URI_LOG_CALLBACK, uri, closure);
  if (configuration->threads > 1)
    CMICROHTTPD_ITEM(MHD_OPTION_THREAD_POOL_SIZE, configuration->threads, 0);
  if (configuration->certificate) {
    CMICROHTTPD_ITEM(MHD_OPTION_HTTPS_MEM_CERT, 0, configuration->certificate);
    CMICROHTTPD_ITEM(MHD_OPTION_HTTPS_MEM_KEY, 0, configuration->key);
  }
  CMICROHTTPD_ITEM(MHD_OPTION_END, 0, 0);
#undef CMICROHTTPD_ITEM
  return MHD_start_daemon(
      configuration->flags, 0, 0, 0, handler, closure, MHD_OPTION_ARRAY, items, MHD_OPTION_END);
}

static inline int cmicrohttpd_socket(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info ? (int)info->connect_fd : -1;
}

static inline const struct sockaddr *cmicrohttpd_peer(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  return info ? info->client_addr : 0;
}

// Lets this process have as many descriptors as `wanted`, as far as the system allows; how many it may have then.
static inline unsigned long cmicrohttpd_allow_descriptors(unsigned long wanted) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < wanted) {
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > wanted ? wanted : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
  }
  return limit.rlim_cur == RLIM_INFINITY ? wanted : (unsigned long)limit.rlim_cur;
}

static inline void cmicrohttpd_shut(int socket) { (void)shutdown(socket, SHUT_RDWR); }

// Whether the other end has closed: nothing of what it sent before is read.
static inline int cmicrohttpd_peer_left(int socket) {
#ifdef POLLRDHUP
  const short left = POLLRDHUP;
#elif defined(__linux__)
  const short left = 0x2000;
#else
  const short left = 0;
#endif
  struct pollfd one = {socket, left, 0};
  return poll(&one, 1, 0) == 1 && (one.revents & (left | POLLHUP | POLLERR | POLLNVAL)) != 0;
}
