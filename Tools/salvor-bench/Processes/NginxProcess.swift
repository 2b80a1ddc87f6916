import SalvorModel

#if canImport(Glibc)
  import Glibc
  private let streamSocket = Int32(SOCK_STREAM.rawValue)
#elseif canImport(Darwin)
  import Darwin
  private let streamSocket = SOCK_STREAM
#endif

/// nginx that gives a server's files from its snapshot folder, at an address of its own (`server.snapshots.url`).
final class NginxProcess {
  /// What `server.snapshots.url` is.
  let url: String
  private let pid: pid_t
  private let directory: String

  /// Where the program is; nil: it is not installed.
  static var program: String? {
    ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/bin/nginx", "/opt/homebrew/bin/nginx"]
      .first { access($0, X_OK) == 0 }
  }

  /// - Parameters:
  ///   - folder: of the files; it may come later.
  ///   - coding: of the files, the end of their names.
  ///   - directory: a new one, for what nginx itself writes.
  init(_ program: String, serving folder: String, coding: String, directory: String) throws {
    self.directory = directory
    let port = try vacantPort()
    url = "http://127.0.0.1:\(port)/salvor"
    mkdir(directory, 0o700)
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
      .map { "\($0)_temp_path \(directory)/\($0);" }.joined(separator: " ")
    let text = """
      daemon off; worker_processes 1; pid \(directory)/pid; error_log \(directory)/error.log;
      \(getuid() == 0 ? "user root;" : "")
      events {}
      http {
        access_log off; sendfile on; \(temporary)
        server {
          listen 127.0.0.1:\(port);
          location /salvor/ { rewrite "^/salvor/([0-9a-f]{64})$" /$1.\(coding) break; root \(folder); }
        }
      }

      """
    let path = directory + "/nginx.conf"
    guard let file = fopen(path, "w"), fputs(text, file) >= 0, fclose(file) == 0 else {
      throw SalvorError(.failed, "\(path) cannot be written.")
    }
    let arguments = [program, "-p", directory, "-e", "\(directory)/error.log", "-c", path]
    var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) }
    argv.append(nil)
    defer { argv.forEach { free($0) } }
    var pid: pid_t = 0
    let code = posix_spawn(&pid, program, nil, nil, argv, environ)
    guard code == 0 else {
      throw SalvorError(.failed, "nginx could not be started: \(String(cString: strerror(code))).")
    }
    self.pid = pid
    for _ in 0..<400 {
      if access(directory + "/pid", F_OK) == 0 { return }
      usleep(10_000)
    }
    throw SalvorError(.failed, "nginx did not start: \(Measure.contents(of: directory + "/error.log"))")
  }

  func end() {
    kill(pid, SIGTERM)
    var status: Int32 = 0
    while waitpid(pid, &status, 0) < 0, errno == EINTR {}
    PlainDatabase.removeAll(in: directory)
    rmdir(directory)
  }

}

/// Somebody listens at this port of 127.0.0.1.
func isTaken(_ port: UInt16) -> Bool {
  let descriptor = socket(AF_INET, streamSocket, 0)
  defer { close(descriptor) }
  var address = sockaddr_in()
  address.sin_family = sa_family_t(AF_INET)
  address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
  address.sin_port = port.bigEndian
  return withUnsafePointer(to: &address) { pointer in
    pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
      connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
    }
  }
}

/// Of 127.0.0.1, for a program that cannot say which one it took.
func vacantPort() throws -> UInt16 {
  let descriptor = socket(AF_INET, streamSocket, 0)
  defer { close(descriptor) }
  var address = sockaddr_in()
  address.sin_family = sa_family_t(AF_INET)
  address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
  var length = socklen_t(MemoryLayout<sockaddr_in>.size)
  let port = withUnsafeMutablePointer(to: &address) { pointer -> UInt16? in
    pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
      bind(descriptor, $0, length) == 0 && getsockname(descriptor, $0, &length) == 0
    } ? UInt16(bigEndian: pointer.pointee.sin_port) : nil
  }
  guard let port else { throw SalvorError(.failed, "No port is free.") }
  return port
}
