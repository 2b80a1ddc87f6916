import SalvorModel
import SalvorStorage

/// A conflict policy with a table that it is for.
public struct ConflictPolicySubject: Sendable {
  /// The policy under test. Each case may ask it from many tasks at once.
  public var policy: any ConflictPolicy
  /// The table that every conflict of the suite is in.
  public var table: Table

  /// - Parameter table: one whose columns the policy's options name, where it has such options.
  public init(_ policy: any ConflictPolicy, for table: Table = ConflictPolicyContract.sampleTable) {
    self.policy = policy
    self.table = table
  }
}

/// What every conflict policy keeps (ConflictPolicy.swift), on every kind of conflict that its table can have.
///
/// ```swift
/// @Test(arguments: ConflictPolicyContract.cases)
/// func keepsTheContract(_ rule: ConflictPolicyContract.Case) async throws {
///   try await rule.run(ConflictPolicySubject(MyPolicy(), for: table))
/// }
/// ```
public enum ConflictPolicyContract {
  /// One rule, for a policy with its table.
  public typealias Case = ContractCase<ConflictPolicySubject>

  /// A column of every type, nullable and not.
  public static let sampleTable = Table(
    "sample", primaryKey: ["id"],
    columns: [
      Column("id", .text), Column("title", .text), Column("note", .text, nullable: true), Column("count", .integer),
      Column("stars", .integer, nullable: true), Column("share", .real, nullable: true),
      Column("photo", .blob, nullable: true), Column("done", .boolean, defaultValue: 0),
      Column("changed_at", .timestamp, nullable: true), Column("details", .json, nullable: true),
    ])

  /// One rule each. The conflicts are made from the columns of the subject's table; no store is needed.
  public static let cases: [Case] = [
    Case("a conflict of an update is settled, whatever its columns and values", rule: "ConflictPolicy.swift, settle") {
      subject in
      for conflict in conflicts(subject.table, .update) { try settle(conflict, subject) }
    },
    Case("a conflict of a delete is settled", rule: "ConflictPolicy.swift, settle") { subject in
      for conflict in conflicts(subject.table, .delete) { try settle(conflict, subject) }
    },
    Case("a conflict of an insert of a held key is settled", rule: "semantics 7") { subject in
      for conflict in conflicts(subject.table, .insert) { try settle(conflict, subject) }
    },
    Case("what is merged can stand in the row", rule: "ConflictPolicy.swift, merged") { subject in
      for conflict in allConflicts(subject.table) {
        let answer = subject.policy.answer(in: subject.table) { conflict }
        if case .failed(let message) = answer, (try? subject.policy.settle(conflict)) != nil {
          throw ContractFailure("\(named(conflict)): \(message)")
        }
      }
    },
    Case("the same question has the same answer", rule: "ConflictPolicy.swift, ConflictPolicy") { subject in
      let questions = allConflicts(subject.table)
      let first = questions.map { answer($0, subject) }
      let again = questions.reversed().map { answer($0, subject) }.reversed()
      for (question, (one, other)) in zip(questions, zip(first, again)) {
        try expectEqual(other, one, "\(named(question)): the second answer")
      }
      try await withThrowingTaskGroup(of: Void.self) { group in
        for (question, wanted) in zip(questions, first) {
          group.addTask { try expectEqual(answer(question, subject), wanted, "\(named(question)): one of many") }
        }
        try await group.waitForAll()
      }
    },
    Case("one that settles all alike settles each so", rule: "ConflictPolicy.swift, uniform") { subject in
      guard let uniform = subject.policy.uniform else { return }
      for conflict in allConflicts(subject.table) {
        try expectEqual(try subject.policy.settle(conflict), uniform, "\(named(conflict)): the answer")
      }
    },
  ]

  private static func settle(_ conflict: Conflict, _ subject: ConflictPolicySubject) throws {
    do {
      _ = try subject.policy.settle(conflict)
    } catch {
      throw ContractFailure("\(named(conflict)): it throws \(type(of: error))")
    }
  }

  private static func answer(_ conflict: Conflict, _ subject: ConflictPolicySubject) -> ConflictAnswer {
    subject.policy.answer(in: subject.table) { conflict }
  }

  private static func named(_ conflict: Conflict) -> String {
    let columns = conflict.columns.map { "\($0.name) \($0.old?.description ?? "-") → \($0.new)" }
    let server = conflict.server.map { "\($0.name) \($0.value)" }
    return
      "\(conflict.operation.rawValue) [\(columns.joined(separator: ", "))], server [\(server.joined(separator: ", "))]"
  }

  // MARK: Conflicts

  private static func allConflicts(_ table: Table) -> [Conflict] {
    [Operation.update, .insert, .delete].flatMap { conflicts(table, $0) }
  }

  /// For every column the values that a careless policy stumbles over, alone and together with the others.
  private static func conflicts(_ table: Table, _ operation: Operation) -> [Conflict] {
    let others = table.travelling.filter { !table.primaryKey.contains($0.name) }
    let rounds = 0..<(table.travelling.map { values(of: $0).count }.max() ?? 1)
    func value(_ column: Column, _ round: Int) -> Value {
      let all = values(of: column)
      return all[round % all.count]
    }
    func conflict(_ changed: [Column], _ round: Int) -> Conflict {
      let columns = changed.map { column in
        ConflictColumn(
          column.name, old: operation == .insert ? .none : .some(value(column, round)), new: value(column, round + 1))
      }
      let server = table.travelling.map { column in
        let isKey = table.primaryKey.contains(column.name)
        return NamedValue(column.name, value(column, isKey ? 0 : round + 2))
      }
      return Conflict(
        table: table, key: table.primaryKey.compactMap { name in server.first { $0.name == name }?.value },
        operation: operation, columns: columns, server: server,
        request: RequestID(
          stamp: RequestStamp(unchecked: String(repeating: "a", count: 32)), counter: Int64(round + 1)),
        remote: RemoteID(unchecked: String(repeating: "b", count: 32)), principal: "anna", time: 1_800_000_000_000,
        made: 1)
    }
    switch operation {
    case .delete: return rounds.map { conflict([], $0) }
    case .insert:
      return rounds.map { round in
        var insert = conflict(table.travelling, round)
        for (place, name) in zip(insert.key.indices, table.primaryKey) {
          if let column = insert.columns.firstIndex(where: { $0.name == name }) {
            insert.columns[column].new = insert.key[place]
          }
        }
        return insert
      }
    case .update: return rounds.flatMap { round in others.map { conflict([$0], round) } + [conflict(others, round)] }
    }
  }

  private static func values(of column: Column) -> [Value] {
    let values: [Value] =
      switch column.type {
      case .text: ["a", "b", "", .text([0xFF, 0x00]), "é", "z"]
      case .timestamp: ["2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z", "", "no time"]
      case .json: ["{}", "{\"a\":[1,2]}", "null", "no json"]
      case .integer: [1, 2, .integer(.min), .integer(.max), 0, -1]
      case .boolean: [0, 1]
      case .real: [0.5, .real(-.infinity), .real(.greatestFiniteMagnitude), .real(-0.0), 2]
      case .blob: [.blob([]), .blob([0]), .blob(Array(repeating: 7, count: 5000))]
      }
    return values.filter { column.type.stores($0) } + (column.nullable ? [.null] : [])
  }
}
