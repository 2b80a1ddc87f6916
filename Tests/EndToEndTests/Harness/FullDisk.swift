import Foundation

/// A disk that fills up, without privileges: a small library, loaded before the others, lets every write to a file of a
/// directory fail with ENOSPC from the moment on that a flag file is there; or one that cannot be written at all (EROFS).
struct FullDisk: Sendable {
  private let library: String
  private let flag: String
  private let directory: String

  /// Builds the library with the compiler of the toolchain.
  init(_ directory: URL) async throws {
    self.directory = directory.path
    flag = directory.path + ".full"
    library = directory.appendingPathComponent("fulldisk.so").path
    try FullDisk.source.write(
      to: directory.appendingPathComponent("fulldisk.c"), atomically: false, encoding: .utf8)
    let output = try await ChildProcess(
      "clang", ["-shared", "-fPIC", "-O1", "-o", library, "fulldisk.c", "-ldl"], directory: directory
    ).output()
    guard output.code == 0 else { throw Unexpected("the library does not compile: \(output.err)") }
  }

  /// For the process that is to meet it.
  var environment: [String: String] {
    ["LD_PRELOAD": library, "SALVOR_TEST_FULL_FLAG": flag, "SALVOR_TEST_FULL_DIRECTORY": directory]
  }

  /// - Parameter part: only for files whose path has this in it.
  func fill(_ part: String = "") {
    _ = FileManager.default.createFile(atPath: flag, contents: Data(part.utf8))
  }
  func makeRoom() { try? FileManager.default.removeItem(atPath: flag) }

  /// For a process that meets the directory on a read-only medium.
  var readOnlyEnvironment: [String: String] { environment.merging(["SALVOR_TEST_READ_ONLY": "1"]) { $1 } }

  private static let source = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <stdarg.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/stat.h>
    #include <sys/types.h>
    #include <unistd.h>

    static int is_full(int fd) {
      const char *flag = getenv("SALVOR_TEST_FULL_FLAG"), *directory = getenv("SALVOR_TEST_FULL_DIRECTORY");
      if (!flag || !directory || access(flag, F_OK) != 0) return 0;
      char link[64], path[4096];
      snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
      ssize_t count = readlink(link, path, sizeof path - 1);
      if (count <= 0) return 0;
      path[count] = 0;
      char part[256];
      int open_flag = ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open"))(flag, O_RDONLY | O_CLOEXEC);
      ssize_t part_length = open_flag < 0 ? 0 : read(open_flag, part, sizeof part - 1);
      if (open_flag >= 0) close(open_flag);
      part[part_length > 0 ? part_length : 0] = 0;
      size_t length = strlen(directory);
      return strncmp(path, directory, length) == 0 && path[length] == '/' && strstr(path + length, part) != NULL;
    }

    static int is_sealed(const char *path, int flags) {
      const char *directory = getenv("SALVOR_TEST_FULL_DIRECTORY");
      if (!getenv("SALVOR_TEST_READ_ONLY") || !directory) return 0;
      if ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_CREAT)) return 0;
      char whole[4096];
      if (path[0] == '/') {
        snprintf(whole, sizeof whole, "%s", path);
      } else {
        char here[2048];
        if (!getcwd(here, sizeof here)) return 0;
        snprintf(whole, sizeof whole, "%s/%s", here, path);
      }
      size_t length = strlen(directory);
      return strncmp(whole, directory, length) == 0 && whole[length] == '/';
    }

    #define OPEN(name)                                                               \\
      int name(const char *path, int flags, ...) {                                   \\
        va_list list;                                                                \\
        va_start(list, flags);                                                       \\
        mode_t mode = (flags & O_CREAT) ? va_arg(list, mode_t) : 0;                  \\
        va_end(list);                                                                \\
        if (is_sealed(path, flags)) { errno = EROFS; return -1; }                    \\
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \\
      }
    OPEN(open)
    OPEN(open64)

    #define FULL(fd) if (is_full(fd)) { errno = ENOSPC; return -1; }

    ssize_t write(int fd, const void *bytes, size_t count) {
      FULL(fd)
      return ((ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write"))(fd, bytes, count);
    }
    ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
      FULL(fd)
      return ((ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite"))(fd, bytes, count, at);
    }
    ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
      FULL(fd)
      return ((ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64"))(fd, bytes, count, at);
    }
    static int grows(int fd, off64_t size) {
      struct stat status;
      return fstat(fd, &status) == 0 && size > status.st_size;
    }
    int ftruncate(int fd, off_t size) {
      if (grows(fd, size)) FULL(fd)
      return ((int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate"))(fd, size);
    }
    int ftruncate64(int fd, off64_t size) {
      if (grows(fd, size)) FULL(fd)
      return ((int (*)(int, off64_t))dlsym(RTLD_NEXT, "ftruncate64"))(fd, size);
    }

    """
}
