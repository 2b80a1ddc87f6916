#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Which file a path leads to.
public struct FileIdentity: Hashable, Sendable {
  private let device: UInt64
  private let node: UInt64

  /// Nil: there is none.
  public init?(_ path: String) {
    var found = stat()
    guard stat(path, &found) == 0 else { return nil }
    device = UInt64(truncatingIfNeeded: found.st_dev)
    node = UInt64(truncatingIfNeeded: found.st_ino)
  }
}
