#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

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
  // Of GnuTLS.
  const char *priorities;
} CMicrohttpdConfiguration;

// The head of each request names the closure that the other callbacks get, through `uri`.
static inline struct MHD_Daemon *cmicrohttpd_start(
    const CMicrohttpdConfiguration *configuration, MHD_AccessHandlerCallback handler,
    MHD_RequestCompletedCallback completed,
    void *(*uri)(void *, const char *, struct MHD_Connection *), MHD_NotifyConnectionCallback notify, void *closure) {
  struct MHD_OptionItem items[14];
  int count = 0;
#define CMICROHTTPD_ITEM(o, v, p) \
  items[count++] = (struct MHD_OptionItem){(o), (intptr_t)(v), (void *)(p)}
  CMICROHTTPD_ITEM(MHD_OPTION_LISTEN_SOCKET, configuration->listenSocket, 0);
  CMICROHTTPD_ITEM(MHD_OPTION_CONNECTION_MEMORY_LIMIT, configuration->memoryLimit, 0);
  CMICROHTTPD_ITEM(MHD_OPTION_CONNECTION_LIMIT, configuration->connectionLimit, 0);
  CMICROHTTPD_ITEM(MHD_OPTION_CONNECTION_TIMEOUT, configuration->timeoutSeconds, 0);
  CMICROHTTPD_ITEM(MHD_OPTION_NOTIFY_COMPLETED, completed, closure);
  CMICROHTTPD_ITEM(MHD_OPTION_URI_LOG_CALLBACK, uri, closure);
  CMICROHTTPD_ITEM(MHD_OPTION_NOTIFY_CONNECTION, notify, closure);
  if (configuration->threads > 1)
    CMICROHTTPD_ITEM(MHD_OPTION_THREAD_POOL_SIZE, configuration->threads, 0);
  if (configuration->certificate) {
    CMICROHTTPD_ITEM(MHD_OPTION_HTTPS_MEM_CERT, 0, configuration->certificate);
    CMICROHTTPD_ITEM(MHD_OPTION_HTTPS_MEM_KEY, 0, configuration->key);
    CMICROHTTPD_ITEM(MHD_OPTION_HTTPS_PRIORITIES, 0, configuration->priorities);
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

// What the connection callback left with the connection.
static inline void *cmicrohttpd_context(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return info ? info->socket_context : 0;
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

// How many descriptors this process has open, of those it can have had so far.
static inline unsigned long cmicrohttpd_open_descriptors(void) {
  struct rlimit limit;
  unsigned long highest = 65536;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < highest) highest = limit.rlim_cur;
  unsigned long count = 0;
  for (unsigned long one = 0; one < highest; one++) {
    struct pollfd place = {(int)one, 0, 0};
    if (poll(&place, 1, 0) == 0 || (place.revents & POLLNVAL) == 0) count++;
  }
  return count;
}

// Another descriptor of the same open file.
static inline int cmicrohttpd_same_file(int file) { return fcntl(file, F_DUPFD_CLOEXEC, 0); }

static inline void cmicrohttpd_close(int file) { (void)close(file); }

static inline void cmicrohttpd_shut(int socket) { (void)shutdown(socket, SHUT_RDWR); }

typedef struct CMicrohttpdLook {
  // The other end sends nothing any more; what it sent before may not be read yet.
  bool hasFinished;
  // The other end is gone: what is sent to it comes back as an error.
  bool isBroken;
} CMicrohttpdLook;

// Looks at the other end without reading.
static inline CMicrohttpdLook cmicrohttpd_look(int socket) {
#ifdef POLLRDHUP
  const short finished = POLLRDHUP;
#elif defined(__linux__)
  const short finished = 0x2000;
#else
  const short finished = 0;
#endif
  struct pollfd one = {socket, finished, 0};
  CMicrohttpdLook look = {false, false};
  if (poll(&one, 1, 0) == 1) {
    look.isBroken = (one.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
    look.hasFinished = look.isBroken || (one.revents & finished) != 0;
  }
  return look;
}

// Bytes that came and that nobody has read yet.
static inline int cmicrohttpd_unread(int socket) {
  int count = 0;
  return ioctl(socket, FIONREAD, &count) == 0 ? count : 0;
}

typedef struct CMicrohttpdTraffic {
  // False: the system does not tell.
  bool isKnown;
  // All bytes that ever came on this connection.
  unsigned long long received;
  // All bytes sent on it that the other end has acknowledged.
  unsigned long long acknowledged;
} CMicrohttpdTraffic;

static inline CMicrohttpdTraffic cmicrohttpd_traffic(int socket) {
  CMicrohttpdTraffic traffic = {false, 0, 0};
#ifdef __linux__
  // The beginning of the kernel's struct tcp_info, whose layout is fixed. The C library's own has fewer members.
  struct {
    unsigned char states[8];
    unsigned int counts[24];
    unsigned long long pacing, pacingMax, acknowledged, received;
  } info;
  socklen_t length = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, 11 /* TCP_INFO */, &info, &length) == 0 && length == sizeof(info)) {
    traffic.isKnown = true;
    traffic.received = info.received;
    traffic.acknowledged = info.acknowledged;
  }
#else
  (void)socket;
#endif
  return traffic;
}

// Sends what fits at once; a client that is gone is no signal.
static inline void cmicrohttpd_say(int socket, const void *bytes, size_t count) {
#ifdef MSG_NOSIGNAL
  (void)send(socket, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
#else
  (void)send(socket, bytes, count, MSG_DONTWAIT);
#endif
}
