@preconcurrency import Dispatch

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Writes to a file, whichever process makes them, as far as the system tells of them.
public enum FileWrites {
  /// Something comes soon after a write; several are told as one. Nil: the system does not tell, or there is no such file.
  public static func stream(of path: String) -> AsyncStream<Void>? {
    #if canImport(Glibc)
      let descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
      guard descriptor >= 0 else { return nil }
      guard inotify_add_watch(descriptor, path, UInt32(IN_MODIFY)) >= 0 else {
        close(descriptor)
        return nil
      }
      let source: any DispatchSourceProtocol = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: queue)
    #elseif canImport(Darwin)
      let descriptor = open(path, O_EVTONLY | O_CLOEXEC)
      guard descriptor >= 0 else { return nil }
      let source: any DispatchSourceProtocol = DispatchSource.makeFileSystemObjectSource(
        fileDescriptor: descriptor, eventMask: [.write, .extend], queue: queue)
    #endif
    let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
    source.setEventHandler {
      drain(descriptor)
      continuation.yield()
    }
    source.setCancelHandler { close(descriptor) }
    let held = Held(source)
    continuation.onTermination = { _ in held.source.cancel() }
    source.activate()
    return stream
  }

  private static let queue = DispatchQueue(label: "salvor.file-writes")

  /// What came is read away: that it came is enough.
  private static func drain(_ descriptor: Int32) {
    #if canImport(Glibc)
      var buffer = [UInt8](repeating: 0, count: 4096)
      while read(descriptor, &buffer, buffer.count) > 0 {}
    #endif
  }

  private struct Held: @unchecked Sendable {
    let source: any DispatchSourceProtocol
    init(_ source: any DispatchSourceProtocol) { self.source = source }
  }
}
