/// One rule of a contract, as a case that any module of the contract's kind can be put through.
///
/// A suite is an enumeration with a `static let cases: [ContractCase<Subject>]`; it owns the list, so a module that
/// adopts it with one parameterised test gets every case that is added later (architecture, rule 6):
///
/// ```swift
/// @Test(arguments: CompressionContract.cases)
/// func keepsTheContract(_ rule: ContractCase<any Compression>) async throws {
///   try await rule.run(GzipCompression())
/// }
/// ```
///
/// No test framework is imported here: `salvor contract` runs the same cases.
public struct ContractCase<Subject: Sendable>: Sendable, CustomStringConvertible {
  /// A few words, unique in the suite: what is done and what must come of it.
  public let name: String
  /// Where the rule is written, e.g. `semantics 5` or `Exchange.swift, ClientTransport`.
  public let rule: String
  /// Puts a fresh subject through the case, within a time (`ContractPatience.ofACase`) and, where
  /// somebody looks, a memory (`ContractMemory.ofACase`). Throws `ContractFailure` where the rule is broken, and any other error
  /// where the subject threw one that the case did not ask for; both count as a failure.
  public let run: @Sendable (Subject) async throws -> Void

  /// Puts the limits of time and of memory round `run`: the case's own body needs neither.
  public init(_ name: String, rule: String, run: @escaping @Sendable (Subject) async throws -> Void) {
    self.name = name
    self.rule = rule
    self.run = { subject in
      let limit = ContractMemory.ofACase
      let before = limit.flatMap { _ in ContractMemory.now() }
      let step = ContractPatience.duration
      try await ContractPatience.$duration.withValue(max(ContractPatience.ofACase, step)) {
        try await patiently(name) {
          try await ContractPatience.$duration.withValue(step) { try await run(subject) }
        }
      }
      if let limit, let before, let after = ContractMemory.now() {
        let more = after.residentBytes - before.residentBytes
        try expect(more < limit, "\(name): the process has \(more >> 20) MiB more than before the case")
      }
    }
  }

  /// The name, and the rule in parentheses.
  public var description: String { "\(name) (\(rule))" }
}

/// A rule that a module breaks: what was found, what the rule asks for, and the line of the suite that asked.
public struct ContractFailure: Error, Sendable, Hashable, CustomStringConvertible {
  /// What was found and what the rule asks for, in one text. It may hold values of the case's rows.
  public var message: String
  /// `FILE:LINE` of the expectation.
  public var place: String

  /// `file` and `line` become `place`; by default they are those of the caller.
  public init(_ message: String, file: String = #fileID, line: Int = #line) {
    self.message = message
    self.place = "\(file):\(line)"
  }

  /// The message, and the place in parentheses.
  public var description: String { "\(message) (\(place))" }
}

/// Throws `ContractFailure` with `message` unless `condition` holds.
public func expect(
  _ condition: Bool, _ message: @autoclosure () -> String, file: String = #fileID, line: Int = #line
) throws {
  if !condition { throw ContractFailure(message(), file: file, line: line) }
}

/// Throws `ContractFailure` unless `found` equals `expected`; the message says `what` was compared, and both.
public func expectEqual<Compared: Equatable>(
  _ found: Compared, _ expected: Compared, _ what: @autoclosure () -> String, file: String = #fileID,
  line: Int = #line
) throws {
  if found != expected {
    throw ContractFailure("\(what()): found \(found), must be \(expected)", file: file, line: line)
  }
}

/// The value of an optional that must be there.
public func expectSome<Wrapped>(
  _ found: Wrapped?, _ what: @autoclosure () -> String, file: String = #fileID, line: Int = #line
) throws -> Wrapped {
  guard let found else { throw ContractFailure("\(what()): nothing found", file: file, line: line) }
  return found
}
