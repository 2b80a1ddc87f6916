import CSQLite
import SalvorModel

/// Closed connections, for whoever opens the same file for the same use again: as if the process that closed one had gone on.
///
/// Where many processes are played in one, as a simulation does, each start would read the file's schema and compile every statement
/// anew. A connection keeps its statements, its temporary tables and its settings. Whoever opens a file says what he needs each time. Now
/// and then one is closed for good, so that new ones are met, too.
public final class SQLiteShelf: Sendable {
  /// Nil: a connection that is closed is gone.
  @TaskLocal public static var current: SQLiteShelf?

  /// A connection that waits.
  struct Kept: @unchecked Sendable {
    var database: OpaquePointer
    var statements: [String: SQLiteStatement]
    fileprivate var file: FileIdentity
  }

  fileprivate struct Name: Hashable {
    var path: String
    var use: String
  }

  private struct State {
    var kept: [Name: [Kept]] = [:]
    var closings: [Name: Int] = [:]
  }

  /// One for each use of a file.
  struct Place {
    let shelf: SQLiteShelf
    fileprivate let name: Name

    /// Nil: none waits.
    func take() -> Kept? { shelf.take(name) }

    /// False: the connection is to be closed.
    func keep(_ database: OpaquePointer, _ statements: [String: SQLiteStatement]) -> Bool {
      shelf.keep(database, statements, name)
    }
  }

  private let state = Mutex(State())
  private let keptMax = 4
  /// So many closings of a use are one for good.
  private let closingsOfOne = 6

  /// Nothing is kept yet.
  public init() {}

  deinit { clear() }

  static func place(of path: String, _ use: String) -> Place? {
    guard let current, !path.isEmpty, path != ":memory:", !path.hasPrefix("file:") else { return nil }
    return Place(shelf: current, name: Name(path: path, use: use))
  }

  /// Closes what is kept of a file: before it is replaced, renamed or removed.
  public func clear(_ path: String) {
    let gone = state.withLock { state in
      let names = state.kept.keys.filter { $0.path == path }
      return names.flatMap { state.kept.removeValue(forKey: $0) ?? [] }
    }
    for kept in gone { Self.close(kept) }
  }

  /// Closes what is kept of every file: whoever set the shelf is through with it, and a task that never ends may still have it.
  public func clear() {
    let gone = state.withLock { state in
      defer { state.kept = [:] }
      return state.kept
    }
    for kept in gone.values.joined() { Self.close(kept) }
  }

  private func take(_ name: Name) -> Kept? {
    while let kept = state.withLock({ $0.kept[name]?.popLast() }) {
      if kept.file == FileIdentity(name.path) { return kept }
      Self.close(kept)
    }
    return nil
  }

  private func keep(_ database: OpaquePointer, _ statements: [String: SQLiteStatement], _ name: Name) -> Bool {
    guard let file = FileIdentity(name.path) else { return false }
    return state.withLock { state in
      state.closings[name, default: 0] += 1
      guard state.closings[name, default: 0] % closingsOfOne != 0, state.kept[name, default: []].count < keptMax else {
        return false
      }
      state.kept[name, default: []].append(
        Kept(database: database, statements: statements, file: file))
      return true
    }
  }

  private static func close(_ kept: Kept) {
    var kept = kept
    kept.statements = [:]
    sqlite3_close_v2(kept.database)
  }
}
