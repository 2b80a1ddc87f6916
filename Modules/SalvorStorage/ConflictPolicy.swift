import SalvorModel

/// Settles conflicts (semantics 7): a row was changed on the server since the version that a client's change was made on.
/// The seam `conflict-policy`; contract: `ConflictPolicyContract`.
///
/// A policy is asked within the server's transaction, about conflicts alone, and may be asked about one more than once.
/// So the same question must have the same answer, and no input or output may be done for it.
///
/// ```swift
/// struct HigherNumber: ConflictPolicy {
///   func settle(_ conflict: Conflict) -> ConflictSettlement {
///     .merged(conflict.columns.filter { ($0.new.integer ?? 0) > (conflict.server($0.name)?.integer ?? 0) }
///       .map { NamedValue($0.name, $0.new) })
///   }
/// }
/// ```
public protocol ConflictPolicy: Sendable {
  /// Not nil: every conflict is settled so. Stores do it by set then, and ask about none.
  var uniform: ConflictSettlement? { get }

  /// Settles one conflict. What is thrown refuses the request as `conflict-policy`.
  func settle(_ conflict: Conflict) throws -> ConflictSettlement
}

extension ConflictPolicy {
  /// Nil: the policy is asked about each conflict.
  public var uniform: ConflictSettlement? { nil }
}

/// What becomes of a conflict.
public enum ConflictSettlement: Sendable, Hashable {
  /// The fields that the client changed are written; a delete deletes.
  case client
  /// The request is refused as `conflict`.
  case server
  /// The server's row stands, the client's version is kept beside it for a person, and the request counts as accepted.
  case both
  /// The request is accepted, and these columns of the server's row become these values; the others stay. Columns of the
  /// table that travel, none of its key, each at most once, each of its column's type.
  case merged([NamedValue])
}

/// Settles every conflict in the same way.
public struct UniformConflictPolicy: ConflictPolicy {
  /// Never nil: stores settle by it without a question.
  public let uniform: ConflictSettlement?
  private let settlement: ConflictSettlement

  /// Settles every conflict so, whatever its table and operation.
  public init(_ settlement: ConflictSettlement) {
    self.settlement = settlement
    uniform = settlement
  }

  /// The settlement that the policy was made with.
  public func settle(_ conflict: Conflict) -> ConflictSettlement { settlement }
}

/// One conflict, as a policy is asked about it.
public struct Conflict: Sendable, Hashable {
  /// As the schema of the server has it.
  public var table: Table
  /// The row's, in the order of `Table.primaryKey`.
  public var key: Key
  /// What the client did with the row. An insert is in conflict where the key is there already.
  public var operation: Operation
  /// The columns that the client changed, with what it saw and what it wants; of an insert those that it sets
  /// (`Column.isSet`); of a delete none.
  public var columns: [ConflictColumn]
  /// The server's row: every column that travels.
  public var server: [NamedValue]
  /// The request that the change belongs to. Others of its changes may be in conflict, too.
  public var request: RequestID
  /// The device that sent it.
  public var remote: RemoteID
  /// The name of the principal who sent it.
  public var principal: String
  /// Milliseconds since 1970, when the upload is processed.
  public var time: Int64
  /// The number of the commit that the client's change was made on.
  public var made: Int64

  /// All parts given.
  public init(
    table: Table, key: Key, operation: Operation, columns: [ConflictColumn], server: [NamedValue], request: RequestID,
    remote: RemoteID, principal: String, time: Int64, made: Int64
  ) {
    self.table = table
    self.key = key
    self.operation = operation
    self.columns = columns
    self.server = server
    self.request = request
    self.remote = remote
    self.principal = principal
    self.time = time
    self.made = made
  }

  /// The server's value of a column; nil: the table has no such column.
  public func server(_ column: String) -> Value? { server.first { $0.name == column }?.value }
}

/// A column that a client changed.
public struct ConflictColumn: Sendable, Hashable {
  /// As the schema names it.
  public var name: String
  /// What the client saw; nil of an insert.
  public var old: Value?
  /// What the client wants.
  public var new: Value
  /// All parts given.
  public init(_ name: String, old: Value?, new: Value) {
    self.name = name
    self.old = old
    self.new = new
  }
}

/// A policy's answer, as a store may act on it.
public enum ConflictAnswer: Sendable, Hashable {
  /// The policy has settled it. Merged values are such as the row can take.
  case settled(ConflictSettlement)
  /// The policy failed: the request is refused as `conflict-policy` with this message.
  case failed(String)
}

extension ConflictPolicy {
  /// Asks the policy where it must be asked, and checks what it says.
  ///
  /// - Parameter question: made only where the policy is asked.
  public func answer(in table: Table, _ question: () throws -> Conflict) rethrows -> ConflictAnswer {
    let settlement: ConflictSettlement
    if let uniform {
      settlement = uniform
    } else {
      let conflict = try question()
      do {
        settlement = try settle(conflict)
      } catch {
        // The message of another's error may hold values.
        let why = (error as? SalvorError)?.message ?? "\(type(of: error))"
        return .failed(failure(in: table, "failed: \(why)"))
      }
    }
    if case .merged(let values) = settlement, let mistake = table.mistake(inMerged: values) {
      return .failed(failure(in: table, mistake))
    }
    return .settled(settlement)
  }

  private func failure(in table: Table, _ what: String) -> String {
    "The conflict policy \(table.conflicts) of \(table.name) \(what.hasSuffix(".") ? String(what.dropLast()) : what). Tell the server's operator, and send the change again then."
  }
}

extension Table {
  /// Why these cannot be the merged values of a row; nil: they can.
  fileprivate func mistake(inMerged values: [NamedValue]) -> String? {
    var seen: Set<String> = []
    for value in values {
      guard let column = travelling.first(where: { $0.name == value.name }) else {
        return "answered the column \(value.name), which the table does not have"
      }
      if !seen.insert(value.name).inserted { return "answered the column \(value.name) twice" }
      if primaryKey.contains(value.name) { return "answered the key column \(value.name)" }
      if value.value.isNull ? !column.nullable : !column.type.stores(value.value) {
        return "answered a value for \(value.name) that the column cannot store"
      }
    }
    return nil
  }
}
