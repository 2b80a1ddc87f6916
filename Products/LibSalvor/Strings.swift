import SalvorClient
import SalvorModel
import SalvorModuleKit
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// `char **result`.
public typealias Result_ = UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?

/// The texts that callers hold. One that is given back twice, or was never given out, is left alone.
enum Strings {
  private struct State {
    var held: Set<UnsafeMutableRawPointer> = []
    /// Given back, and not the system's yet: an address that is given back twice is not another's meanwhile.
    var returned: [UnsafeMutableRawPointer] = []
    var next = 0
  }
  private static let state = Mutex(State())
  private static let returnedMax = 256

  static func give(_ text: String, to result: Result_) {
    guard let result else { return }
    // JSON has no NUL in it: it is written as an escape.
    guard let copy = strdup(text) else {
      result.pointee = nil
      return
    }
    let address = UInt(bitPattern: copy)
    state.withLock { state in
      guard let pointer = UnsafeMutableRawPointer(bitPattern: address) else { return }
      state.held.insert(pointer)
    }
    result.pointee = copy
  }

  static func takeBack(_ text: UnsafeMutablePointer<CChar>?) {
    // Another thread of the process that was forked may have held the lock.
    guard let text, !Process.isForked else { return }
    let address = UInt(bitPattern: text)
    state.withLock { state in
      guard let pointer = UnsafeMutableRawPointer(bitPattern: address), state.held.remove(pointer) != nil else {
        return
      }
      if state.returned.count < returnedMax {
        state.returned.append(pointer)
      } else {
        free(state.returned[state.next])
        state.returned[state.next] = pointer
        state.next = (state.next + 1) % returnedMax
      }
    }
  }
}

/// The process that has called first. Swift's threads are not in one that is forked of it.
enum Process {
  private static let first = getpid()

  static var isForked: Bool { getpid() != first }

  /// Throws in a process that was forked of one that uses the library.
  static func check() throws {
    guard isForked else { return }
    throw SalvorError(
      .usage,
      "This process was forked of one that uses libsalvor, and its threads are not here. Open the client in the process that uses it, or start that one with exec (in Python: the start method \"spawn\")."
    )
  }
}

/// `salvor_string_free` of include/salvor.h.
@_cdecl("salvor_string_free")
public func salvorStringFree(_ text: UnsafeMutablePointer<CChar>?) { Strings.takeBack(text) }

/// The text of a caller; nil where there is none.
func validText(_ pointer: UnsafePointer<CChar>?, _ name: String) throws -> String? {
  guard let pointer else { return nil }
  guard let text = String(validatingCString: pointer) else {
    throw SalvorError(.usage, "\(name) is not UTF-8.")
  }
  return text
}
