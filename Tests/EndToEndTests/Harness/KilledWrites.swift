import Foundation

/// A process that is killed at its n-th write to a file of a directory, without privileges: a small library, loaded before the
/// others, counts what changes files there (`write`, `pwrite`, `ftruncate`, `unlink`, `rename`) and kills before the n-th.
struct KilledWrites: Sendable {
  private let library: String
  private let directory: String

  /// Builds the library with the compiler of the toolchain.
  init(_ directory: URL) async throws {
    self.directory = directory.path
    library = directory.appendingPathComponent("killedwrites.so").path
    try KilledWrites.source.write(
      to: directory.appendingPathComponent("killedwrites.c"), atomically: false, encoding: .utf8)
    let output = try await ChildProcess(
      "clang", ["-shared", "-fPIC", "-O1", "-o", library, "killedwrites.c", "-ldl"], directory: directory
    ).output()
    guard output.code == 0 else { throw Unexpected("the library does not compile: \(output.err)") }
  }

  /// For the process that is to be killed at its n-th write, from 1.
  func environment(at number: Int) -> [String: String] {
    ["LD_PRELOAD": library, "SALVOR_TEST_KILL_AT": "\(number)", "SALVOR_TEST_KILL_DIRECTORY": directory]
  }

  private static let source = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <signal.h>
    #include <stdatomic.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/types.h>
    #include <unistd.h>

    static atomic_int writes;

    static void count_path(const char *path) {
      const char *at = getenv("SALVOR_TEST_KILL_AT"), *directory = getenv("SALVOR_TEST_KILL_DIRECTORY");
      if (!at || !directory) return;
      size_t length = strlen(directory);
      if (strncmp(path, directory, length) != 0 || path[length] != '/') return;
      if (atomic_fetch_add(&writes, 1) + 1 == atoi(at)) { kill(getpid(), SIGKILL); pause(); }
    }
    static void count(int fd) {
      char link[64], path[4096];
      snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
      ssize_t size = readlink(link, path, sizeof path - 1);
      if (size <= 0) return;
      path[size] = 0;
      count_path(path);
    }
    static void count_name(const char *name) {
      char path[4096];
      if (name[0] == '/') { count_path(name); return; }
      if (!getcwd(path, sizeof path - 1)) return;
      size_t length = strlen(path);
      snprintf(path + length, sizeof path - length, "/%s", name);
      count_path(path);
    }

    ssize_t write(int fd, const void *bytes, size_t size) {
      count(fd);
      return ((ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write"))(fd, bytes, size);
    }
    ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
      count(fd);
      return ((ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite"))(fd, bytes, size, at);
    }
    ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
      count(fd);
      return ((ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64"))(fd, bytes, size, at);
    }
    int ftruncate(int fd, off_t size) {
      count(fd);
      return ((int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate"))(fd, size);
    }
    int ftruncate64(int fd, off64_t size) {
      count(fd);
      return ((int (*)(int, off64_t))dlsym(RTLD_NEXT, "ftruncate64"))(fd, size);
    }
    int unlink(const char *path) {
      count_name(path);
      return ((int (*)(const char *))dlsym(RTLD_NEXT, "unlink"))(path);
    }
    int rename(const char *from, const char *to) {
      count_name(to);
      return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
    }

    """
}
