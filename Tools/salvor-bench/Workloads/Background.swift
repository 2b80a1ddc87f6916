import Dispatch
import SalvorModel

/// Something that goes on while this thread does something else.
final class Background: @unchecked Sendable {
  private let result = Mutex<Result<Void, any Error>?>(nil)
  private let work: () throws -> Void

  init(_ work: @escaping () throws -> Void) {
    self.work = work
    DispatchQueue.global().async {
      let result = Result { try self.work() }
      self.result.withLock { $0 = result }
    }
  }

  var isDone: Bool { result.withLock { $0 != nil } }
  func check() throws { try result.withLock { try $0?.get() } }
}
