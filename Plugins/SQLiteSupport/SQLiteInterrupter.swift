import CSQLite
import SalvorModel

/// Interrupts a connection from any thread, also while the connection is busy or after it was closed.
public final class SQLiteInterrupter: Sendable {
  private struct Handle: @unchecked Sendable {
    var database: OpaquePointer?
  }

  private let handle: Mutex<Handle>

  init(_ database: OpaquePointer) { handle = Mutex(Handle(database: database)) }

  func forget() { handle.withLock { $0.database = nil } }

  /// The call that the connection is in throws `cancelled`. Nothing happens where the connection is idle or closed.
  public func interrupt() {
    handle.withLock { if let database = $0.database { sqlite3_interrupt(database) } }
  }
}
