import Dispatch
import SalvorClient
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

/// What a call gives: 0 and a result, or the number of an error and the error.
struct Reply: Sendable {
  var code: Int32
  var json: JSONValue

  init(_ json: JSONValue) {
    code = 0
    self.json = json
  }

  init(_ error: any Error, report: SyncReport? = nil) {
    let known = error as? SalvorError ?? SalvorError(.failed, "Something failed inside: \(type(of: error)).")
    code = Int32(known.code.number)
    json = known.reply(report: report)
  }

  /// A synchronization; the figures of one that failed are beside its error.
  init(_ report: SyncReport) {
    guard var error = report.error else {
      self.init(report.json)
      return
    }
    // What a call that is ended breaks off by itself has not failed for another reason.
    if Task.isCancelled, error.isRetryable {
      error = SalvorError(.cancelled, "The call was ended by salvor_cancel or salvor_close. Nothing is lost.")
    }
    self.init(error, report: report)
  }

  func give(to result: Result_) -> Int32 {
    Strings.give(json.text, to: result)
    return code
  }
}

/// A call that waits for nothing.
func answer(_ result: Result_, _ work: () throws -> JSONValue) -> Int32 {
  result?.pointee = nil
  do {
    try Process.check()
    return Reply(try work()).give(to: result)
  } catch {
    // In a forked process a lock may be held for ever: the code must do.
    return Process.isForked ? Reply(error).code : Reply(error).give(to: result)
  }
}

/// Holds the calling thread until `work` is done.
func wait<Value: Sendable>(for work: @escaping @Sendable () async -> Value, otherwise: Value) -> Value {
  let done = DispatchSemaphore(value: 0)
  let found = Mutex<Value?>(nil)
  Task.detached {
    let value = await work()
    found.withLock { $0 = value }
    done.signal()
  }
  done.wait()
  return found.withLock { $0 } ?? otherwise
}

/// A call about one client, on the calling thread, which waits for it.
func call(
  _ number: UInt64, _ options: UnsafePointer<CChar>?, knows names: [String] = [], _ result: Result_,
  _ work: @escaping @Sendable (OpenClient, Options) async throws -> Reply
) -> Int32 {
  result?.pointee = nil
  do {
    try Process.check()
    let options = try Options(options, knows: names)
    let client = try Clients.find(number)
    let task = try client.begin { () async -> Reply in
      do { return try await work(client, options) } catch { return Reply(error) }
    }
    return wait(for: { await task.value }, otherwise: Reply(SalvorError(.failed, "The call gave nothing.")))
      .give(to: result)
  } catch {
    return Process.isForked ? Reply(error).code : Reply(error).give(to: result)
  }
}

func call(
  _ number: UInt64, _ options: UnsafePointer<CChar>?, knows names: [String] = [], _ result: Result_,
  json work: @escaping @Sendable (OpenClient, Options) async throws -> JSONValue
) -> Int32 {
  call(number, options, knows: names, result) { client, options in Reply(try await work(client, options)) }
}
